"""Cells that compute all frames at once themselves, by functions of torch: `RecurrentCell.unroll`."""

from collections.abc import Sequence

from torch import Tensor

from las.nn.cells.base import RecurrentCell, State
from las.nn.kernels.base import Cell, Frames, Kernel, Lengths, States, Unrolled, one_by_one
from las.nn.normalisation import mask_of


class TorchKernel(Kernel):
    """The `unroll` of a cell that has one, in each direction: functions of torch over all frames."""

    speed = "all frames at once by functions of torch"

    def unsupported_reason(self, cell: Cell, like: Tensor) -> str:
        reason: str = cell.not_unrolled(like)
        return reason

    def layer(self, cells: Sequence[Cell], frames: Frames, num_frames: Lengths, states: States) -> Unrolled:
        return one_by_one(_unrolled, cells, [frames] * len(cells), num_frames, states)


def _unrolled(
    cell: RecurrentCell, frames: Tensor, num_frames: Tensor, state: State | None = None
) -> tuple[Tensor, State]:
    batch, length, _ = frames.shape
    state = cell.initial_state(batch) if state is None else state
    mask = mask_of(num_frames, length, frames.device)
    padding = ~mask.unsqueeze(-1)
    if not mask.numel():
        return frames.new_zeros(batch, length, cell.output_size), state
    outputs, last = cell.unroll(frames.masked_fill(padding, 0.0), mask, num_frames, state)
    return outputs.masked_fill(padding, 0.0), last
