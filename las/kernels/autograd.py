"""The recurrence with its backward pass written by hand: any device, nothing to compile.

One `torch.autograd.Function` instead of a graph of a dozen nodes per frame, on packed frames: padding costs nothing and
needs no mask. The mathematics is in `las.kernels.passes` and `las.kernels.equations`.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from las.cells.base import NUM_GATES, LSTMCell, LSTMState
from las.cells.ln_global import LNGlobalLSTMCell
from las.cells.ln_joined import LNJoinedLSTMCell
from las.cells.ln_per_gate import LNPerGateLSTMCell
from las.cells.lstm import PlainLSTMCell
from las.kernels import equations, passes
from las.kernels.packing import Buffer, Packing, packing_of
from las.kernels.passes import Parameters, Plan, Trace
from las.masking import reverse


class Form(NamedTuple):
    """How a class of cells makes its gates, and the names of its norm's parameters."""

    gates: type[equations.Gates]
    norm: type[equations.Norm] = equations.Norm
    gain: str = ""
    bias: str = ""


FORMS: dict[type[LSTMCell], Form] = {
    PlainLSTMCell: Form(equations.Gates),
    LNGlobalLSTMCell: Form(equations.GatesApart, equations.Norm, "recurrent_gain", "recurrent_bias"),
    LNJoinedLSTMCell: Form(equations.GatesJoined, equations.Norm, "gain", "bias"),
    LNPerGateLSTMCell: Form(equations.GatesJoined, equations.NormPerGate, "gain", "bias"),
}

MEMORIES: dict[str, type[equations.Memory]] = {
    "none": equations.Memory,
    "output": equations.MemorySeenNormalised,
    "state": equations.MemoryCarriedNormalised,
    "both": equations.MemoryNormalised,
}


def refuses(cell: LSTMCell, input_gates: Tensor) -> str:
    """Why `unroll` does not compute this cell: it knows classes exactly, a subclass may change the equations."""
    return "" if type(cell) in FORMS else "its equations are not among those written by hand"


def unroll(
    cell: LSTMCell,
    input_gates: Float[Tensor, "batch frames gates"],
    num_frames: Int[Tensor, "batch"],
    state: LSTMState | None = None,
) -> tuple[Float[Tensor, "batch frames hidden"], LSTMState]:
    """One cell over padded frames: `las.recurrent.unroll` for the cells that it does not refuse.

    Half-precision tensors are computed in fp32 and come back in their own type. There is no second derivative.

    Args:
        input_gates: what `cell.input_gates` made of all frames, [batch, frames, 4H].
        num_frames: true lengths, [batch]; frames from there on are padding.
        state: where to start, zeros by default; [batch, H].

    Returns:
        Outputs [batch, frames, H], zero in padding, and the state after each row's last true frame.
    """
    batch, frames, _ = input_gates.shape
    state = cell.initial_state(batch) if state is None else state
    if not frames:
        return input_gates.new_zeros(batch, 0, cell.hidden_size), state
    parameters = parameters_of(cell)
    if parameters.gain is None and cell.forget_bias:
        input_gates = input_gates + forget_bias(cell).flatten()
    tensors = [input_gates, *state, *parameters]
    own = reduce(torch.promote_types, (tensor.dtype for tensor in tensors if tensor is not None))
    wide = torch.promote_types(own, torch.float32)
    tensors = [tensor if tensor is None else tensor.to(wide) for tensor in tensors]
    plan = plan_of(cell, packing_of(num_frames, frames), own)
    needs_gradient = any(tensor is not None and tensor.requires_grad for tensor in tensors)
    function = Recurrence.apply if needs_gradient and torch.is_grad_enabled() else _infer
    with torch.autocast(input_gates.device.type, enabled=False):
        outputs, *last = function(plan, *tensors)
    return outputs.to(own), LSTMState(*(part.to(own) for part in last))


def unroll_both(
    cells: Sequence[LSTMCell],
    input_gates: Sequence[Float[Tensor, "batch frames gates"]],
    num_frames: Int[Tensor, "batch"],
) -> Float[Tensor, "batch frames both"]:
    """Two cells side by side, the second from each row's true end: `las.recurrent.unroll_both`."""
    forwards, _ = unroll(cells[0], input_gates[0], num_frames)
    backwards, _ = unroll(cells[1], reverse(input_gates[1], num_frames), num_frames)
    return torch.cat([forwards, reverse(backwards, num_frames)], dim=-1)


class Recurrence(torch.autograd.Function):
    """(plan, inputs, hidden, cell, *Parameters) to (outputs, last hidden, last cell)."""

    @staticmethod
    def forward(ctx: Any, plan: Plan, inputs: Tensor, hidden: Tensor, cell: Tensor, *parameters: Any) -> Any:
        packing = plan.packing
        scratch = Buffer(inputs.new_empty(len(packing.positions), inputs.shape[2]), packing.steps)
        state = LSTMState(hidden, cell)
        trace = passes.finish(passes.forward(plan, packing.pack(inputs), state, Parameters(*parameters), scratch))
        ctx.plan = plan
        ctx.save_for_backward(*parameters, *trace)
        return _results(plan, trace, inputs.shape[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_outputs: Tensor, *d_last: Tensor) -> Any:
        split = len(Parameters._fields)
        parameters, trace = Parameters(*ctx.saved_tensors[:split]), Trace(*ctx.saved_tensors[split:])
        packing, frames, last = ctx.plan.packing, d_outputs.shape[1], LSTMState(*d_last)
        with torch.autocast(d_outputs.device.type, enabled=False):
            d_hidden = passes.arriving(packing, d_outputs, last)
            steps = passes.backward(ctx.plan, parameters, trace, frames, d_hidden, last.cell[packing.order])
            return None, *passes.finish(steps)


@torch.no_grad()
def _infer(plan: Plan, inputs: Any, hidden: Any, cell: Any, *parameters: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The results alone, with scratch for one frame."""
    scratch = Buffer(inputs.new_empty(len(inputs), inputs.shape[2]), plan.packing.living)
    packed = plan.packing.pack(inputs)
    trace = passes.finish(passes.forward(plan, packed, LSTMState(hidden, cell), Parameters(*parameters), scratch))
    return _results(plan, trace, inputs.shape[1])


def _results(plan: Plan, trace: Trace, frames: int) -> tuple[Tensor, Tensor, Tensor]:
    packing = plan.packing
    outputs = packing.unpack(packing.after(trace.hidden), frames)
    return outputs, trace.hidden[packing.last], trace.cells[packing.last]


def plan_of(cell: LSTMCell, packing: Packing, own: torch.dtype) -> Plan:
    """What is computed for a cell; `own` is the type of its tensors before they were made wider."""
    form = FORMS[type(cell)]
    return Plan(packing, form.gates, form.norm, MEMORIES[cell.cell_norm], eps_of(cell, own))


def eps_of(cell: LSTMCell, own: torch.dtype) -> float:
    """What its norms add to the variance: the plain cells bound it from below in the same way."""
    return max(cell.eps, torch.finfo(own).tiny * torch.finfo(own).eps)


def parameters_of(cell: LSTMCell) -> Parameters:
    """The cell's tensors in the recurrence, the forget bias within the offset where the gates have a norm."""
    form = FORMS[type(cell)]
    weight = cell.get_parameter("recurrent_weight")
    gain, bias, *of_memory = (getattr(cell, name, None) for name in (form.gain, form.bias, "cell_gain", "cell_bias"))
    if gain is None:
        return Parameters(weight, None, None, *of_memory)
    forget = forget_bias(cell).view_as(gain)
    return Parameters(weight, gain, forget if bias is None else bias + forget, *of_memory)


def forget_bias(cell: LSTMCell) -> Tensor:
    """Zeros but for the forget bias in its gate, [4, H]."""
    forget = next(cell.parameters()).new_zeros(NUM_GATES, cell.hidden_size)
    forget[1] = cell.forget_bias
    return forget
