"""The speller's step in a search in C++ equals `Speller.step` in torch's operations."""

import gc
import math
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
from kernel_cases import CELLS, compiles
from parameters import moved

from las.decoding.search import BeamSearch, GreedySearch
from las.nn.attention.additive import AdditiveAttention
from las.nn.attention.base import AttentionMemory
from las.nn.attention.dot import DotAttention
from las.nn.attention.location import LocationAttention
from las.nn.attention.multi_head import MultiHeadAttention
from las.nn.attention.weight_feedback import WeightFeedbackAttention
from las.nn.cells.base import CELL_NORMS
from las.nn.cells.norms import DynamicTanh, RMSNorm
from las.nn.cells.zoneout import ZoneoutLSTMCell
from las.nn.kernels.cpp import build
from las.nn.kernels.cpp.speller import CppSearchStep
from las.nn.model import Decoder
from las.nn.speller import Speller, SpellerState

pytestmark = compiles

KINDS = AdditiveAttention, DotAttention, LocationAttention, WeightFeedbackAttention
NORMS = [*product(CELLS.values(), CELL_NORMS)]
NORMS += [
    (partial(CELLS["ln_global_all"], norm=RMSNorm), "both"),
    (partial(CELLS["ln_joined"], norm=DynamicTanh), "none"),
]
NUM_STATES = torch.tensor([21, 13, 1, 0])


def speller_of(cell: Callable[..., Any], attention: Callable[..., Any], **options: Any) -> Speller:
    torch.manual_seed(0)
    speller = Speller(9, 5, cell=cell, attention=attention, hidden_size=19, embedding_size=6, **options)
    return moved(speller, 0.1).eval()


def memory_of(speller: Speller, dtype: torch.dtype = torch.float32) -> AttentionMemory:
    return speller.attention.prepare(torch.randn(4, 21, 5, dtype=dtype), NUM_STATES)


def beamed(state: SpellerState, beams: int) -> SpellerState:
    """The state of a first step in each of some beams."""

    def spread(part: torch.Tensor) -> torch.Tensor:
        return part.expand(-1, beams, -1)

    layers = tuple(type(each)(*map(spread, each)) for each in state.layers)
    return SpellerState(layers, *map(spread, state[1:]))


LOCATION = partial(LocationAttention, key_size=11)
READOUTS = product(("tanh", "maxout"), ("state", "state_and_token"), (38, 700))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    ("cell", "attention", "options", "beams"),
    [
        *((partial(cell, cell_norm=n, forget_bias=1.0), LOCATION, {"num_layers": 2}, 3) for cell, n in NORMS),
        *((CELLS["lstm"], partial(kind, key_size=11), {}, beams) for kind, beams in product(KINDS, (1, 2, 9))),
        *(
            (CELLS["lstm"], DotAttention, {"readout": name, "readout_reads": reads, "readout_size": size}, 5)
            for name, reads, size in READOUTS
        ),
    ],
)
def test_steps_equal_those_of_torch(
    cell: Any, attention: Any, options: dict[str, Any], beams: int, dtype: torch.dtype
) -> None:
    """Every cell, attention and readout."""
    speller = speller_of(cell, attention, **options).to(dtype)
    memory = memory_of(speller, dtype)
    with torch.no_grad():
        fused, state = speller.select_step_fn(memory), beamed(speller.start(memory), beams)
        assert isinstance(fused, CppSearchStep)
        tolerance = 1e-5 if dtype is torch.float32 else 1e-12
        for _ in range(3):
            tokens = torch.randint(0, 9, (4, beams))
            log_probs, after = speller.step(tokens, memory, state, fused)
            expected, state = speller.step(tokens, memory, state)
            torch.testing.assert_close((log_probs, after), (expected, state), atol=tolerance, rtol=10 * tolerance)


@torch.no_grad()
@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_invalid_numbers_do_not_become_valid(wrong: float) -> None:
    for readout in ("tanh", "maxout"):
        speller = speller_of(CELLS["lstm"], DotAttention, readout=readout, readout_size=38)
        memory, tokens = memory_of(speller), torch.tensor([[0, 1], [2, 3], [4, 5], [6, 7]])
        speller.output.bias[3] = wrong
        state = beamed(speller.start(memory), 2)
        log_probs, _ = speller.step(tokens, memory, state, speller.select_step_fn(memory))
        expected, _ = speller.step(tokens, memory, state)
        assert torch.equal(log_probs.isnan(), expected.isnan())


@torch.no_grad()
def test_an_utterance_depends_neither_on_the_others_nor_on_threads() -> None:
    speller = speller_of(CELLS["ln_global_all"], LocationAttention, num_layers=2)
    memory, tokens, found = memory_of(speller), torch.randint(0, 9, (4, 7)), []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        state = beamed(speller.start(memory), 7)
        log_probs, after = speller.step(tokens, memory, state, speller.select_step_fn(memory))
        found.append((log_probs, *after.layers[-1], after.context, after.weights))
        assert all(map(torch.equal, found[-1], found[0]))
    for row in range(4):
        alone = AttentionMemory(*(part[row : row + 1] for part in memory))
        state = beamed(speller.start(alone), 7)
        log_probs, _ = speller.step(tokens[row : row + 1], alone, state, speller.select_step_fn(alone))
        assert torch.equal(log_probs, found[0][0][row : row + 1])


def test_the_copies_of_weights_are_freed_with_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[object] = []
    monkeypatch.setattr(build.library(), "search_close_float32", closed.append)
    speller = speller_of(CELLS["lstm"], LocationAttention)
    with torch.no_grad():
        steps = [speller.select_step_fn(memory_of(speller)) for _ in range(2)]
    del steps[0]
    gc.collect()
    assert len(closed) == 1


@torch.no_grad()
def test_what_was_not_written_in_c_has_no_such_step() -> None:
    others = partial(MultiHeadAttention, key_size=10, num_heads=5)
    for speller in (
        speller_of(CELLS["lstm"], others),
        speller_of(partial(ZoneoutLSTMCell, cell=CELLS["lstm"]), AdditiveAttention),
    ):
        assert speller.select_step_fn(memory_of(speller)) is None
    half = speller_of(CELLS["lstm"], AdditiveAttention).to(torch.bfloat16)
    assert half.select_step_fn(memory_of(half, torch.bfloat16)) is None
    speller = speller_of(CELLS["lstm"], AdditiveAttention)
    with torch.enable_grad():
        assert speller.select_step_fn(memory_of(speller)) is None
    assert speller.train().select_step_fn(memory_of(speller)) is None  # it drops units


class StepByStep:
    """A decoder that searches ask for each step."""

    def __init__(self, decoder: Decoder) -> None:
        self.decoder, self.sos, self.eos, self.step = decoder, decoder.sos, decoder.eos, decoder.step

    def start(self) -> SpellerState:
        return self.decoder.start()

    def select_utterances(self, rows: torch.Tensor) -> "StepByStep":
        return StepByStep(self.decoder.select_utterances(rows))


@torch.no_grad()
@pytest.mark.parametrize(
    ("kind", "dtype"), [*((kind, torch.float32) for kind in KINDS), (LocationAttention, torch.float64)]
)
def test_a_whole_search_equals_its_steps(kind: Callable[..., Any], dtype: torch.dtype) -> None:
    """Every hypothesis, bit for bit, on any number of threads; also where scores are not numbers."""
    searches: list[Any] = [GreedySearch(), GreedySearch(0.3), BeamSearch(3, max_length=6), BeamSearch(12, 0.0, 12, 0.2)]
    searches += [BeamSearch(5, 0.6, 2, 0.4), BeamSearch(40, 1.0, 3, max_length=2)]
    speller = speller_of(CELLS["ln_global_all"], partial(kind, key_size=11), num_layers=2).to(dtype)
    for parameter in speller.parameters():
        parameter.mul_(4)
    for number, (wrong, search) in enumerate(product((0.0, math.nan), searches)):
        speller.output.bias[3] += wrong
        torch.set_num_threads(1)
        decoder = Decoder(speller, memory_of(speller, dtype))
        expected = search(StepByStep(decoder), NUM_STATES)
        assert decoder.search([1] * 4, (0, 1, 0.0), 1) is not None
        torch.set_num_threads((1, 1, 3)[number % 3])
        assert search(decoder, NUM_STATES) == expected
