"""The recurrence as one operation of torch's graphs, for programs that run without this package (`las.programs`).

A loop in Python would be written out frame by frame, for one length only; this is one node for any number of frames.
It is not fast by itself, and is chosen by name alone.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch._higher_order_ops.scan import scan

from las.cells.base import LSTMCell, LSTMState
from las.masking import mask_of, reverse


def refuses(cell: LSTMCell, input_gates: Tensor) -> str:
    """Cells that ask which frame it is, or which others are padding, have no step of their own."""
    if type(cell).padded_step is not LSTMCell.padded_step:
        return "its step is another at every frame"
    return ""


def unroll(
    cell: LSTMCell,
    input_gates: Float[Tensor, "batch frames gates"],
    num_frames: Int[Tensor, "batch"],
    state: LSTMState | None = None,
) -> tuple[Float[Tensor, "batch frames hidden"], LSTMState]:
    """As `las.recurrent.unroll`."""
    batch, frames, _ = input_gates.shape
    state = cell.initial_state(batch) if state is None else state
    mask = mask_of(num_frames, frames)

    def step(before: tuple[Tensor, Tensor], row: tuple[Tensor, Tensor]) -> tuple[tuple[Tensor, Tensor], Tensor]:
        gates, keep = row[0], row[1].unsqueeze(-1)
        after = cell.step(gates, LSTMState(*before))
        kept = torch.where(keep, after.hidden, before[0]), torch.where(keep, after.cell, before[1])
        return kept, after.hidden.masked_fill(~keep, 0.0)

    # Inputs of the loop must be tensors of their own, their first dimension the frames.
    rows = input_gates.transpose(0, 1).contiguous(), mask.transpose(0, 1).contiguous()
    last, outputs = scan(step, (state.hidden.clone(), state.cell.clone()), rows)
    return outputs.transpose(0, 1), LSTMState(*last)


def unroll_both(
    cells: Sequence[LSTMCell],
    input_gates: Sequence[Float[Tensor, "batch frames gates"]],
    num_frames: Int[Tensor, "batch"],
) -> Float[Tensor, "batch frames both"]:
    """As `las.recurrent.unroll_both`."""
    forwards, _ = unroll(cells[0], input_gates[0], num_frames)
    backwards, _ = unroll(cells[1], reverse(input_gates[1], num_frames), num_frames)
    return torch.cat([forwards, reverse(backwards, num_frames)], dim=-1)
