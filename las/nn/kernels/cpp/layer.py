"""The recurrence compiled for the machine's own CPU: whole steps in C++, both directions side by side.

The loops over frames are in `csrc/loops.h`. The backward pass recomputes each step from W x, U h and the state before
it; nothing else is stored. W x before the loops and the gradients of weights after them are large products of matrices.
Under autocast to bfloat16 all products are taken of operands rounded to bfloat16 and summed in fp32
(`csrc/rounded.h`); states, norms and sums of gradients stay in fp32.
"""

import ctypes
from collections.abc import Sequence
from functools import cache, reduce
from itertools import accumulate, chain
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from las.nn.cells.base import CELL_NORMS, LSTMCell, LSTMState
from las.nn.kernels.base import Frames, InputGates, Kernel, Lengths, States, Unrolled
from las.nn.kernels.cpp import build
from las.nn.kernels.cpp.tensors import CppLibrary, Int64s, Structure, allocator, dense
from las.nn.kernels.forms import (
    GATE_NORMS,
    NORMS,
    forget_bias,
    form_of,
    norm_of,
    parameters_of,
    scales_of,
    side_of,
)
from las.nn.normalisation import bounded_eps, mask_of

APART = GATE_NORMS.index("apart")

PART = 16
"""Rows of the batch that `recurrence.h` computes together, with one sum of parameter gradients for them."""


class Rows(NamedTuple):
    """Positions of the true frames of a padded batch without its padding, row after row of the batch."""

    order: Int[Tensor, " batch"]  # longest first; the next two are in this order
    lengths: Int[Tensor, " batch"]
    starts: Int[Tensor, " batch"]  # each row's first packed frame
    positions: Int[Tensor, " packed"] | None  # of packed frames in the padded batch; none if nothing is padding
    frames: int

    def pack(self, padded: Float[Tensor, "batch frames size"]) -> Float[Tensor, "packed size"]:
        """Return the true frames; a view where nothing is padding."""
        flat = padded.flatten(0, 1)
        if self.positions is None:
            return dense(flat)
        packed = allocator.empty(flat, len(self.positions), flat.shape[1])
        return torch.index_select(flat, 0, self.positions, out=packed)

    def unpack(self, packed: Float[Tensor, "packed size"]) -> Float[Tensor, "batch frames size"]:
        """Return the inverse of `pack`, zero in padding."""
        if self.positions is not None:
            padded = allocator.empty(packed, len(self.order) * self.frames, packed.shape[1]).zero_()
            packed = padded.index_copy_(0, self.positions, packed)
        return packed.unflatten(0, (len(self.order), self.frames))


def rows_of(num_frames: Int[Tensor, " batch"], frames: int) -> Rows:
    """Return the `Rows` of a batch padded to `frames`, from true lengths [batch]."""
    lengths = [min(max(length, 0), frames) for length in num_frames.tolist()]
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    starts = [0, *accumulate(lengths)]
    in_order = [order, [lengths[row] for row in order], [starts[row] for row in order]]
    positions = None
    if min(lengths, default=frames) < frames:
        positions = (torch.arange(frames) < torch.tensor(lengths).unsqueeze(1)).flatten().nonzero().squeeze(1)
    first, second, third = (torch.tensor(values, dtype=torch.long) for values in in_order)
    return Rows(first, second, third, positions, frames)


class CppPart(NamedTuple):
    """The tensors of one direction, or their gradients; `offset` is added after the norms of the gates."""

    source: Any  # W [4H, input], or W x itself, padded
    weight: Any  # U [4H, H]
    input_gain: Any  # [4H]
    gain: Any
    offset: Any
    cell_gain: Any  # [H]
    cell_bias: Any
    hidden: Any  # the state to start from, [batch, H]
    cell: Any
    input_scale: Any = None  # of dynamic tanh of W x apart, and of the rest; one number each
    scale: Any = None


class CppTrace(NamedTuple):
    """W x and the other packed tensors that the backward pass needs; None without gradients."""

    projected: Any  # W x
    summed: Any = None  # U h, or W x + U h where these are not normalised apart; it may be the same memory as W x
    hidden_before: Any = None
    cell_before: Any = None


NUMBERS = ("batch", "frames", "hidden", "output_stride", "reversed", "gate_norm", "cell_norm", "norm", "left_out")
PARAMETERS = ("input_gain", "gain", "offset", "cell_gain", "cell_bias")
SCALES = ("input_scale", "scale")
ROWS = ("order", "lengths", "starts")
POINTERS = (
    *ROWS,
    *("weight", *PARAMETERS, *SCALES, "first_hidden", "first_cell", "d_outputs", "d_last_hidden", "d_last_cell"),
    *("projected", "summed", "hidden_before", "cell_before", "outputs", "last_hidden", "last_cell"),
    *("d_projected", "d_summed", "d_first_hidden", "d_first_cell", "sums"),
)


class Direction(Structure):
    """The structure `Direction` of `recurrence.h`, field by field."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in NUMBERS),
        ("eps", ctypes.c_double),
        *((name, Int64s if name in ROWS else ctypes.c_void_p) for name in POINTERS),
    )


class CppPlan(NamedTuple):
    """Settings of one call: library, rows, norms as numbers of `recurrence.h` (`norms_of`), eps."""

    library: CppLibrary
    rows: Rows
    gate_norm: int
    cell_norm: int
    norm: int
    left_out: int
    eps: float

    def run(self, name: str, directions: Sequence[Direction], dtype: torch.dtype) -> None:
        """Run `forward` or `backward` of all directions."""
        array = (Direction * len(directions))(*directions)
        self.library.call(name, dtype, array, ctypes.c_int64(len(directions)))

    def directions(self, parts: Sequence[CppPart], traces: Sequence[CppTrace]) -> list[Direction]:
        """Structures with the sizes and pointers that both passes need."""
        rows, hidden = self.rows, parts[0].weight.shape[1]
        directions = []
        for number, (part, trace) in enumerate(zip(parts, traces, strict=True)):
            sizes = len(rows.order), rows.frames, hidden, len(parts) * hidden
            norms = self.gate_norm, self.cell_norm, self.norm, self.left_out
            direction = Direction(*sizes, number, *norms, self.eps)
            direction.point(order=rows.order, lengths=rows.lengths, starts=rows.starts, **trace._asdict())
            direction.point(first_hidden=part.hidden, first_cell=part.cell)
            direction.point(**{name: getattr(part, name) for name in ("weight", *PARAMETERS, *SCALES)})
            directions.append(direction)
        return directions


class CppRecurrence(torch.autograd.Function):
    """The recurrence: (plan, frames, *fields of one or two `CppPart`s) to (outputs, last hidden and cell of each).

    With frames [batch, frames, input] the sources are W; without, they are W x. The second direction reads each row
    from its true end. Outputs are [batch, frames, parts * H], zero in padding.
    """

    @staticmethod
    def forward(ctx: Any, plan: CppPlan, frames: Tensor | None, *fields: Tensor | None) -> Any:
        packed, parts, projected = _project(plan, frames, fields)
        # Where the two are not normalised apart, W x is not needed once U h was added to it.
        in_place = frames is not None and plan.gate_norm != APART
        traces = [
            _empty_trace(each, part.weight.shape[1], in_place) for part, each in zip(parts, projected, strict=True)
        ]
        ctx.plan, ctx.split = plan, len(fields)
        ctx.save_for_backward(packed, *fields, *chain.from_iterable(traces))
        return _forward(plan, parts, traces)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_outputs: Tensor, *d_last: Tensor) -> Any:
        # Each is read once, as checkpoints ask, and may be a copy with other strides.
        packed, *saved = (tensor if tensor is None else dense(tensor) for tensor in ctx.saved_tensors)
        fields, saved, size = saved[: ctx.split], saved[ctx.split :], len(CppTrace._fields)
        traces = [CppTrace(*saved[start : start + size]) for start in range(0, len(saved), size)]
        parts = _parts(fields)
        with torch.autocast("cpu", enabled=False):
            gradients = _backward(ctx.plan, parts, traces, dense(d_outputs), [*map(dense, d_last)])
            d_packed = None
            if ctx.needs_input_grad[1]:
                for part, grads in zip(parts, gradients, strict=True):
                    d_packed = ctx.plan.library.product(grads.source, part.source, d_packed)
            for number, (part, trace, grads) in enumerate(zip(parts, traces, gradients, strict=True)):
                source = grads.source if packed is None else ctx.plan.library.product(grads.source.t(), packed)
                read = trace.projected if packed is None else part.source
                scales = _of_scales(ctx.plan, part, (source, read), (grads.weight, part.weight))
                source = ctx.plan.rows.unpack(source) if packed is None else source
                gradients[number] = grads._replace(source=source, **scales)
        d_frames = None if d_packed is None else ctx.plan.rows.unpack(d_packed)
        return None, d_frames, *chain.from_iterable(gradients)


@torch.no_grad()
def infer(plan: CppPlan, frames: Tensor | None, *fields: Tensor | None) -> tuple[Tensor, ...]:
    """Return the results of `CppRecurrence`, without a graph."""
    _, parts, projected = _project(plan, frames, fields)
    return _forward(plan, parts, [CppTrace(each) for each in projected])


def _parts(fields: Sequence[Tensor | None]) -> list[CppPart]:
    size = len(CppPart._fields)
    return [CppPart(*fields[start : start + size]) for start in range(0, len(fields), size)]


def _project(
    plan: CppPlan, frames: Tensor | None, fields: Sequence[Tensor | None]
) -> tuple[Tensor | None, list[CppPart], list[Tensor]]:
    """Return the packed frames, the parts, and W x of every part."""
    parts = _parts(fields)
    if frames is None:
        return None, parts, [plan.rows.pack(part.source) for part in parts]
    packed = plan.rows.pack(frames)
    return packed, parts, [plan.library.product(packed, part.source.t()) for part in parts]


def _empty_trace(projected: Tensor, hidden: int, in_place: bool) -> CppTrace:
    states = [allocator.empty(projected, len(projected), hidden) for _ in range(2)]
    return CppTrace(projected, projected if in_place else allocator.empty_like(projected), *states)


def _forward(plan: CppPlan, parts: Sequence[CppPart], traces: Sequence[CppTrace]) -> tuple[Tensor, ...]:
    """Return the results of all directions; fills the tensors of the traces that are not None."""
    batch, hidden = len(plan.rows.order), parts[0].weight.shape[1]
    outputs = allocator.empty(parts[0].weight, batch, plan.rows.frames, len(parts) * hidden)
    last = [outputs.new_empty(batch, hidden) for _ in range(2 * len(parts))]
    directions = plan.directions(parts, traces)
    for number, direction in enumerate(directions):
        direction.point_apart(outputs=outputs[..., number * hidden :])
        direction.point(last_hidden=last[2 * number], last_cell=last[2 * number + 1])
    plan.run("forward", directions, outputs.dtype)
    return outputs, *last


def _backward(
    plan: CppPlan, parts: Sequence[CppPart], traces: Sequence[CppTrace], d_outputs: Tensor, d_last: Sequence[Tensor]
) -> list[CppPart]:
    """Return the gradients of each direction's tensors; that of `source` is the gradient of W x, packed."""
    directions, hidden = plan.directions(parts, traces), parts[0].weight.shape[1]
    sizes = [*[4 * hidden] * 3, *[hidden] * 2]
    sums = d_outputs.new_zeros(len(parts), max(-(-len(plan.rows.order) // PART), 1), sum(sizes))
    sources = [allocator.empty_like(trace.projected) for trace in traces]
    summed = [allocator.empty_like(source) if plan.gate_norm == APART else source for source in sources]
    states = [[None if old is None else torch.empty_like(old) for old in (part.hidden, part.cell)] for part in parts]
    for number, direction in enumerate(directions):
        direction.point_apart(d_outputs=d_outputs[..., number * hidden :])
        direction.point(sums=sums[number])
        direction.point(d_projected=sources[number], d_summed=summed[number] if plan.gate_norm == APART else None)
        direction.point(d_last_hidden=d_last[2 * number], d_last_cell=d_last[2 * number + 1])
        direction.point(d_first_hidden=states[number][0], d_first_cell=states[number][1])
    plan.run("backward", directions, d_outputs.dtype)
    gradients = []
    for part, trace, source, grads, state, all_sums in zip(parts, traces, sources, summed, states, sums, strict=True):
        known = [getattr(part, name) for name in PARAMETERS]
        others = [None if old is None else new for old, new in zip(known, all_sums.sum(0).split(sizes), strict=True)]
        d_weight = plan.library.product(grads.t(), trace.hidden_before)
        gradients.append(CppPart(source, d_weight, *others, *state))
    return gradients


def _of_scales(
    plan: CppPlan, part: CppPart, of_input: tuple[Tensor, Tensor], of_state: tuple[Tensor, Tensor]
) -> dict[str, Tensor | None]:
    """Return the gradients of the scales of dynamic tanh, from W (or W x) and U, each behind its gradient.

    tanh(alpha (W x + U h)) depends on alpha W and alpha U alone, so alpha dL/d(alpha) is <W, dL/dW> + <U, dL/dU>.
    """
    together = [of_state] if plan.gate_norm == APART else [of_state, of_input]
    scaled = {"input_scale": (part.input_scale, [of_input]), "scale": (part.scale, together)}
    return {
        name: sum(torch.dot(grad.flatten(), own.flatten()) for grad, own in pairs) / scale
        for name, (scale, pairs) in scaled.items()
        if scale is not None
    }


def norms_of(cell: LSTMCell) -> tuple[int, int, int, int]:
    """Return numbers of `recurrence.h`: where the gates and the memory of a cell are normalised, by which norm, and a
    bit for each part of the gates that is left out.
    """
    form, norm = form_of(cell), [*NORMS.values()].index(str(norm_of(cell)))
    left_out = sum(1 << part for part in form.left_out)
    return GATE_NORMS.index(form.gate_norm), CELL_NORMS.index(cell.cell_norm), norm, left_out


class CppKernel(Kernel):
    """The kernel `cpu`. There is no second derivative."""

    device = "cpu"
    tried_as = 19, torch.float32  # more units than a vector has numbers, and no multiple of them

    def unsupported_reason(self, cell: LSTMCell, like: Tensor) -> str:
        if like.dtype.is_complex or not like.dtype.is_floating_point:
            return f"it does not compute {like.dtype}"
        return build.unavailable()

    def recurrence(
        self, cells: Sequence[LSTMCell], input_gates: InputGates, num_frames: Lengths, states: States
    ) -> Unrolled:
        # The gates include the norm and the biases of the input.
        parts = [_part(*part) for part in zip(cells, input_gates, states, strict=True)]
        return _run(cells[0], num_frames, None, parts)

    def layer(self, cells: Sequence[LSTMCell], frames: Frames, num_frames: Lengths, states: States) -> Unrolled:
        """W x and its norm are computed here, and padding is not read."""
        if not _alike(frames, cells) and not rounds(frames, *cells[0].parameters()):
            clean = frames.masked_fill(~mask_of(num_frames, frames.shape[1]).unsqueeze(-1), 0.0)
            return self.recurrence(cells, [cell.input_gates(clean) for cell in cells], num_frames, states)
        parts = [
            _part(cell, cast(Tensor, cell.input_weight), state, *side_of(cell))
            for cell, state in zip(cells, states, strict=True)
        ]
        return _run(cells[0], num_frames, frames, parts)


def _alike(frames: Tensor, cells: Sequence[LSTMCell]) -> bool:
    """Return True if everything has one type that needs no conversion anywhere, automatic ones included."""
    types = {frames.dtype, *(parameter.dtype for cell in cells for parameter in cell.parameters())}
    return types in ({torch.float32}, {torch.float64}) and not torch.is_autocast_enabled("cpu")


def rounds(*tensors: Tensor | None) -> bool:
    """Return True if products of these tensors are to be in bfloat16, as autocast asks (`trainer.precision=bf16`)."""
    if not torch.is_autocast_enabled("cpu") or torch.get_autocast_dtype("cpu") != torch.bfloat16:
        return False
    return all(tensor is None or tensor.dtype in (torch.float32, torch.bfloat16) for tensor in tensors)


def _part(
    cell: LSTMCell,
    source: Tensor,
    state: LSTMState | None,
    input_gain: Tensor | None = None,
    input_offset: Tensor | None = None,
) -> CppPart:
    weight, gain, offset, cell_gain, cell_bias = parameters_of(cell)
    first_hidden, first_cell = state or (None, None)
    offset = forget_bias(cell) if offset is None else offset
    input_scale, scale = scales_of(cell)
    return CppPart(
        source,
        weight,
        input_gain,
        gain,
        offset if input_offset is None else offset + input_offset,
        cell_gain,
        cell_bias,
        first_hidden,
        first_cell,
        None if input_gain is None else input_scale,
        scale,
    )


def _run(cell: LSTMCell, num_frames: Tensor, frames: Tensor | None, parts: Sequence[CppPart]) -> Unrolled:
    """Return the outputs and last states; half-precision tensors are computed in fp32 and returned in their type."""
    fields = [frames, *chain.from_iterable(parts)]
    own = reduce(torch.promote_types, (field.dtype for field in fields if field is not None))
    wide = torch.promote_types(own, torch.float32)
    # Frames are read where they are packed, the other tensors by the C++.
    fields = [field if field is None else field.to(wide) for field in fields]
    fields[1:] = [field if field is None else dense(field) for field in fields[1:]]
    size = (parts[0].source if frames is None else frames).shape[1]
    plan = CppPlan(library_for(*fields), rows_of(num_frames, size), *norms_of(cell), bounded_eps(cell.eps, own))
    needs_gradient = any(field is not None and field.requires_grad for field in fields)
    function = CppRecurrence.apply if needs_gradient and torch.is_grad_enabled() else infer
    with torch.autocast("cpu", enabled=False):
        outputs, *last = (result.to(own) for result in function(plan, *fields))
    return outputs, [*map(LSTMState, last[::2], last[1::2])]


def library_for(*tensors: Tensor | None) -> CppLibrary:
    """Return the library with the products that these tensors are to have."""
    return CppLibrary(build.library(), bfloat16_unit() if rounds(*tensors) else None)


@cache
def bfloat16_unit() -> int:
    """Return the number in `bfloat16.h` of the fastest unit that agrees with the emulation in a trial."""
    generator = torch.Generator().manual_seed(1)
    left, right = (torch.randn(40, 40, generator=generator) for _ in range(2))
    products = [CppLibrary(build.library(), unit).product(left, right) for unit in range(fastest_unit() + 1)]
    return max(unit for unit, found in enumerate(products) if torch.allclose(found, products[0], rtol=1e-4, atol=1e-4))


def fastest_unit() -> int:
    """Return the number of the fastest unit that compiler, processor and system have."""
    count = build.library().fastest_bfloat16_unit
    count.restype = ctypes.c_int64
    return int(count())
