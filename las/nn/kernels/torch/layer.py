"""The recurrence with a hand-written backward pass: any device, nothing to compile.

One `torch.autograd.Function` instead of a graph of a dozen nodes per frame, on packed frames: padding costs nothing and
needs no mask. The mathematics is in `las.nn.kernels.torch.bptt` and `las.nn.kernels.torch.equations`.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from las.nn.cells.base import NUM_GATES, LSTMCell, LSTMState
from las.nn.cells.ln_global import LNGlobalLSTMCell
from las.nn.cells.ln_joined import LNJoinedLSTMCell
from las.nn.cells.ln_per_gate import LNPerGateLSTMCell
from las.nn.cells.lstm import PlainLSTMCell
from las.nn.kernels.base import Frames, InputGates, Lengths, States, Unrolled, side_by_side
from las.nn.kernels.torch import bptt, equations
from las.nn.kernels.torch.bptt import CHUNK, Parameters, Plan, Trace
from las.nn.kernels.torch.input_projection import project
from las.nn.kernels.torch.packing import FrameBuffers, OneFrameBuffers, Packing, packing_of
from las.nn.normalisation import bounded_eps


class CellForm(NamedTuple):
    """The gate equation of a class of cells, and the names of the parameters of its norm and of W x."""

    gates: type[equations.Gates]
    gain: str = ""
    bias: str = ""
    input_gain: str = ""
    input_biases: tuple[str, ...] = ()


FORMS: dict[type[LSTMCell], CellForm] = {
    PlainLSTMCell: CellForm(equations.Gates, input_biases=("bias",)),
    LNGlobalLSTMCell: CellForm(
        equations.SeparatelyNormalisedGates, "recurrent_gain", "recurrent_bias", "input_gain", ("input_bias", "bias")
    ),
    LNJoinedLSTMCell: CellForm(equations.JointlyNormalisedGates, "gain", "bias"),
    LNPerGateLSTMCell: CellForm(equations.JointlyNormalisedGates, "gain", "bias"),
}

CELL_UPDATES: dict[str, type[equations.CellUpdate]] = {
    "none": equations.CellUpdate,
    "output": equations.OutputNormalisedCell,
    "state": equations.StateNormalisedCell,
    "both": equations.OutputAndStateNormalisedCell,
}


def unsupported_reason(cell: LSTMCell, input_gates: Tensor) -> str:
    """The reason why this kernel cannot compute the cell, empty if it can. A subclass may change the equations, so only
    the exact classes count."""
    return "" if type(cell) in FORMS else "its equations are not among those written by hand"


def recurrence(cells: Sequence[LSTMCell], input_gates: InputGates, num_frames: Lengths, states: States) -> Unrolled:
    """The recurrence from `input_gates`, see `Kernel`, for the cells of `unsupported_reason`.

    Half-precision tensors are computed in fp32 and come back in their own type. There is no second derivative.
    """
    packing = packing_of(num_frames, input_gates[0].shape[1], len(cells), input_gates[0].device)
    return _unroll(cells, [gates.flatten(0, 1) for gates in input_gates], packing, states)


def layer(cells: Sequence[LSTMCell], frames: Frames, num_frames: Lengths, states: States) -> Unrolled:
    """`recurrence` from the frames themselves: only true frames are multiplied by W."""
    rows, packing = _true(frames, packing_of(num_frames, frames.shape[1], len(cells), frames.device))
    return _unroll(cells, [input_gates(cell, rows) for cell in cells], packing, states)


def _true(frames: Tensor, packing: Packing) -> tuple[Tensor, Packing]:
    """The true frames, [rows, input], and the packing that takes its inputs from there."""
    rows = frames.flatten(0, 1)
    if len(rows) == packing.positions.shape[1]:
        return rows, packing
    packing, true = packing.compact()
    return rows[true], packing


def input_gates(cell: LSTMCell, rows: Tensor) -> Tensor:
    """`cell.input_gates`, with a hand-written backward pass where no conversion of types is needed."""
    if rows.device.type != "cpu" or not alike(rows, [cell]):
        return cell.input_gates(rows)
    return project(rows, cast(Tensor, cell.input_weight), *side_of(cell), bounded_eps(cell.eps, rows.dtype))


def alike(frames: Tensor, cells: Sequence[LSTMCell]) -> bool:
    """True if everything has one type that needs no conversion anywhere, automatic ones included."""
    types = {frames.dtype, *(parameter.dtype for cell in cells for parameter in cell.parameters())}
    return types in ({torch.float32}, {torch.float64}) and not torch.is_autocast_enabled("cpu")


def _unroll(cells: Sequence[LSTMCell], inputs: Sequence[Tensor], packing: Packing, states: States) -> Unrolled:
    """One cell per direction, from its `input_gates` at the packing's sources."""
    batch, size = len(packing.order), cells[0].hidden_size
    state = side_by_side(cells, states, batch)
    if not packing.frames:
        return inputs[0].new_zeros(batch, 0, len(cells) * size), [*map(LSTMState, *state)]
    parameters = Parameters.side_by_side([parameters_of(cell) for cell in cells])
    if parameters.gain is None and cells[0].forget_bias:
        parameters = parameters._replace(offset=torch.stack([forget_bias(cell) for cell in cells]))
    tensors = [*state, *parameters, *inputs]
    own = reduce(torch.promote_types, (tensor.dtype for tensor in tensors if tensor is not None))
    wide = torch.promote_types(own, torch.float32)
    tensors = [tensor if tensor is None else tensor.to(wide) for tensor in tensors]
    plan = plan_of(cells[0], packing, own)
    needs_gradient = any(tensor is not None and tensor.requires_grad for tensor in tensors)
    function = Recurrence.apply if needs_gradient and torch.is_grad_enabled() else _infer
    with torch.autocast(inputs[0].device.type, enabled=False):
        outputs, *last = function(plan, *tensors)
    return outputs.to(own), [*map(LSTMState, *(part.to(own) for part in last))]


class Recurrence(torch.autograd.Function):
    """The recurrence: (plan, hidden, cell, *Parameters, *inputs of each direction) to (outputs, last h, last c)."""

    @staticmethod
    def forward(ctx: Any, plan: Plan, hidden: Tensor, cell: Tensor, *tensors: Any) -> Any:
        parameters, inputs = _parted(tensors)
        trace = _run(plan, LSTMState(hidden, cell), parameters, inputs, FrameBuffers(plan.packing, hidden))
        ctx.plan, ctx.num_inputs = plan, len(inputs[0])
        ctx.save_for_backward(*parameters, *trace)
        return _results(plan.packing, trace)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_outputs: Tensor, *d_last: Tensor) -> Any:
        packing, last = ctx.plan.packing, LSTMState(*d_last)
        # Copied where a hook on saved tensors has changed the strides: norms read rows one after the other.
        parameters, trace = _parted([part if part is None else part.contiguous() for part in ctx.saved_tensors])
        with torch.autocast(d_outputs.device.type, enabled=False):
            d_hidden, d_cell = bptt.arriving(packing, d_outputs, last), last.cell[:, packing.order]
            steps = bptt.backward(ctx.plan, parameters, Trace(*trace), ctx.num_inputs, d_hidden, d_cell)
            d_inputs, *others = bptt.finish(steps)
        return None, *others, *d_inputs


@torch.no_grad()
def _infer(plan: Plan, hidden: Any, cell: Any, *tensors: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The results of `Recurrence`, without a graph."""
    buffers = OneFrameBuffers(plan.packing, hidden)
    return _results(plan.packing, _run(plan, LSTMState(hidden, cell), *_parted(tensors), buffers))


def _run(
    plan: Plan, state: LSTMState, parameters: Parameters, inputs: Sequence[Tensor], buffers: FrameBuffers
) -> Trace:
    return bptt.finish(bptt.forward(plan, plan.packing.pieces(inputs, CHUNK), state, parameters, buffers))


def _results(packing: Packing, trace: Trace) -> tuple[Tensor, Tensor, Tensor]:
    outputs = packing.unpack(packing.after(trace.hidden))
    return outputs, trace.hidden[:, packing.last], trace.cells[:, packing.last]


def _parted(tensors: Sequence[Any]) -> tuple[Parameters, Sequence[Any]]:
    """The tensors split into `Parameters` and the rest."""
    split = len(Parameters._fields)
    return Parameters(*tensors[:split]), tensors[split:]


def plan_of(cell: LSTMCell, packing: Packing, own: torch.dtype) -> Plan:
    """The plan for a cell; `own` is the type of its tensors before their conversion to fp32."""
    return Plan(packing, FORMS[type(cell)].gates, CELL_UPDATES[cell.cell_norm], bounded_eps(cell.eps, own))


def side_of(cell: LSTMCell) -> tuple[Tensor | None, Tensor | None]:
    """Gain [4H] of the norm of W x (None without a norm) and the sum of the offsets that are added after it, [4H]."""
    form = FORMS[type(cell)]
    biases = [bias for bias in (getattr(cell, name) for name in form.input_biases) if bias is not None]
    return getattr(cell, form.input_gain, None), sum(biases[1:], start=biases[0]) if biases else None


def parameters_of(cell: LSTMCell) -> Parameters:
    """The cell's tensors in the recurrence, the forget bias within the offset where the gates have a norm."""
    form = FORMS[type(cell)]
    weight = cast(Tensor, cell.recurrent_weight)
    gain, bias, *of_memory = (getattr(cell, name, None) for name in (form.gain, form.bias, "cell_gain", "cell_bias"))
    if gain is None:
        return Parameters(weight, None, None, *of_memory)
    if bias is not None and not cell.forget_bias:
        return Parameters(weight, gain, bias, *of_memory)
    forget = forget_bias(cell).view_as(gain)
    return Parameters(weight, gain, forget if bias is None else bias + forget, *of_memory)


def forget_bias(cell: LSTMCell) -> Tensor:
    """Zeros but for the forget bias in its gate, [4, H]."""
    forget = next(cell.parameters()).new_zeros(NUM_GATES, cell.hidden_size)
    forget[1] = cell.forget_bias
    return forget
