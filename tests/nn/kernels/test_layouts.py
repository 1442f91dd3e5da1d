"""No kernel takes a tensor for a dense one that is not: strides, offsets and negation of every tensor that it is given.

A call gives the same with tensors of any layout as with dense ones of the same values.
"""

from collections.abc import Sequence
from typing import Any

import pytest
import speller_cases
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import CELLS, compiles, every_kernel, furthest, place
from layouts import Call, Recurrence, drawn, relaid
from torch import Tensor, nn
from torch.nn import functional

from las.decoding.beam_expansion import BeamState, CompiledBeamExpansion
from las.nn import dropout, gammatone
from las.nn.attention.base import AttentionMemory
from las.nn.cells.base import CELL_NORMS, LSTMState
from las.nn.ctc_prefix import CompiledCTCPrefixes, PrefixState
from las.nn.kernels.base import PLAIN
from las.nn.kernels.cpp import speller as cpp_speller
from las.nn.kernels.cpp.layer import library_for
from las.nn.kernels.cpp.tensors import CppProduct
from las.nn.speller import SpellerState

NEAR = {torch.float64: 1e-9, torch.float32: 5e-4}

layouts = st.integers(0, 9999).map(drawn)
kinds = st.sampled_from(sorted(CELLS)), st.sampled_from(CELL_NORMS), st.integers(1, 2), st.booleans()
cases = st.tuples(*kinds).map(lambda options: Recurrence(*options))


def assert_same(call: Call, tensors: Sequence[Tensor], chosen: Sequence[str], tolerance: float = 1e-9) -> None:
    """What is computed of tensors in these layouts is what is computed of dense ones."""
    given, equal = relaid(tensors, chosen)
    assert furthest([*call(given)], [*call(equal)]) <= tolerance


def numbers(*shapes: tuple[int, ...]) -> list[Tensor]:
    torch.manual_seed(5)
    return [torch.randn(shape, dtype=torch.float64) for shape in shapes]


@every_kernel
@given(case=cases, chosen=layouts)
@settings(max_examples=15, derandomize=True)
def test_recurrences_equal_plain_with_tensors_of_any_layout(kernel: str, case: Recurrence, chosen: list[str]) -> None:
    at = place(kernel)
    _, equal = relaid(case.tensors(), chosen)
    there = [part.to(at.device, at.widest if part.is_floating_point() else None) for part in case.tensors()]
    found = case._replace(dtype=at.widest).by(at.kernel, relaid(there, chosen)[0])
    assert furthest(found, case.by(PLAIN, equal)) <= NEAR[at.widest]


@compiles
@pytest.mark.parametrize("attention", speller_cases.ATTENTIONS)
@given(chosen=layouts, cell=st.sampled_from(speller_cases.CELLS))
@settings(max_examples=5, derandomize=True)
def test_teacher_forced_passes(attention: str, chosen: list[str], cell: str) -> None:
    """Keys, values, mask, tokens, embeddings, dropout masks, all parameters and arriving gradients."""
    speller = speller_cases.make(attention, cell)
    memory = speller.attention.prepare(speller_cases.material(), speller_cases.NUM_STATES)
    batch, (steps, hidden) = len(memory.keys), (4, speller_cases.HIDDEN)
    parts = [*speller._cells, speller.attention]
    names = [(part, name) for part in parts for name, _ in _direct(part)]
    arriving = (batch, steps, hidden), (batch, steps, speller_cases.VALUE), (batch, steps, speller_cases.STATES)
    shapes = (batch, steps, 3), (batch, steps, hidden), *arriving
    values = [part.get_parameter(name).detach() for part, name in names]

    def call(given: Sequence[Tensor]) -> list[Tensor]:
        *of_memory, tokens, embedded, mask = given[:6]
        of_parts, of_results = given[6 : 6 + len(names)], given[6 + len(names) :]
        keys, states, kept = of_memory
        for (part, name), value in zip(names, of_parts, strict=True):
            owner, _, last = name.rpartition(".")
            setattr(part.get_submodule(owner), last, nn.Parameter(value))
        wanted = [keys.requires_grad_(), states.requires_grad_(), embedded.requires_grad_()]
        wanted += [part.get_parameter(name) for part, name in names]
        results = cpp_speller.forward(
            speller._cells,
            speller.attention,
            AttentionMemory(keys, states, kept),
            tokens,
            lambda tokens, steps: embedded[:, steps] * tokens.unsqueeze(-1),
            [mask],
        )
        grads = torch.autograd.grad(results, wanted, [*of_results], allow_unused=True, materialize_grads=True)
        return [part.detach() for part in (*results, *grads)]

    tokens = torch.randint(0, 6, (batch, steps))
    mixed = numbers(*shapes)
    assert_same(call, [*memory, tokens, *mixed[:2], *values, *mixed[2:]], chosen)


def _direct(part: nn.Module) -> list[tuple[str, Tensor]]:
    """Parameters, but those of the projections that `prepare` has applied."""
    return [(name, value) for name, value in part.named_parameters() if not name.startswith(("key", "fertility"))]


@compiles
@torch.no_grad()
@pytest.mark.parametrize("attention", speller_cases.ATTENTIONS)
@given(chosen=layouts)
@settings(max_examples=5, derandomize=True)
def test_steps_of_a_search(attention: str, chosen: list[str]) -> None:
    speller = speller_cases.make(attention)
    memory = speller.attention.prepare(speller_cases.material(), speller_cases.NUM_STATES)
    beams = torch.rand(3, 2, 1, dtype=torch.float64)
    first = [part.expand(-1, 2, -1) + beams for part in _flat(speller.start(memory))]
    tokens, parameters = torch.randint(0, 6, (3, 2)), dict(speller.named_parameters())

    def call(given: Sequence[Tensor]) -> list[Tensor]:
        memory, tokens, state = AttentionMemory(*given[:3]), given[3], given[4 : 4 + len(first)]
        layers = tuple(LSTMState(*pair) for pair in zip(state[:-3:2], state[1:-3:2], strict=True))
        for name, value in zip(parameters, given[4 + len(first) :], strict=True):
            owner, _, last = name.rpartition(".")
            setattr(speller.get_submodule(owner), last, nn.Parameter(value))
        step = speller.select_step_fn(memory)
        assert step is not None
        log_probs, after = speller.step(tokens, memory, SpellerState(layers, *state[-3:]), step)
        return [log_probs, *_flat(after)]

    values = [part.detach().clone() for part in parameters.values()]
    assert_same(call, [*memory, tokens, *first, *values], chosen)


def _flat(state: SpellerState) -> list[Tensor]:
    return [*(part for layer in state.layers for part in layer), *state[1:]]


@compiles
@given(chosen=layouts)
@settings(max_examples=10, derandomize=True)
def test_prefix_scores_beams_dropout_and_gammatone_filters(chosen: list[str]) -> None:
    probs, waves, *of_beams = numbers((2, 5, 4), (2, 60), (2, 3, 4), (2, 3), (2, 3))
    probs = probs.softmax(-1)
    states = numbers((2, 3), (2, 3, 6), (2, 3, 6))
    last, tokens = torch.randint(1, 4, (2, 2, 3))

    def prefixes(given: Sequence[Tensor]) -> list[Tensor]:
        scorer, state = CompiledCTCPrefixes(*given[:2]), PrefixState(*given[2:6])
        scores = scorer.score(state)
        return [part.nan_to_num() for part in (scores, *scorer.advance(state, given[6]))]

    sums = functional.pad(probs.log().cumsum(1), (0, 0, 1, 0)).mT
    assert_same(prefixes, [probs, sums, last, *states, tokens], chosen)

    def beams(given: Sequence[Tensor]) -> list[Tensor]:
        symbols, ends, scores, lengths, finished, at_limit = given
        state = BeamState(last, scores, scores, lengths, finished)
        new, parents = CompiledBeamExpansion(0, 2, 0.5).extend(state, symbols, ends, at_limit)
        return [part.nan_to_num() for part in (*new, parents)]

    assert_same(beams, [*of_beams, tokens, of_beams[1] > 0, of_beams[2][:, :1] > 0], chosen)

    def dropped(given: Sequence[Tensor]) -> list[Tensor]:
        torch.manual_seed(1)
        return [*dropout.compiled(given[0], 20000)]

    assert_same(dropped, [waves], chosen)

    def filtered(given: Sequence[Tensor]) -> list[Tensor]:
        return [gammatone.integrals(given[0], gammatone.FilterBank(*given[1:4]), given[4], 7)]

    bank = torch.rand(3, 4, dtype=torch.float64) / 2
    assert_same(filtered, [waves, *bank, waves[0, :20].clone()], chosen)


@compiles
@given(chosen=layouts)
@settings(max_examples=10, derandomize=True)
def test_products(chosen: list[str]) -> None:
    def product(given: Sequence[Tensor]) -> list[Tensor]:
        left, right = given
        return [library_for(left).product(left, right.t())]

    assert_same(product, numbers((6, 5), (8, 5)), chosen)


@pytest.mark.parametrize(
    "wrong, message",
    [
        (lambda part: part.float(), r"left is torch.float32 on cpu: the compiled kernel reads torch.float64"),
        (lambda part: part.to("meta"), r"left is torch.float64 on meta"),
        (torch._neg_view, r"negated when it is read"),
        (lambda part: part[::2], r"left has strides \(2,\)"),
    ],
)
def test_an_address_that_would_be_read_wrongly_is_refused(wrong: Any, message: str) -> None:
    """Whoever forgets to make a tensor dense gets an error in place of other values."""
    structure = CppProduct()
    structure.point(right=torch.zeros(4, dtype=torch.float64))
    with pytest.raises(TypeError, match=message):
        structure.point(left=wrong(torch.zeros(4, dtype=torch.float64)))
