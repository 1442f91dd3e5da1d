"""Tensors of equal values that lie differently in memory."""

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from kernel_cases import CELLS, INPUT
from torch import Tensor, nn

from las.nn.cells.base import LSTMCell, LSTMState
from las.nn.kernels.base import Kernel


def dense(tensor: Tensor) -> Tensor:
    return tensor.clone(memory_format=torch.contiguous_format)


def transposed(tensor: Tensor) -> Tensor:
    """Last axis first in memory."""
    return dense(tensor.movedim(-1, 0)).movedim(0, -1) if tensor.dim() else dense(tensor)


def gaps(tensor: Tensor) -> Tensor:
    """Every third element, as `chunk` and slices leave it."""
    return torch.stack([tensor, tensor.flip(0), tensor], -1)[..., 0]


def every_other_row(tensor: Tensor) -> Tensor:
    """Rows of a larger tensor."""
    return torch.stack([tensor, tensor], 1).flatten(0, 1)[::2]


def columns(tensor: Tensor) -> Tensor:
    """A chunk of a wider tensor."""
    return torch.cat([tensor, tensor, tensor], -1).chunk(3, -1)[1]


def offset(tensor: Tensor) -> Tensor:
    """Dense, from the second element of its memory on."""
    return torch.cat([tensor.flatten()[:1], tensor.flatten()])[-tensor.numel() or 1 :].view(tensor.shape)


def negated(tensor: Tensor) -> Tensor:
    """Dense, but negated only when it is read, as the imaginary part of a conjugate is."""
    return torch._neg_view(-tensor) if tensor.is_floating_point() else dense(tensor)


def expanded(tensor: Tensor) -> Tensor:
    """The first row in place of all, without a copy: other values."""
    return tensor[:1].expand_as(tensor)


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    layout.__name__: layout for layout in (dense, transposed, gaps, every_other_row, columns, offset, negated, expanded)
}


def drawn(seed: int) -> list[str]:
    """Names of layouts for more tensors than a call has."""
    return random.Random(seed).choices(sorted(LAYOUTS), k=48)


Call = Callable[[Sequence[Tensor]], Sequence[Tensor]]
"""What is computed of tensors, gradients included."""


def relaid(tensors: Sequence[Tensor], layouts: Sequence[str]) -> tuple[list[Tensor], list[Tensor]]:
    """The tensors in these layouts, and dense ones of the same values."""
    given = [LAYOUTS[layout](tensor) for tensor, layout in zip(tensors, layouts, strict=False)]
    return given, [dense(tensor) for tensor in given]


class Recurrence(NamedTuple):
    """One cell, or two side by side, from the frames or from the input gates."""

    name: str
    cell_norm: str
    directions: int
    from_frames: bool
    dtype: torch.dtype = torch.float64
    lengths: tuple[int, ...] = (3, 4, 0, 2)

    def cells(self) -> list[LSTMCell]:
        return [CELLS[self.name](INPUT, 5, cell_norm=self.cell_norm).to(self.dtype) for _ in range(self.directions)]

    def tensors(self) -> list[Tensor]:
        """Lengths, then inputs, states, parameters and arriving gradients."""
        torch.manual_seed(3)
        batch, frames, both = len(self.lengths), max(self.lengths), self.directions
        shapes = [
            *[(batch, frames, size) for size in ([INPUT] if self.from_frames else [20] * both)],
            *[(batch, 5)] * (2 * both),
            *[parameter.shape for cell in self.cells() for parameter in cell.parameters()],
            (batch, frames, 5 * both),
            *[(batch, 5)] * (2 * both),
        ]
        return [torch.tensor(self.lengths), *(torch.randn(shape, dtype=self.dtype) for shape in shapes)]

    def by(self, kernel: Kernel, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Outputs, last states, and the gradients of everything."""
        cells, left = self.cells(), iter(tensors)
        lengths = next(left)
        inputs = [next(left).requires_grad_() for _ in range(1 if self.from_frames else len(cells))]
        states = [LSTMState(*(next(left).requires_grad_() for _ in range(2))) for _ in cells]
        for cell in cells:
            for name, _ in [*cell.named_parameters()]:
                setattr(cell, name, nn.Parameter(next(left)))
        given = inputs[0] if self.from_frames else inputs
        outputs, last = (kernel.layer if self.from_frames else kernel.recurrence)(cells, given, lengths, states)
        results = [outputs, *(part for state in last for part in state)]
        parameters = [parameter for cell in cells for parameter in cell.parameters()]
        wanted = [*inputs, *(part for state in states for part in state), *parameters]
        grads = torch.autograd.grad(results, wanted, [*left], allow_unused=True, materialize_grads=True)
        return [part.detach() for part in (*results, *grads)]
