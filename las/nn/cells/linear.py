"""Base class of cells whose state is a weighted sum: they know decay and update from the frames alone.

h_t = decay_t * h_{t-1} + update_t

All frames are computed by a scan (Blelloch 1990; Martin and Cundy 2018): blocks of frames side by side, then from block
to block. A CPU has one block, whose steps are whole rows; elsewhere there are about as many blocks as frames in each.
"""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from las.nn.cells.base import Frames, Gates, Hidden, HiddenState, Lengths, Mask, RecurrentCell, reached

Steps = Float[Tensor, "batch frames hidden"]
"""Numbers for each unit and frame."""


class LinearCell(RecurrentCell):
    """A cell that is linear in its state; a subclass defines `coefficients`, and `input_gates` for them."""

    def coefficients(self, input_gates: Gates) -> tuple[Hidden, Hidden]:
        """Return the decay, from 0 to 1, and the update of the state, each [..., H]."""
        raise TypeError(f"{type(self).__name__} must define coefficients")

    def step(self, input_gates: Gates, state: HiddenState) -> HiddenState:
        decay, update = self.coefficients(input_gates)
        return HiddenState(decay * state.hidden + update)

    def not_unrolled(self, like: Tensor) -> str:
        return ""

    def unroll(self, frames: Frames, mask: Mask, num_frames: Lengths, state: HiddenState) -> tuple[Hidden, HiddenState]:
        decay, update = self.coefficients(self.padded_input_gates(frames, mask))
        dtype = torch.promote_types(decay.dtype, state.hidden.dtype)
        hidden = linear_scan(decay.to(dtype), update.to(dtype), state.hidden.to(dtype))
        return hidden, HiddenState(reached(state.hidden.to(dtype), hidden, num_frames))


class _LinearScan(torch.autograd.Function):
    """`linear_scan`; its gradients are a scan from the last frame to the first."""

    @staticmethod
    def forward(ctx: Any, decay: Tensor, update: Tensor, first: Tensor, blocks: int) -> Tensor:
        states = _scanned(decay, update, first, blocks)
        ctx.blocks = blocks
        ctx.save_for_backward(decay, first, states)
        return states

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        decay, first, states = ctx.saved_tensors
        following = functional.pad(decay[:, 1:], (0, 0, 0, 1)).flip(1)
        arriving = linear_scan(following, grads[0].flip(1), torch.zeros_like(first), ctx.blocks).flip(1)
        before = torch.cat([first.unsqueeze(1), states[:, :-1]], dim=1)
        return arriving * before, arriving, arriving[:, 0] * decay[:, 0], None


def linear_scan(decay: Steps, update: Steps, first: Float[Tensor, "batch hidden"], blocks: int = 0) -> Steps:
    """Return decay_t * h_{t-1} + update_t for all frames, from h_0 = `first`.

    Args:
        blocks: into how many the frames are divided; 0 for those of the device.
    """
    if not blocks:
        blocks = 1 if decay.device.type == "cpu" else math.isqrt(decay.shape[1])
    states: Tensor = _LinearScan.apply(decay, update, first, blocks)
    return states


def _scanned(decay: Tensor, update: Tensor, first: Tensor, blocks: int) -> Tensor:
    batch, frames, size = decay.shape
    length = -(-frames // blocks)
    if blocks * length > frames:
        decay, update = (functional.pad(part, (0, 0, 0, blocks * length - frames)) for part in (decay, update))
    decay, update = (part.view(batch, blocks, length, size) for part in (decay, update))
    # Each block as if the state before it were zero, but for the first, and what becomes of a state before it.
    states, kept = torch.empty_like(update), torch.empty_like(decay) if blocks > 1 else None
    before = functional.pad(first.unsqueeze(1), (0, 0, 0, blocks - 1))
    for step in range(length):
        before = torch.addcmul(update[:, :, step], decay[:, :, step], before, out=states[:, :, step])
        if kept is not None:
            last = kept[:, :, step - 1] if step else torch.ones_like(before)
            torch.mul(last, decay[:, :, step], out=kept[:, :, step])
    if kept is not None:
        for block in range(1, blocks):
            states[:, block].addcmul_(kept[:, block], states[:, block - 1, -1:])
    return states.view(batch, -1, size)[:, :frames]
