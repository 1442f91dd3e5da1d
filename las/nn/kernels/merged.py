"""Projected LSTMs as plain LSTMs of what is not projected yet: U (P h) = (U P) h.

The recurrence of h with the one matrix U P [4H, H] takes more operations than that of P h, but there is compiled code
for it, and P h of all frames is one large product.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from las.nn.cells.base import LSTMState, reached
from las.nn.cells.lstm import PlainLSTMCell
from las.nn.cells.projected_lstm import ProjectedLSTMCell
from las.nn.kernels.base import Cell, Frames, Kernel, Lengths, States, Unrolled, twice_differentiable, with_parameters


class MergedKernel(Kernel):
    """A projected LSTM by a kernel of plain ones.

    Args:
        find: returns the kernel that computes a plain LSTM on a tensor's device and type, or why there is none.
    """

    speed = "the hand-written code of plain LSTMs for the matrix U P"

    def __init__(self, find: Callable[[PlainLSTMCell, Tensor], Kernel | str]) -> None:
        self.find = find

    def unsupported_reason(self, cell: Cell, like: Tensor) -> str:
        if type(cell) is not ProjectedLSTMCell:
            return "it projects nothing"
        found = self.find(_plain(cell, cell.input_size), like)
        return found if isinstance(found, str) else ""

    def layer(self, cells: Sequence[Cell], frames: Frames, num_frames: Lengths, states: States) -> Unrolled:
        first = [state or cell.initial_state(len(frames)) for cell, state in zip(cells, states, strict=True)]
        given = any(state is not None for state in states)
        # U times the first P h is added to W x of the first frame: columns that are zero in all other frames.
        columns = _at_first_frames(first, frames, num_frames) if given else []
        padded = torch.cat([frames, *columns], -1)
        plain = [_plain(cell, padded.shape[-1]) for cell in cells]
        tensors = [
            tensor
            for number in range(len(cells))
            for tensor in _merged(cells[number], plain[number], number, len(columns))
        ]
        memories = [LSTMState(torch.zeros_like(state.cell), state.cell) for state in first]
        hidden, last = with_parameters(plain, tensors, self._compute, padded, num_frames, memories)
        outputs = [
            functional.linear(part, cell.projection_weight)
            for part, cell in zip(hidden.chunk(len(cells), -1), cells, strict=True)
        ]
        ends = [num_frames, num_frames.clamp(max=1)]  # the second direction ends at the first frame
        return torch.cat(outputs, -1), [
            LSTMState(reached(state.hidden, part, end), memory.cell)
            for state, part, end, memory in zip(first, outputs, ends, last, strict=False)
        ]

    def _compute(self, cells: Sequence[PlainLSTMCell], frames: Tensor, num_frames: Tensor, states: States) -> Unrolled:
        kernel = self.find(cells[0], frames)
        assert isinstance(kernel, Kernel), kernel  # `unsupported_reason` has asked
        return twice_differentiable(cells, frames, num_frames, states, kernel.layer(cells, frames, num_frames, states))


def _plain(cell: ProjectedLSTMCell, input_size: int) -> PlainLSTMCell:
    """Return a plain LSTM with the options of a projected one, without memory for its parameters."""
    options = {"cell_norm": cell.cell_norm, "norm": cell.norm, "forget_bias": cell.forget_bias, "eps": cell.eps}
    with torch.device("meta"):
        return PlainLSTMCell(input_size, cell.hidden_size, **options).to(cell.bias.dtype)


def _merged(cell: ProjectedLSTMCell, plain: PlainLSTMCell, number: int, num_columns: int) -> list[Tensor]:
    """Return the tensors of the plain LSTM; W reads the columns of its own direction."""
    with torch.autocast(cell.bias.device.type, enabled=False):
        merged = {"recurrent_weight": cell.recurrent_weight @ cell.projection_weight}
    others = torch.zeros_like(cell.recurrent_weight)
    columns = [cell.recurrent_weight if place == number else others for place in range(num_columns)]
    merged["input_weight"] = torch.cat([cell.input_weight, *columns], -1)
    return [merged[name] if name in merged else cell.get_parameter(name) for name, _ in plain.named_parameters()]


def _at_first_frames(first: Sequence[LSTMState], frames: Tensor, num_frames: Tensor) -> list[Tensor]:
    """Return the first P h of each direction at the frame that it reads first, [batch, frames, P], zero elsewhere."""
    lengths, places = num_frames.to(frames.device), torch.arange(frames.shape[1], device=frames.device)
    starts = [torch.zeros_like(lengths), lengths - 1]
    return [
        torch.where((places == start.unsqueeze(-1)).unsqueeze(-1), state.hidden.unsqueeze(1), 0.0)
        for state, start in zip(first, starts, strict=False)
    ]
