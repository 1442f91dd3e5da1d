"""`las.LSTM` against `torch.nn.LSTM`; its cells and kernels are tests/nn/test_rnn.py's and tests/nn/kernels'."""

import copy
import pickle  # noqa: TID251 - its own output, as a data loader's worker gets it
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest
import speller_cases
import torch
from layouts import LAYOUTS
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import las
from las.config import build
from las.nn.cells.ln_joined import LNJoinedLSTMCell
from las.nn.cells.norms import RMSNorm
from las.nn.lstm import LSTM
from las.runtime.errors import ConfigError

INPUT, HIDDEN, FRAMES = 3, 5, 6
LENGTHS = (4, 6, 1, 3)
STACKS = [
    pytest.param(layers, both, id=f"{layers} layers, {1 + both} directions") for layers, both in product((1, 3), (0, 1))
]


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(1)


def pair(layers: int, both: int, batch_first: bool, dtype: torch.dtype = torch.float64) -> tuple[nn.LSTM, LSTM]:
    theirs = nn.LSTM(INPUT, HIDDEN, layers, batch_first=batch_first, bidirectional=bool(both), dtype=dtype)
    return theirs, LSTM.from_torch(theirs)


def padded(batch_first: bool = True, dtype: torch.dtype = torch.float64) -> Tensor:
    shape = (len(LENGTHS), FRAMES) if batch_first else (FRAMES, len(LENGTHS))
    return torch.randn(*shape, INPUT, dtype=dtype, requires_grad=True)


def states(lstm: nn.LSTM, *batch: int) -> tuple[Tensor, Tensor]:
    count = lstm.num_layers * (2 if lstm.bidirectional else 1)
    h, c = torch.randn(2, count, *batch, HIDDEN, dtype=lstm.weight_ih_l0.dtype)
    return h.requires_grad_(), c.requires_grad_()


def pack(frames: Tensor, batch_first: bool) -> PackedSequence:
    return pack_padded_sequence(frames, torch.tensor(LENGTHS), batch_first=batch_first, enforce_sorted=False)


def flat(result: Any) -> list[Tensor]:
    output, last = result
    parts = [last] if isinstance(last, Tensor) else last
    return [output.data if isinstance(output, PackedSequence) else output, *parts]


def gradients(results: list[Tensor], wanted: list[Tensor]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(2)
    weights = [torch.randn(part.shape, generator=generator, dtype=torch.float64).to(part) for part in results]
    total = sum(((part * weight).sum() for part, weight in zip(results, weights, strict=True)), torch.tensor(0.0))
    return list(torch.autograd.grad(total, wanted))


def by_their_names(lstm: nn.LSTM) -> Iterator[tuple[str, str]]:
    """Parameters of a plain `las.LSTM` and the parameter of `nn.LSTM` with the same gradient."""
    for number, turn in product(range(lstm.num_layers), ("", "_reverse")[: 1 + lstm.bidirectional]):
        direction = {"": "forwards.", "_reverse": "backwards."}[turn] if lstm.bidirectional else ""
        for own, other in (("input_weight", "weight_ih"), ("recurrent_weight", "weight_hh"), ("bias", "bias_ih")):
            yield f"layers.{number}.{direction}cell.{own}", f"{other}_l{number}{turn}"


def assert_equal(theirs: nn.LSTM, ours: LSTM, expected: Any, actual: Any, given: list[Tensor]) -> None:
    """Outputs, states, and gradients of everything that was given and of all parameters, to 1e-6 of the largest."""
    names = list(by_their_names(theirs))
    assert {own for own, _ in names} == dict(ours.named_parameters()).keys()
    their_results, our_results = flat(expected), flat(actual)
    theirs_wanted = [*given, *(theirs.get_parameter(name) for _, name in names)]
    ours_wanted = [*given, *(ours.get_parameter(name) for name, _ in names)]
    compared = [
        *zip(our_results, their_results, strict=True),
        *zip(gradients(our_results, ours_wanted), gradients(their_results, theirs_wanted), strict=True),
    ]
    for one, other in compared:
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6 * max(1.0, float(other.detach().abs().max())))


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("layers, both", STACKS)
def test_packed_batches_and_lengths_equal_torch(layers: int, both: int, batch_first: bool) -> None:
    theirs, ours = pair(layers, both, batch_first)
    frames, hx = padded(batch_first), states(theirs, len(LENGTHS))
    expected, actual = (lstm(pack(frames, batch_first), hx) for lstm in (theirs, ours))
    assert isinstance(actual[0], PackedSequence)
    for one, other in zip(actual[0][1:], expected[0][1:], strict=True):
        assert torch.equal(one, other)
    assert_equal(theirs, ours, expected, actual, [frames, *hx])
    unpacked = pad_packed_sequence(theirs(pack(frames, batch_first), hx)[0], batch_first, total_length=FRAMES)[0]
    by_lengths = ours(frames, hx, lengths=torch.tensor(LENGTHS))
    assert torch.equal(ours(frames, hx, lengths=LENGTHS)[0], by_lengths[0])
    assert_equal(theirs, ours, (unpacked, theirs(pack(frames, batch_first), hx)[1]), by_lengths, [frames, *hx])


def test_sorted_packing_stays_sorted() -> None:
    theirs, ours = pair(1, 1, True)
    packed = pack_padded_sequence(padded(), torch.tensor([6, 5, 5, 2]), batch_first=True)
    output, _ = ours(packed)
    assert output.sorted_indices is None and output.unsorted_indices is None
    torch.testing.assert_close(output.data, theirs(packed)[0].data, rtol=0, atol=1e-9)


@pytest.mark.parametrize("layers, both", STACKS)
def test_unbatched_frames_equal_torch(layers: int, both: int) -> None:
    theirs, ours = pair(layers, both, True)
    frames, hx = torch.randn(FRAMES, INPUT, dtype=torch.float64, requires_grad=True), states(theirs)
    assert_equal(theirs, ours, theirs(frames), ours(frames), [frames])
    assert_equal(theirs, ours, theirs(frames, hx), ours(frames, hx), [frames, *hx])


def test_an_lstm_without_biases_is_copied() -> None:
    theirs = nn.LSTM(INPUT, HIDDEN, 2, bias=False, dropout=0.5).eval()
    ours = LSTM.from_torch(theirs)
    assert not ours.training and ours.dropout == 0.5
    frames = torch.randn(FRAMES, 2, INPUT)
    torch.testing.assert_close(ours(frames)[0], theirs(frames)[0], rtol=0, atol=1e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("both", [0, 1])
def test_states_and_lengths_of_any_layout_equal_torch(layout: str, both: int) -> None:
    """A learned state that is expanded to the batch, a transposed one, one half of both states in one tensor."""
    theirs, ours = pair(2, both, True)
    frames, hx = padded(), [LAYOUTS[layout](part.detach()).requires_grad_() for part in states(theirs, len(LENGTHS))]
    assert_equal(theirs, ours, theirs(frames, tuple(hx)), ours(frames, tuple(hx)), [frames, *hx])
    lengths = LAYOUTS[layout](torch.tensor(LENGTHS))
    assert torch.equal(ours(frames, lengths=lengths)[0], ours(frames, lengths=lengths.tolist())[0])


def test_dropout_acts_between_layers_while_training() -> None:
    lstm, frames = LSTM(INPUT, HIDDEN, 2, dropout=1.0), torch.randn(FRAMES, 2, INPUT)
    silent = torch.zeros(FRAMES, 2, HIDDEN)
    upper, _ = lstm.layers[1](silent.transpose(0, 1), torch.full((2,), FRAMES))
    assert torch.equal(lstm(frames)[0], upper.transpose(0, 1))
    assert not torch.equal(lstm.eval()(frames)[0], upper.transpose(0, 1))
    with pytest.warns(UserWarning, match="acts between layers"):
        LSTM(INPUT, HIDDEN, dropout=0.1)


def test_it_is_pickled_copied_and_shown() -> None:
    lstm, frames = las.LSTM(INPUT, HIDDEN, 2, bidirectional=True, cell="zoneout").eval(), torch.randn(FRAMES, 2, INPUT)
    for other in (pickle.loads(pickle.dumps(lstm)), copy.deepcopy(lstm)):  # noqa: S301
        assert torch.equal(other(frames)[0], lstm(frames)[0])
        assert other.layers[0] is not lstm.layers[0]
    shown = repr(lstm)
    assert "3, 5, num_layers=2, batch_first=False, dropout=0, bidirectional=True, cell='zoneout'" in shown
    assert "PlainLSTMCell(3, 5" in shown


@pytest.mark.unchecked
@pytest.mark.parametrize(
    "options, message",
    [
        ({"cell": "ln_globl"}, r"cell='ln_globl': there is no configs/cell/ln_globl.yaml. Did you mean ln_global"),
        ({"cell_nrm": "both"}, r"cell=ln_global.cell_nrm: LNGlobalLSTMCell has no such key. Did you mean cell_norm"),
        ({"cell": LNJoinedLSTMCell, "biases": "all"}, r"cell.biases: LNJoinedLSTMCell has no such key"),
        (
            {"bias": False},
            r"bias=False: the cell decides .* start at zero and stay there after requires_grad_",
        ),
        ({"proj_size": 2}, r"proj_size=2: .*cell='projected_lstm'"),
        ({"dtype": torch.int64}, r"dtype=torch.int64 is no floating type"),
        ({"dropout": True, "num_layers": 2}, r"dropout=true should be a number"),
        ({"cell_norm": "all"}, r"cell_norm='all' does not exist"),
        ({"norm": "rmss"}, r"norm='rmss': .* Did you mean rms"),
        ({"norm": RMSNorm()}, r"norm is one RMSNorm, .* norm=RMSNorm$"),
        ({"cell": LNJoinedLSTMCell(INPUT, HIDDEN)}, r"cell is one LNJoinedLSTMCell, .* cell=LNJoinedLSTMCell$"),
        ({"cell": las.LSTMCell}, r"LSTMCell.* is a base class without equations: cell='lstm'"),
        ({"cell": las.RecurrentCell}, r"RecurrentCell.* is a base class without equations"),
        ({"num_layers": 0}, r"num_layers=0 must be at least 1"),
        ({"dropout": 1.5}, r"dropout=1.5 must be from 0 to 1"),
    ],
)
def test_what_cannot_be_made_is_explained(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LSTM(INPUT, HIDDEN, **options)


@pytest.mark.parametrize("cell", ["ln_joined", LNJoinedLSTMCell])
def test_a_norm_may_be_given_by_its_name(cell: Any) -> None:
    lstm = LSTM(INPUT, HIDDEN, 2, cell=cell, norm="rms")
    assert sum(isinstance(module, RMSNorm) for module in lstm.modules()) == 2


def test_arguments_after_num_layers_are_named_as_torch_orders_them() -> None:
    """`nn.LSTM(10, 32, 2, True, True)` has biases and is batch-first; nothing of it becomes a dropout."""
    says = (
        r"torch.nn.LSTM's order is bias, batch_first, dropout, bidirectional, proj_size, device, dtype, which is "
        r"las.LSTM\(10, 32, 2, bias=True, batch_first=True\)$"
    )
    with pytest.raises(ConfigError, match=says):
        LSTM(10, 32, 2, True, True)
    lstm = LSTM(10, 32, 2, bias=True, batch_first=True, proj_size=0)
    assert lstm(torch.randn(3, 7, 10))[0].shape == (3, 7, 32) and not lstm.dropout


@pytest.mark.unchecked
@pytest.mark.parametrize(
    "make",
    [
        lambda: las.Listener(4, cell=LNJoinedLSTMCell, num_layers=1, hidden_size=3, dropout=True),
        lambda: las.Listener(4, cell=LNJoinedLSTMCell, num_layers=2, hidden_size=3, dropout=[0.1, True]),
        lambda: speller_cases.make(dropout=True),
        lambda: speller_cases.make(scheduled_sampling=True),
        lambda: las.LSTMLanguageModel(5, cell=las.PlainLSTMCell, dropout=True),
        lambda: las.ZoneoutLSTMCell(3, 5, cell=LNJoinedLSTMCell, zoneout_hidden=True),
        lambda: las.RecurrentDropoutLSTMCell(3, 5, cell=las.PlainLSTMCell, dropout=False),
        lambda: build.build(build.option("cell", "zoneout") | {"zoneout_cell": True}, where="cell"),
    ],
)
def test_a_bool_is_no_probability_anywhere(make: Any) -> None:
    with pytest.raises(ConfigError, match=r"=(\[0.1,)?(true|false|True|False)\]? should be"):
        make()


def test_what_cannot_be_read_is_explained() -> None:
    lstm, frames = LSTM(INPUT, HIDDEN, batch_first=True), torch.randn(2, FRAMES, INPUT)
    zeros, packed = torch.zeros(1, 2, HIDDEN), pack_padded_sequence(frames, torch.tensor([6, 6]), batch_first=True)
    cases: list[tuple[str, Callable[[], Any]]] = [
        (r"4 values.*input_size=3", lambda: lstm(torch.randn(2, FRAMES, 4))),
        (r"lengths.*3 to 7.*6 frames", lambda: lstm(frames, lengths=[7, 3])),
        (r"2 whole numbers", lambda: lstm(frames, lengths=[3])),
        (r"2 whole numbers", lambda: lstm(frames, lengths=[True, True])),
        (r"PackedSequence.*lengths", lambda: lstm(packed, lengths=[6, 6])),
        (r"c_0.*\[1, 3, 5\].*\[1, 2, 5\]", lambda: lstm(frames, (zeros, torch.zeros(1, 3, HIDDEN)))),
        (r"h_0.*torch.int64.*torch.float32", lambda: lstm(frames, (zeros.long(), zeros))),
        (r"c_0.*meta.*c_0.to\(input\)", lambda: lstm(frames, (zeros, zeros.to("meta")))),
        (r"4 dimensions", lambda: lstm(frames.unsqueeze(0))),
    ]
    for message, call in cases:
        with pytest.raises(ConfigError, match=message):
            call()
    with pytest.raises(TypeError, match=r"torch.float32 on meta"):
        copy.deepcopy(lstm).to("meta")(frames)
