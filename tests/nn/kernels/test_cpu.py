"""The compiled recurrence equals the plain one."""

from typing import Any

import pytest
import torch
from kernel_cases import compiles, every_cell_norm
from torch import Tensor, nn

from las.nn.cells.base import LSTMCell, LSTMState
from las.nn.cells.ln_global import LNGlobalLSTMCell
from las.nn.cells.ln_joined import LNJoinedLSTMCell
from las.nn.cells.ln_per_gate import LNPerGateLSTMCell
from las.nn.cells.lstm import PlainLSTMCell
from las.nn.kernels import choice
from las.nn.rnn import BidirectionalLayer, RecurrentLayer

CELLS = [PlainLSTMCell, LNGlobalLSTMCell, LNJoinedLSTMCell, LNPerGateLSTMCell]
INPUT = 6

every_cell = pytest.mark.parametrize("cls", CELLS)


def bidirectional(cls: type[LSTMCell], hidden: int = 5, **options: Any) -> BidirectionalLayer:
    """Every parameter moved away from where it starts."""
    torch.manual_seed(1)
    layer = BidirectionalLayer(lambda *sizes: cls(*sizes, **options), INPUT, hidden)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return layer


def ragged(batch: int, frames: int) -> Tensor:
    return torch.randint(0, frames + 1, (batch,), generator=torch.Generator().manual_seed(batch))


def results(layer: nn.Module, kernel: str, lengths: Tensor, frames: int, dtype: torch.dtype) -> list[Tensor]:
    """Outputs and the gradients of frames and parameters."""
    generator = torch.Generator().manual_seed(2)
    given = torch.randn(len(lengths), frames, INPUT, generator=generator, dtype=torch.float64).to(dtype)
    given.requires_grad_()
    layer = layer.to(dtype)
    with choice.use_kernel(kernel):
        outputs = layer(given, lengths)
    weights = torch.randn(outputs.shape, generator=generator, dtype=torch.float64).to(dtype)
    wanted = [given, *layer.parameters()]
    grads = torch.autograd.grad((outputs * weights).sum(), wanted, allow_unused=True, materialize_grads=True)
    return [outputs.detach(), *grads]


def assert_near(actual: list[Tensor], expected: list[Tensor], tolerance: float) -> None:
    """Relative to the largest entry of each tensor, or to 1."""
    for one, other in zip(actual, expected, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        bound = tolerance * max(float(other.abs().max()), 1.0) if other.numel() else 0.0
        torch.testing.assert_close(one, other, rtol=0, atol=bound)


@compiles
@every_cell
@every_cell_norm
@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-11), (torch.float32, 1e-4)], ids=str)
def test_layers_equal_the_plain_recurrence(
    cls: type[LSTMCell], cell_norm: str, dtype: torch.dtype, tolerance: float
) -> None:
    layer = bidirectional(cls, cell_norm=cell_norm, forget_bias=1.0)
    for lengths in ([7, 7, 7], [2, 7, 0, 5], [0, 0]):
        case = torch.tensor(lengths), 7, dtype
        assert_near(results(layer, "cpu", *case), results(layer, "plain", *case), tolerance)


@compiles
@every_cell
@pytest.mark.parametrize("hidden", [1, 3, 5, 17, 130])
def test_sizes_that_fill_no_vector(cls: type[LSTMCell], hidden: int) -> None:
    # Of a layer norm over a single value only the bias is left.
    layer = bidirectional(cls, hidden, cell_norm="both", eps=1e-3)
    for dtype, tolerance in [(torch.float64, 1e-11), (torch.float32, 1e-3)]:
        case = ragged(7, 5), 5, dtype
        assert_near(results(layer, "cpu", *case), results(layer, "plain", *case), tolerance)


@compiles
@pytest.mark.parametrize("batch", [0, 1, 2, 6, 7, 13, 16, 17, 40])
@pytest.mark.parametrize("frames", [1, 9])
def test_any_number_of_rows_and_frames(batch: int, frames: int) -> None:
    layer = bidirectional(LNGlobalLSTMCell, cell_norm="output")
    case = ragged(batch, frames), frames, torch.float64
    assert_near(results(layer, "cpu", *case), results(layer, "plain", *case), 1e-11)


@compiles
@every_cell
def test_no_frames(cls: type[LSTMCell]) -> None:
    layer = bidirectional(cls, cell_norm="both")
    assert layer(torch.zeros(3, 0, INPUT), torch.zeros(3, dtype=torch.long)).shape == (3, 0, 10)
    state = LSTMState(*torch.randn(2, 3, 5))
    outputs, last = layer.forwards(torch.zeros(3, 0, INPUT), torch.zeros(3, dtype=torch.long), state)
    assert outputs.shape == (3, 0, 5) and all(map(torch.equal, last, state))


@compiles
@every_cell
def test_a_layer_starts_from_a_state(cls: type[LSTMCell]) -> None:
    torch.manual_seed(3)
    layer = RecurrentLayer(cls, INPUT, 5).double()
    frames, state = torch.randn(3, 4, INPUT).double(), LSTMState(*torch.randn(2, 3, 5).double().requires_grad_())
    lengths = torch.tensor([4, 0, 2])
    found = []
    for kernel in ("cpu", "plain"):
        with choice.use_kernel(kernel):
            outputs, last = layer(frames, lengths, state)
        total = outputs.sum() + last.hidden.square().sum() + last.cell.square().sum()
        found.append([outputs.detach(), *(part.detach() for part in last), *torch.autograd.grad(total, state)])
    assert_near(*found, 1e-12)


@compiles
@every_cell
def test_what_padding_holds_is_never_read(cls: type[LSTMCell]) -> None:
    layer, lengths = bidirectional(cls, cell_norm="both"), torch.tensor([2, 5, 0])
    padding = torch.arange(5) >= lengths.unsqueeze(1)
    clean = torch.randn(3, 5, INPUT)
    found = []
    for frames in (clean, clean.masked_fill(padding.unsqueeze(-1), float("nan"))):
        frames.requires_grad_()
        outputs = layer(frames, lengths)
        d_outputs = torch.ones_like(outputs).masked_fill(padding.unsqueeze(-1), float("nan"))
        grads = torch.autograd.grad(outputs, [frames, *layer.parameters()], d_outputs)
        assert not outputs[padding].any() and not grads[0][padding].any()
        found.append([outputs, *grads])
    assert all(map(torch.equal, *found))


@compiles
@every_cell
def test_results_are_the_same_bit_by_bit_again_and_on_one_thread(cls: type[LSTMCell]) -> None:
    layer, case = bidirectional(cls, 33, cell_norm="both"), (ragged(37, 20), 20, torch.float32)
    threads = torch.get_num_threads()
    found = []
    try:
        for number in (1, 1, 2, 2, 5):
            torch.set_num_threads(number)
            found.append(results(layer, "cpu", *case))
    finally:
        torch.set_num_threads(threads)
    assert all(all(map(torch.equal, found[0], other)) for other in found[1:])


@compiles
@every_cell
def test_without_gradients_the_results_are_the_same(cls: type[LSTMCell]) -> None:
    layer, frames, lengths = bidirectional(cls, cell_norm="state"), torch.randn(4, 6, INPUT), torch.tensor([6, 1, 0, 4])
    with_gradients = layer(frames, lengths)
    with torch.no_grad():
        without = layer(frames, lengths)
    with torch.inference_mode():
        inferred = layer(frames, lengths)
    assert with_gradients.requires_grad and not without.requires_grad
    assert torch.equal(with_gradients, without) and torch.equal(without, inferred)


@compiles
def test_single_precision_is_no_further_off_than_torch() -> None:
    """The same weights in fp32 and in fp64: errors of outputs and of gradients, from many frames.

    `nn.LSTM` and the same layer in torch's operations add up a gradient in different orders; which of the two is
    further off depends on the processor.
    """
    torch.manual_seed(4)
    theirs, lengths = nn.LSTM(INPUT, 64, batch_first=True), torch.full((8,), 150)
    ours = RecurrentLayer(PlainLSTMCell, INPUT, 64)
    with torch.no_grad():
        ours.cell.get_parameter("input_weight").copy_(theirs.weight_ih_l0)
        ours.cell.get_parameter("recurrent_weight").copy_(theirs.weight_hh_l0)
        ours.cell.get_parameter("bias").copy_(theirs.bias_ih_l0 + theirs.bias_hh_l0)
        theirs.bias_ih_l0.copy_(ours.cell.get_parameter("bias"))
        theirs.bias_hh_l0.zero_()
    frames = torch.randn(8, 150, INPUT)

    def found(module: nn.Module, dtype: torch.dtype, *rest: Tensor) -> list[Tensor]:
        outputs, _ = module.to(dtype)(frames.to(dtype), *rest)
        names = ("weight_hh_l0", "bias_ih_l0") if module is theirs else ("cell.recurrent_weight", "cell.bias")
        grads = torch.autograd.grad(outputs.square().sum(), [module.get_parameter(name) for name in names])
        return [part.detach().double() for part in (outputs, *grads)]

    exact = found(ours, torch.float64, lengths)
    of_ours, of_theirs = found(ours, torch.float32, lengths), found(theirs, torch.float32)
    with choice.use_kernel("plain"):
        of_plain = found(ours, torch.float32, lengths)
    for *parts, true in zip(of_ours, of_theirs, of_plain, exact, strict=True):
        error, *theirs_off = (float((part - true).norm() / true.norm()) for part in parts)
        assert error <= 1.5 * max(theirs_off) + 1e-7


@compiles
@every_cell
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_and_automatic_mixed_precision(cls: type[LSTMCell], dtype: torch.dtype) -> None:
    layer, lengths = bidirectional(cls, cell_norm="both"), torch.tensor([4, 3])
    case = lengths, 4, dtype
    exact = results(layer, "plain", lengths, 4, torch.float32)
    ours = results(layer, "cpu", *case)
    assert all(part.dtype == dtype for part in ours)
    assert_near([ours[0].float()], exact[:1], 0.1)
    frames = torch.randn(2, 4, INPUT)
    layer = layer.float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = layer(frames, lengths)
    outputs.sum().backward()
    torch.testing.assert_close(outputs.float(), layer(frames, lengths), rtol=0.1, atol=0.1)
    assert all(parameter.grad is None or parameter.grad.isfinite().all() for parameter in layer.parameters())
