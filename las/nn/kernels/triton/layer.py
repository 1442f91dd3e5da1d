"""The recurrence on a GPU by kernels written in Triton: two launches per frame, all directions in each.

Phase one is the product U' h of every direction, cut into tiles; phase two has one program for each row, which computes
norm, gates, memory and output (`las.nn.kernels.triton.steps`). The loop over frames is replayed from CUDA graphs
(`las.nn.kernels.graphs.capture`). The rest is one product over all frames after the loop: z = U' h, recomputed rather
than stored, and the gradient of U.

U' is U minus its mean over the rows that one layer norm sees. Products with it need no centring, forwards as backwards.
Nothing is added atomically, so results are the same every time.

The phases are tested on a CPU through Triton's interpreter and compiled for a GPU, and on a GPU by `make gpu`. Times
are in docs/performance.md.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from importlib.util import find_spec
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from las.nn.cells.base import NUM_GATES, LSTMCell, LSTMState
from las.nn.kernels.base import InputGates, Kernel, Lengths, States, Unrolled
from las.nn.kernels.forms import forget_bias, form_of, norm_of, parameters_of, recurrent_weight_of, scaled_input_gates
from las.nn.kernels.triton.division import Device, divisions
from las.nn.kernels.triton.plan import TritonEquations, TritonGradients, TritonPlan, TritonTrace, rows_for
from las.nn.normalisation import bounded_eps, mask_of

OLDEST = (8, 0)
"""The lowest compute capability with bf16 and TF32 products."""

TYPES = (torch.float32, torch.float16, torch.bfloat16)


@runtime_checkable
class Loops(Protocol):
    """A module with both passes over all frames."""

    @property
    def forward(self) -> Callable[..., tuple[Tensor, Tensor, TritonTrace]]: ...
    @property
    def backward(self) -> Callable[..., TritonGradients]: ...


class TritonKernel(Kernel):
    """The kernel `triton`. There is no second derivative.

    Products take half-precision operands where the input gates have half precision or autocast asks for it, TF32 where
    torch may use it; everything else is fp32.
    """

    device: str | None = "cuda"

    def loops(self) -> Loops:
        """Return the module with the loops over frames, whose import needs Triton."""
        from las.nn.kernels.triton import loops

        return loops

    def unsupported_reason(self, cell: LSTMCell, like: Tensor) -> str:
        if torch.promote_types(like.dtype, next(cell.parameters()).dtype) not in TYPES:
            return f"computes in fp32, not in {like.dtype}"
        if find_spec("triton") is None:
            return "Triton is not installed"
        if torch.cuda.get_device_capability(like.device) < OLDEST:
            return "needs a GPU of compute capability 8.0 or later"
        return ""

    def recurrence(
        self, cells: Sequence[LSTMCell], input_gates: InputGates, num_frames: Lengths, states: States
    ) -> Unrolled:
        input_gates = [scaled_input_gates(cell, gates) for cell, gates in zip(cells, input_gates, strict=True)]
        cell, device, (batch, frames, _) = cells[0], input_gates[0].device, input_gates[0].shape
        state = _first(cells, states, batch)
        tensors = [*input_gates, *state, *(parameter for cell in cells for parameter in cell.parameters())]
        own = reduce(torch.promote_types, (tensor.dtype for tensor in tensors))
        gates = reduce(torch.promote_types, (each.dtype for each in input_gates))  # the kernels read one type
        outputs = own if own in TYPES else torch.float32  # a state alone may be of another type
        operand = _operand(outputs, device)
        keep = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
        norms = form_of(cell).gate_norm, cell.cell_norm, str(norm_of(cell))
        plan = TritonPlan(*norms, bounded_eps(cell.eps, own), operand, outputs, _precision(operand), keep)
        with torch.autocast(device.type, enabled=False), torch.cuda.device_of(input_gates[0]):
            first = torch.stack([part.float() for part in state])
            weight = _centred(torch.stack([recurrent_weight_of(cell) for cell in cells]).float(), plan)
            affine = torch.stack([_affine(cell) for cell in cells]).float()
            lengths = num_frames.to(device, non_blocking=True).clamp(0, frames)
            found = TritonRecurrence.apply(
                *(self.loops(), plan, lengths, first, weight.to(operand), affine),
                *(each.to(gates) for each in input_gates),
            )
        unrolled, last = (part.to(own) for part in found)
        return unrolled, [LSTMState(*both) for both in last.unbind(1)]


class PersistentKernel(TritonKernel):
    """The kernel `persistent`: all frames in one launch, U in shared memory. It computes products in half precision,
    of layers that fit.
    """

    def loops(self) -> Loops:
        from las.nn.kernels.triton import persistent

        return persistent

    def unsupported_reason(self, cell: LSTMCell, like: Tensor) -> str:
        if reason := super().unsupported_reason(cell, like):
            return reason
        operand = _operand(torch.promote_types(like.dtype, next(cell.parameters()).dtype), like.device)
        if operand == torch.float32:
            return "multiplies in half precision"
        given = cell.hidden_size, 1, 1, operand.itemsize, Device.of(like.device)
        return "" if all(divisions(*given)) else "the recurrent weight does not fit into shared memory"


def _operand(outputs: torch.dtype, device: torch.device) -> torch.dtype:
    """Return the type of the operands of products: that of autocast, or that of the results."""
    return torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else outputs


def _precision(operand: torch.dtype) -> str:
    """TF32 where torch may use it for its own fp32 products; before torch 2.9 that setting had another name."""
    settings = torch.backends.cuda.matmul
    allowed = settings.fp32_precision == "tf32" if hasattr(settings, "fp32_precision") else settings.allow_tf32
    return "tf32" if allowed and operand == torch.float32 else "ieee"


def _first(cells: Sequence[LSTMCell], states: States, batch: int) -> LSTMState:
    """Return the states before the first frame, [directions, batch, H]."""
    if not any(states):
        return cells[0].initial_state(len(cells), batch)
    given = [state or cell.initial_state(batch) for cell, state in zip(cells, states, strict=True)]
    return LSTMState(*(torch.stack(parts) for parts in zip(*given, strict=True)))


def _centred(weight: Tensor, plan: TritonPlan) -> Tensor:
    """U' of all directions: no mean over the rows that one norm sees, where that takes the mean away."""
    if not plan.centres:
        return weight
    rows = weight.unflatten(1, (plan.groups, -1))
    return (rows - rows.mean(2, keepdim=True)).flatten(1, 2)


def _affine(cell: LSTMCell) -> Tensor:
    """Gains and offsets of a row's equations, [10H]: gain and offset of the gates, gain and bias of the memory."""
    _, gain, offset, cell_gain, cell_bias = parameters_of(cell)
    offset = forget_bias(cell) if offset is None else offset
    none = offset.new_zeros(cell.hidden_size)
    parts = none.repeat(NUM_GATES) if gain is None else gain, offset, cell_gain, cell_bias
    return torch.cat([none if part is None else part for part in parts])


class TritonRecurrence(torch.autograd.Function):
    """The recurrence: (loops, plan, lengths, first state, U', affine, x of each direction) to (outputs, last state)."""

    @staticmethod
    def forward(
        ctx: Any,
        loops: Loops,
        plan: TritonPlan,
        lengths: Tensor,
        first: Tensor,
        weight: Tensor,
        affine: Tensor,
        *inputs: Tensor,
    ) -> tuple[Tensor, Tensor]:
        inputs = tuple(map(_aligned, inputs))
        recipe = _recipe(plan, inputs)
        outputs, last, trace = loops.forward(recipe, lengths, first, weight, affine, inputs)
        ctx.loops, ctx.plan, ctx.recipe = loops, plan, recipe
        ctx.save_for_backward(lengths, first, weight, affine, outputs, *trace, *(inputs if plan.x_inside else ()))
        return outputs, last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_outputs: Tensor, d_last: Tensor) -> Any:
        lengths, first, weight, affine, outputs, *traced = ctx.saved_tensors
        gates, cells, statistics, *inputs = map(_aligned, traced)  # a hook may return copies with other strides
        plan, trace = ctx.plan, TritonTrace(gates, cells, statistics)
        with torch.autocast(d_outputs.device.type, enabled=False), torch.cuda.device_of(d_outputs):
            before = _before(outputs, first[0], lengths, plan)
            projected = _projected(plan, lengths, before, weight, inputs, trace)
            given = lengths, first, weight, affine, trace, projected, _aligned(d_outputs), d_last
            grads: TritonGradients = ctx.loops.backward(ctx.recipe, *given)
            dz = grads.gates if plan.norm == "none" else grads.projected
            d_weight = dz.flatten(1, 2).transpose(1, 2) @ before.flatten(1, 2)
            d_affine = _d_affine(plan, affine, trace, projected, grads)
            return None, None, None, grads.first, d_weight, d_affine, *(dz if plan.x_inside else grads.gates)


def _recipe(plan: TritonPlan, inputs: Sequence[Tensor]) -> TritonEquations:
    (batch, _, width), device = inputs[0].shape, inputs[0].device
    stream = torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0
    return TritonEquations(plan, width // NUM_GATES, len(inputs), rows_for(batch), inputs[0].dtype, device, stream)


def _aligned(tensor: Tensor) -> Tensor:
    """Return the tensor as the kernels read it: dense, and at an address that is a multiple of 16 bytes."""
    tensor = tensor.contiguous().resolve_neg()
    return tensor.clone() if tensor.data_ptr() % 16 else tensor


def _before(outputs: Tensor, first: Tensor, lengths: Tensor, plan: TritonPlan) -> Tensor:
    """h_{t-1} of every frame, [directions, batch, frames, H]: that of the frame after it for every second direction."""
    _, batch, size = first.shape
    frames = outputs.shape[1]
    before = outputs.new_empty(len(first), batch, frames, size, dtype=plan.operand)
    if not frames:
        return before
    # Every second direction starts from its state at a row's last frame.
    at_last = (lengths.long() - 1).clamp(min=0).view(-1, 1, 1).expand(-1, 1, size)
    for direction, (part, h, start) in enumerate(zip(before, outputs.split(size, 2), first, strict=True)):
        if direction % 2:
            part[:, :-1], part[:, -1] = h[:, 1:], 0.0
            part.scatter_(1, at_last, start.unsqueeze(1).to(plan.operand))
        else:
            part[:, 0], part[:, 1:] = start, h[:, :-1]
    return before


def _projected(
    plan: TritonPlan, lengths: Tensor, before: Tensor, weight: Tensor, inputs: Sequence[Tensor], trace: TritonTrace
) -> Tensor:
    """z of every frame less its mean, [directions, batch, frames, 4H], finite in padding; empty without a norm."""
    if plan.norm == "none":
        return before.new_empty(0)
    projected = (before.flatten(1, 2) @ weight.transpose(1, 2)).view(*before.shape[:3], -1)
    if plan.x_inside:
        padding = ~mask_of(lengths, before.shape[2]).unsqueeze(-1)
        for z, x, statistics in zip(projected, inputs, trace.statistics, strict=True):
            centred = x.unflatten(-1, (plan.groups, -1)) - statistics[..., : plan.groups, None]
            z.add_(centred.flatten(-2)).masked_fill_(padding, 0.0)
    return projected


def _d_affine(
    plan: TritonPlan, affine: Tensor, trace: TritonTrace, projected: Tensor, grads: TritonGradients
) -> Tensor:
    """Gradients of gains and biases, [directions, 10H]; none for the constant offset of gates without a norm."""
    from las.nn.kernels.triton.loops import sums

    size, rows = affine.shape[1] // 10, []
    for direction, statistics in enumerate(trace.statistics):
        of_gates, of_memory = affine.new_zeros(2, NUM_GATES * size), affine.new_zeros(2, size)
        if plan.norm != "none":
            of_gates = sums(grads.gates[direction], projected[direction], statistics, plan.groups, NUM_GATES, plan.kind)
        if plan.cell_norm != "none":
            of_memory = sums(grads.normalised[direction], trace.cells[direction], statistics, 1, 9, plan.kind)
        rows.append(torch.cat([of_gates.flatten(), of_memory.flatten()]))
    return torch.stack(rows)
