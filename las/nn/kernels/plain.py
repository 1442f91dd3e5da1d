"""The plain kernel, the reference of all others: the cell's own equations, frame by frame.

Padded frames never touch a state, an output or a gradient.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from las.nn.cells.base import LSTMCell, LSTMState
from las.nn.kernels.base import (
    Frames,
    InputGates,
    Lengths,
    States,
    Unrolled,
    input_gates,
    one_by_one,
    values_are_unknown,
)
from las.nn.masking import mask_of


def unroll(
    cell: LSTMCell,
    input_gates: Float[Tensor, "batch frames gates"],
    num_frames: Int[Tensor, "batch"],
    state: LSTMState | None = None,
) -> tuple[Float[Tensor, "batch frames hidden"], LSTMState]:
    """One cell over padded frames.

    Args:
        input_gates: `cell.input_gates` of all frames, [batch, frames, 4H].
        num_frames: true lengths, [batch]; frames from there on are padding.
        state: the initial state, [batch, H]; zeros by default.

    Returns:
        Outputs [batch, frames, H], zero in padding, and the state after each row's last true frame.

    >>> import las, torch
    >>> cell, frames = las.LNJoinedLSTMCell(80, 256), torch.randn(2, 50, 80)
    >>> outputs, last = las.unroll(cell, cell.input_gates(frames), num_frames=torch.tensor([50, 31]))
    >>> outputs.shape, last.hidden.shape
    (torch.Size([2, 50, 256]), torch.Size([2, 256]))
    >>> torch.equal(last.hidden[1], outputs[1, 30]), outputs[1, 31:].any()
    (True, tensor(False))
    """
    batch, frames, _ = input_gates.shape
    state = cell.initial_state(batch) if state is None else state
    mask = mask_of(num_frames, frames, input_gates.device)
    # No frame is padding up to the shortest length, so the select below is skipped.
    always_true = int(num_frames.min()) if batch and not values_are_unknown() else 0
    outputs = []
    for frame, gates in enumerate(input_gates.unbind(1)):
        new_state = cell.padded_step(gates, state, frame, mask[:, frame])
        if frame >= always_true:
            keep = mask[:, frame].unsqueeze(-1)
            new_state = LSTMState(
                torch.where(keep, new_state.hidden, state.hidden), torch.where(keep, new_state.cell, state.cell)
            )
        outputs.append(new_state.hidden)
        state = new_state
    if not outputs:
        return input_gates.new_zeros(batch, 0, cell.hidden_size), state
    return torch.stack(outputs, dim=1).masked_fill(~mask.unsqueeze(-1), 0.0), state


def recurrence(cells: Sequence[LSTMCell], input_gates: InputGates, num_frames: Lengths, states: States) -> Unrolled:
    """The plain kernel (`las.nn.kernels.base.Kernel`): `unroll` in each direction."""
    return one_by_one(unroll, cells, input_gates, num_frames, states)


def layer(cells: Sequence[LSTMCell], frames: Frames, num_frames: Lengths, states: States) -> Unrolled:
    """`recurrence` from the frames themselves, whose padding may hold anything."""
    return recurrence(cells, [input_gates(cell, frames, num_frames) for cell in cells], num_frames, states)


def unsupported_reason(cell: LSTMCell, input_gates: Tensor) -> str:
    """An empty reason: the plain recurrence computes every cell on every device."""
    return ""
