"""One cell whose input is only known step by step: the loops of `las.kernels.passes`, with the input side in them."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from las.cells.base import NUM_GATES, LSTMState
from las.kernels import passes
from las.kernels.equations import Norm
from las.kernels.packing import Buffer
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
        self.plan, self.side, self.parameters = plan, side, parameters
        self.norm = None if side.gain is None or side.offset is None else Norm(side.gain, side.offset, plan.eps)
        self.raw = packing.pack(side.known)  # known + W below
        self.below = self.raw.new_empty(len(self.raw), side.weight.shape[1])
        inputs = self.raw if self.norm is None else torch.empty_like(self.raw)
        self.raws, self.belows, self.inputs = map(packing.steps, (self.raw, self.below, inputs))
        self.transposed = side.weight.t().contiguous()
        self.zeros = self.raw.new_zeros(len(packing.order), width // NUM_GATES)
        rows, cut = (len(self.raw), packing.steps) if recording else (len(self.zeros), packing.living)
        scratch = Buffer(self.raw.new_empty(rows, width), cut)
        self.steps = passes.forward(plan, inputs, LSTMState(self.zeros, self.zeros), parameters, scratch)

    def feed(self, step: int, known: Tensor) -> None:
        """Replace what is known of a step that was not computed yet."""
        self.raws[step].copy_(known)

    def forward(self, step: int, below: Tensor) -> Tensor:
        """h of this step."""
        raw = self.raws[step].addmm_(below, self.transposed)
        self.belows[step].copy_(below)
        if self.norm is not None:
            self.inputs[step].copy_(self.norm.forward(raw))
        return next(self.steps)

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
        self.back = passes.backward(self.plan, self.parameters, self.trace, self.num_steps, arriving, zeros.clone())

    def backward(self, step: int, d_hidden: Tensor) -> Tensor:
        """The gradient of what is below from one more gradient of h."""
        self.d_hidden[step].add_(d_hidden)
        grads = next(self.back)
        if self.norm is not None:
            grads = self.norm.backward(step, grads, self.raws[step])
        return torch.mm(self.d_raws[step].copy_(grads), self.side.weight)

    def totals(self) -> tuple[Tensor | None, ...]:
        """Gradients of the side and of the parameters."""
        packing, gradients = self.plan.packing, passes.finish(self.back)
        of_norm: tuple[Tensor | None, Tensor | None] = None, None
        if self.norm is not None:
            self.norm.collect(slice(None), packing.pack(gradients.inputs), self.raw)
            of_norm = self.norm.d_gain, self.norm.d_bias
        d_known = packing.unpack(self.d_raw, self.num_steps)
        return d_known, self.d_raw.t() @ self.below, *of_norm, *gradients[3:]
