"""Cells over time: unroll one over padded frames, run two in opposite directions, stack layers.

`unroll` is the plain reference of the recurrence and `recurrence` the fastest form of it. Padded frames never touch a
state, an output or a gradient.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from las.cells.base import LSTMCell, LSTMState
from las.errors import ConfigError, suggest
from las.kernels import autograd
from las.masking import mask_of, reverse

CellFactory = Callable[[int, int], LSTMCell]
"""Makes a cell from (input_size, hidden_size): a `functools.partial` that the config built."""


def unroll(
    cell: LSTMCell,
    input_gates: Float[Tensor, "batch frames gates"],
    num_frames: Int[Tensor, "batch"],
    state: LSTMState | None = None,
) -> tuple[Float[Tensor, "batch frames hidden"], LSTMState]:
    """One cell over padded frames.

    Args:
        input_gates: what `cell.input_gates` made of all frames, [batch, frames, 4H].
        num_frames: true lengths, [batch]; frames from there on are padding.
        state: where to start, zeros by default; [batch, H].

    Returns:
        Outputs [batch, frames, H], zero in padding, and the state after each row's last true frame.
    """
    batch, frames, _ = input_gates.shape
    state = cell.initial_state(batch) if state is None else state
    mask = mask_of(num_frames, frames)
    # Up to the shortest row nothing is padding and the select below would only cost time.
    always_true = int(num_frames.min()) if batch else 0
    outputs = []
    for frame, gates in enumerate(input_gates.unbind(1)):
        after = cell.step(gates, state)
        if frame >= always_true:
            keep = mask[:, frame].unsqueeze(-1)
            after = LSTMState(torch.where(keep, after.hidden, state.hidden), torch.where(keep, after.cell, state.cell))
        outputs.append(after.hidden)
        state = after
    if not outputs:
        return input_gates.new_zeros(batch, 0, cell.hidden_size), state
    return torch.stack(outputs, dim=1).masked_fill(~mask.unsqueeze(-1), 0.0), state


KERNELS = ("autograd", "plain")

_kernel = ContextVar("kernel", default="autograd")


@contextmanager
def using(kernel: str) -> Iterator[None]:
    """Within it, layers compute their recurrence with this one of `KERNELS`: to compare, or to look for a fault."""
    if kernel not in KERNELS:
        raise ConfigError(f"The kernel {kernel!r} does not exist.{suggest(kernel, KERNELS)}")
    token = _kernel.set(kernel)
    try:
        yield
    finally:
        _kernel.reset(token)


def recurrence(
    cell: LSTMCell,
    input_gates: Float[Tensor, "batch frames gates"],
    num_frames: Int[Tensor, "batch"],
    state: LSTMState | None = None,
) -> tuple[Float[Tensor, "batch frames hidden"], LSTMState]:
    """`unroll` by a kernel if one computes this cell, else the plain one."""
    if _kernel.get() == "autograd" and autograd.applies(cell):
        return autograd.unroll(cell, input_gates, num_frames, state)
    return unroll(cell, input_gates, num_frames, state)


class RecurrentLayer(nn.Module):
    """One cell over all frames, left to right."""

    def __init__(self, cell: CellFactory, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.cell = cell(input_size, hidden_size)
        self.output_size = hidden_size

    def forward(
        self,
        frames: Float[Tensor, "batch frames input"],
        num_frames: Int[Tensor, "batch"],
        state: LSTMState | None = None,
    ) -> tuple[Float[Tensor, "batch frames hidden"], LSTMState]:
        """[batch, frames, input_size] to outputs [batch, frames, H] (zero in padding) and the last state."""
        # Padding is set to zero first: whatever it holds (even NaN) would otherwise reach the gradient of W as 0 * NaN.
        mask = mask_of(num_frames, frames.shape[1])
        frames = frames.masked_fill(~mask.unsqueeze(-1), 0.0)
        return recurrence(self.cell, self.cell.input_gates(frames), num_frames, state)


class BidirectionalLayer(nn.Module):
    """Two cells with their own parameters, one reading each row from its true end (Schuster & Paliwal 1997)."""

    def __init__(self, cell: CellFactory, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.forwards = RecurrentLayer(cell, input_size, hidden_size)
        self.backwards = RecurrentLayer(cell, input_size, hidden_size)
        self.output_size = 2 * hidden_size

    def forward(
        self, frames: Float[Tensor, "batch frames input"], num_frames: Int[Tensor, "batch"]
    ) -> Float[Tensor, "batch frames output"]:
        """[batch, frames, input_size] to [batch, frames, 2H]: forwards then backwards, zero in padding."""
        forwards, _ = self.forwards(frames, num_frames)
        backwards, _ = self.backwards(reverse(frames, num_frames), num_frames)
        return torch.cat([forwards, reverse(backwards, num_frames)], dim=-1)
