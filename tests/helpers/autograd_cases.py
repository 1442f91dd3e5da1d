"""Cells, frames and states for the tests of kernels, and what two ways of computing them have in common."""

from typing import Any

import torch
from kernel_cases import CELLS, INPUT, unrolled
from torch import Tensor

from las.nn.cells.base import LSTMCell, LSTMState
from las.nn.cells.ln_global import LNGlobalLSTMCell

HIDDEN, FRAMES = 5, 6


def make(name: str, dtype: torch.dtype = torch.float64, **options: Any) -> LSTMCell:
    """Every parameter moved away from where it starts."""
    torch.manual_seed(1)
    cell = CELLS[name](INPUT, HIDDEN, **options)
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.add_(0.4 * torch.randn_like(parameter))
    return cell.to(dtype)


def material(dtype: torch.dtype = torch.float64, frames: int = FRAMES) -> tuple[Tensor, LSTMState]:
    generator = torch.Generator().manual_seed(2)
    gates = torch.randn(4, frames, 4 * HIDDEN, generator=generator, dtype=torch.float64)
    h, c = torch.randn(2, 4, HIDDEN, generator=generator, dtype=torch.float64)
    gates, h, c = (part.to(dtype).requires_grad_() for part in (gates, h, c))
    return gates, LSTMState(h, c)


def results(kernel: Any, cell: LSTMCell, lengths: list[int], given: Tensor, state: LSTMState | None) -> list[Tensor]:
    """Outputs and last state, then the gradient of a random sum of them towards everything that was given."""
    outputs, last = unrolled(kernel, cell, given, torch.tensor(lengths), state)
    generator = torch.Generator().manual_seed(3)
    found = [outputs, *last]
    weights = [torch.randn(part.shape, generator=generator, dtype=torch.float64).to(part.dtype) for part in found]
    total = sum((part * weight).sum() for part, weight in zip(found, weights, strict=True))
    wanted = [given, *(state or ()), *cell.parameters()]
    grads = torch.autograd.grad(total, wanted, allow_unused=True, materialize_grads=True)
    return [part.detach() for part in [*found, *grads]]


def assert_near(actual: list[Tensor], expected: list[Tensor], tolerance: float) -> None:
    """Relative to the largest entry of each tensor."""
    for one, other in zip(actual, expected, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        bound = tolerance * float(other.abs().max()) if other.numel() else 0.0
        torch.testing.assert_close(one, other, rtol=0, atol=bound)


class Doubled(LNGlobalLSTMCell):
    """A subclass with another equation."""

    def gates(self, input_gates: Tensor, hidden: Tensor) -> Tensor:
        return 2 * super().gates(input_gates, hidden)
