"""Layers by the compiled kernel, from the frames themselves, equal those by the plain one."""

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
from las.nn.rnn import BidirectionalLayer

CELLS = [PlainLSTMCell, LNGlobalLSTMCell, LNJoinedLSTMCell, LNPerGateLSTMCell]
INPUT = 6

pytestmark = compiles
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


@every_cell
@pytest.mark.parametrize("hidden", [1, 3, 5, 17, 130])
def test_sizes_that_fill_no_vector(cls: type[LSTMCell], hidden: int) -> None:
    # Of a layer norm over a single value only the bias is left.
    layer = bidirectional(cls, hidden, cell_norm="both", eps=1e-3)
    for dtype, tolerance in [(torch.float64, 1e-11), (torch.float32, 1e-3)]:
        case = ragged(7, 5), 5, dtype
        assert_near(results(layer, "cpu", *case), results(layer, "plain", *case), tolerance)


@pytest.mark.parametrize("batch", [0, 1, 2, 6, 7, 13, 16, 17, 40])
@pytest.mark.parametrize("frames", [1, 9])
def test_any_number_of_rows_and_frames(batch: int, frames: int) -> None:
    layer = bidirectional(LNGlobalLSTMCell, cell_norm="output")
    case = ragged(batch, frames), frames, torch.float64
    assert_near(results(layer, "cpu", *case), results(layer, "plain", *case), 1e-11)


@every_cell
def test_no_frames_leave_the_state(cls: type[LSTMCell]) -> None:
    layer, state = bidirectional(cls, cell_norm="both"), LSTMState(*torch.randn(2, 3, 5))
    outputs, last = layer.forwards(torch.zeros(3, 0, INPUT), torch.zeros(3, dtype=torch.long), state)
    assert outputs.shape == (3, 0, 5) and all(map(torch.equal, last, state))


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
