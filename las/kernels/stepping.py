"""One cell whose input is only known step by step: the loops of `las.kernels.passes`, with the input side in them."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from las.cells.base import NUM_GATES, LSTMState
from las.kernels import passes
from las.kernels.equations import Norm
from las.kernels.packing import Buffer, Room, RoomForOne
from las.kernels.passes import Parameters, Plan


class Side(NamedTuple):
    """What a cell makes of its input: known + W below, or the layer norm of that where there is a gain."""

    known: Float[Tensor, "batch steps gates"]
    weight: Float[Tensor, "gates below"]
    gain: Tensor | None
    offset: Tensor | None


class Layer:
    """One cell: `forward` for each step, `end`, `begin`, `backward` for each step from the last, `totals`."""

    def __init__(self, plan: Plan, side: Side, parameters: Parameters, recording: bool) -> None:
        packing, (_, self.num_steps, width) = plan.packing, side.known.shape
        self.plan, self.side, self.parameters = plan, side, Parameters.side_by_side([parameters])
        self.norm: Norm | None = None
        if side.gain is not None and side.offset is not None:
            self.norm = Norm(side.gain.view(1, 1, -1), side.offset.view(1, 1, -1), plan.eps)
        self.raw = side.known.new_empty(1, packing.positions.shape[1], width)  # known + W below
        packing.pack(side.known, self.raw)
        self.below = self.raw.new_empty(*self.raw.shape[:2], side.weight.shape[1])
        inputs = self.raw if self.norm is None else torch.empty_like(self.raw)
        self.raws, self.belows, self.inputs = map(packing.steps, (self.raw, self.below, inputs))
        self.transposed = side.weight.t().contiguous()
        self.zeros = self.raw.new_zeros(1, len(packing.order), width // NUM_GATES)
        room = (Room if recording else RoomForOne)(packing, self.raw)
        pieces = (Buffer(step, [step]) for step in self.inputs)
        self.steps = passes.forward(plan, pieces, LSTMState(self.zeros, self.zeros), self.parameters, room)

    def feed(self, step: int, known: Tensor) -> None:
        """Replace what is known of a step that was not computed yet."""
        self.raws[step][0].copy_(known)

    def forward(self, step: int, below: Tensor) -> Tensor:
        """h of this step."""
        self.raws[step][0].addmm_(below, self.transposed)
        self.belows[step][0].copy_(below)
        if self.norm is not None:
            self.norm.forward(self.raws[step], self.inputs[step])
        return next(self.steps)[0]

    def end(self) -> None:
        """Called after the last step."""
        self.trace = passes.finish(self.steps)
        self.hidden = self.plan.packing.after(self.trace.hidden)

    def begin(self, d_hidden: Tensor) -> None:
        """Prepare the backward pass, from the gradients [B, U, H] that reach h from outside the loop."""
        packing, zeros = self.plan.packing, self.zeros
        arriving = passes.arriving(packing, d_hidden, LSTMState(zeros, zeros))
        self.d_hidden = packing.steps(packing.after(arriving))
        self.d_raw = torch.empty_like(self.raw)
        self.d_raws = packing.steps(self.d_raw)
        if self.norm is not None:
            self.norm = Norm(self.norm.gain, self.norm.bias, self.norm.eps, self.norm.means, self.norm.scales)
        num_inputs = self.raw.shape[1]
        self.back = passes.backward(self.plan, self.parameters, self.trace, num_inputs, arriving, zeros.clone())

    def backward(self, step: int, d_hidden: Tensor) -> Tensor:
        """The gradient of what is below from one more gradient of h."""
        self.d_hidden[step][0].add_(d_hidden)
        grads = next(self.back)
        if self.norm is not None:
            grads = self.norm.backward(step, grads, self.raws[step])
        return torch.mm(self.d_raws[step].copy_(grads)[0], self.side.weight)

    def totals(self) -> tuple[Tensor | None, ...]:
        """Gradients of the side and of the parameters."""
        packing, gradients = self.plan.packing, passes.finish(self.back)
        of_norm: tuple[Tensor | None, Tensor | None] = None, None
        if self.norm is not None:
            d_inputs = gradients.inputs[:, packing.positions[0]]
            self.norm.collect(slice(None), d_inputs, self.raw)
            of_norm = self.norm.d_gain.flatten(), self.norm.d_bias.flatten()
        of_cell = (None if part is None else part.squeeze(0) for part in gradients[3:])
        return packing.unpack(self.d_raw), self.d_raw[0].t() @ self.below[0], *of_norm, *of_cell
