"""The interface of kernels, and what those have in common that compute one direction after the other."""

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from las.nn.cells.base import LSTMCell, LSTMState
from las.nn.masking import mask_of, reverse

Frames = Float[Tensor, "batch frames input"]
"""Padded frames of a layer."""

InputGates = Sequence[Float[Tensor, "batch frames gates"]]
"""`input_gates` of all frames, [batch, frames, 4H], for each direction and in the order of the frames."""

Lengths = Int[Tensor, "batch"]
"""True lengths, [batch]; frames from there on are padding."""

States = Sequence[LSTMState | None]
"""The initial state of each direction, [batch, H]; None for zeros."""


def values_are_unknown() -> bool:
    """True while a program is traced (torch.compile, torch.export) or vectorised (torch.func)."""
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()


Unrolled = tuple[Float[Tensor, "batch frames outputs"], list[LSTMState]]
"""Outputs [batch, frames, directions * H], zero in padding, and the last state of each direction, [batch, H]."""


@runtime_checkable
class Kernel(Protocol):
    """A way to compute the recurrence: a module with `recurrence` and `unsupported_reason`."""

    def unsupported_reason(self, cell: LSTMCell, input_gates: Tensor) -> str:
        """The reason why it cannot compute this cell on this tensor's device and type; empty if it can."""

    def recurrence(
        self, cells: Sequence[LSTMCell], input_gates: InputGates, num_frames: Lengths, states: States
    ) -> Unrolled:
        """One cell over padded frames, or two of one class and size side by side.

        The second reads each row from its true end; its last state is that after the row's first frame.
        """


@runtime_checkable
class LayerKernel(Kernel, Protocol):
    """A kernel that also computes from the frames themselves, so that W x and its norm are part of it."""

    def layer(self, cells: Sequence[LSTMCell], frames: Frames, num_frames: Lengths, states: States) -> Unrolled:
        """`input_gates` of every cell and `recurrence`."""


def input_gates(cell: LSTMCell, frames: Frames, num_frames: Lengths) -> Float[Tensor, "batch frames gates"]:
    """The contribution of the frames to the gates of a cell, [batch, frames, 4H], whatever padding holds."""
    # Padding is set to zero first: whatever it holds (even NaN) would otherwise reach the gradient of W as 0 * NaN.
    mask = mask_of(num_frames, frames.shape[1], frames.device)
    return cell.padded_input_gates(frames.masked_fill(~mask.unsqueeze(-1), 0.0), mask)


def side_by_side(cells: Sequence[LSTMCell], states: States, batch: int) -> LSTMState:
    """The initial states of all directions as one, [directions, batch, H]."""
    given = [cell.initial_state(batch) if state is None else state for cell, state in zip(cells, states, strict=True)]
    return LSTMState(*(torch.stack(parts) for parts in zip(*given, strict=True)))


def one_by_one(
    unroll: Callable[[LSTMCell, Tensor, Tensor, LSTMState | None], tuple[Tensor, LSTMState]],
    cells: Sequence[LSTMCell],
    input_gates: InputGates,
    num_frames: Lengths,
    states: States,
) -> Unrolled:
    """The `recurrence` of a kernel that unrolls a single cell."""
    outputs, last = unroll(cells[0], input_gates[0], num_frames, states[0])
    if len(cells) == 1:
        return outputs, [last]
    backwards, first = unroll(cells[1], reverse(input_gates[1], num_frames), num_frames, states[1])
    return torch.cat([outputs, reverse(backwards, num_frames)], dim=-1), [last, first]
