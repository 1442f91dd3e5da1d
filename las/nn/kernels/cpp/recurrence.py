"""The compiled recurrence as one differentiable function of tensors.

The backward pass recomputes each step from W x, U h and the state before it; nothing else is stored.
W x before the loops over frames and the gradients of weights after them are large products of matrices.
"""

import ctypes
from collections.abc import Sequence
from itertools import accumulate, chain
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from las.nn.kernels.allocator import allocator
from las.nn.kernels.cpp import build

APART = 1
"""Number of the gate norm that normalises W x and U h separately."""

PART = 16
"""Rows of the batch that `recurrence.h` computes together, with one sum of parameter gradients for them."""


class Rows(NamedTuple):
    """Positions of the true frames of a padded batch without its padding, row after row of the batch."""

    order: Int[Tensor, "batch"]  # longest first; the next two are in this order
    lengths: Int[Tensor, "batch"]
    starts: Int[Tensor, "batch"]  # each row's first packed frame
    positions: Int[Tensor, "packed"] | None  # of packed frames in the padded batch; none if nothing is padding
    frames: int

    def pack(self, padded: Float[Tensor, "batch frames size"]) -> Float[Tensor, "packed size"]:
        """The true frames; a view where nothing is padding."""
        flat = padded.flatten(0, 1)
        if self.positions is None:
            return dense(flat)
        packed = allocator.empty(flat, len(self.positions), flat.shape[1])
        return torch.index_select(flat, 0, self.positions, out=packed)

    def unpack(self, packed: Float[Tensor, "packed size"]) -> Float[Tensor, "batch frames size"]:
        """The inverse of `pack`, zero in padding."""
        if self.positions is not None:
            padded = allocator.empty(packed, len(self.order) * self.frames, packed.shape[1]).zero_()
            packed = padded.index_copy_(0, self.positions, packed)
        return packed.unflatten(0, (len(self.order), self.frames))


def rows_of(num_frames: Int[Tensor, "batch"], frames: int) -> Rows:
    """The `Rows` of a batch padded to `frames`, from true lengths [batch]."""
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


class CppTrace(NamedTuple):
    """W x and the other packed tensors that the backward pass needs; None without gradients."""

    projected: Any  # W x
    summed: Any = None  # U h, or W x + U h where these are not normalised apart; it may be the same memory as W x
    hidden_before: Any = None
    cell_before: Any = None


NUMBERS = ("batch", "frames", "hidden", "output_stride", "reversed", "gate_norm", "cell_norm")
PARAMETERS = ("input_gain", "gain", "offset", "cell_gain", "cell_bias")
ROWS = ("order", "lengths", "starts")
POINTERS = (
    *ROWS,
    *("weight", *PARAMETERS, "first_hidden", "first_cell", "d_outputs", "d_last_hidden", "d_last_cell"),
    *("projected", "summed", "hidden_before", "cell_before", "outputs", "last_hidden", "last_cell"),
    *("d_projected", "d_summed", "d_first_hidden", "d_first_cell", "sums"),
)


def _pointer(dtype: torch.dtype) -> type[ctypes.c_void_p]:
    """A type of fields that point to numbers of this type, whatever type the others of the structure have."""
    return type("Pointer", (ctypes.c_void_p,), {"dtype": dtype})


Int64s, Doubles, Bools, Bytes = map(_pointer, (torch.int64, torch.float64, torch.bool, torch.uint8))


class Structure(ctypes.Structure):
    """Base class of structures that the C++ declares as well.

    The C++ is given addresses alone. It takes each for one on the CPU where elements of the field's type follow each
    other without gaps; a field of type `c_void_p` has the type of the first such tensor, as the others have.
    """

    kinds: dict[str, torch.dtype | None]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.kinds = {field[0]: getattr(field[1], "dtype", None) for field in cls._fields_}

    def point(self, **tensors: Tensor | None) -> None:
        """Set pointers to these tensors, which the caller keeps alive.

        Raises TypeError for one that the C++ would read wrongly; see `dense`.
        """
        for name, tensor in tensors.items():
            if tensor is not None:
                if not tensor.is_contiguous():
                    raise TypeError(f"{name} has strides {tensor.stride()}: the C++ takes it for a dense tensor")
                self._point(name, tensor)

    def point_apart(self, **tensors: Tensor) -> None:
        """Set pointers to tensors whose strides the structure has as numbers."""
        for name, tensor in tensors.items():
            self._point(name, tensor)

    def _point(self, name: str, tensor: Tensor) -> None:
        kind = self.kinds[name]
        if kind is None:
            kind = self.__dict__.setdefault("number", tensor.dtype)
        address = tensor.data_ptr() if tensor.is_cpu else 0
        if tensor.dtype != kind or tensor.is_neg() or (not address and tensor.numel()):
            raise TypeError(
                f"{name} is {tensor.dtype} on {tensor.device}{', negated when it is read' if tensor.is_neg() else ''}: "
                f"the compiled kernel reads {kind} on the CPU"
            )
        setattr(self, name, address)


def dense(tensor: Tensor) -> Tensor:
    """The tensor as the C++ reads it: elements without gaps, none of them negated only when it is read."""
    return tensor.contiguous().resolve_neg()


def call(name: str, dtype: torch.dtype | None, structure: Structure, shared: bool = True) -> None:
    """Call the library's function of this name, and for numbers of this type if it has one for each.

    With `shared`, as many threads as torch may use share the work.
    """
    function = name if dtype is None else f"{name}_{str(dtype).removeprefix('torch.')}"
    threads = torch.get_num_threads() if shared else 1
    getattr(build.library(), function)(ctypes.byref(structure), ctypes.c_int64(threads))


class Direction(Structure):
    """The structure `Direction` of `recurrence.h`, field by field."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in NUMBERS),
        ("eps", ctypes.c_double),
        *((name, Int64s if name in ROWS else ctypes.c_void_p) for name in POINTERS),
    )


MATRIX = ("", ctypes.c_void_p), ("_row", ctypes.c_int64), ("_column", ctypes.c_int64)


class CppProduct(Structure):
    """The structure `Product` of `matrices.h`, field by field."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("rows", "inner", "columns", "adding")),
        *((f"left{name}", kind) for name, kind in MATRIX),
        *((f"right{name}", kind) for name, kind in MATRIX),
        ("to", ctypes.c_void_p),
    )


class CppLibrary(NamedTuple):
    """The compiled library, and how it multiplies matrices."""

    compiled: ctypes.CDLL
    unit: int | None = None
    """The number in `bfloat16.h` of what multiplies matrices rounded to bfloat16; None where nothing is rounded."""

    def call(self, name: str, dtype: torch.dtype, *arguments: Any) -> None:
        """Call a function, on as many threads as torch may use."""
        products = dtype if self.unit is None else torch.bfloat16
        function = getattr(self.compiled, f"{name}_{str(products).removeprefix('torch.')}")
        unit = () if self.unit is None else (ctypes.c_int64(self.unit),)
        function(*arguments, ctypes.c_int64(torch.get_num_threads()), *unit)

    def product(
        self, left: Float[Tensor, "rows inner"], right: Float[Tensor, "inner columns"], added_to: Tensor | None = None
    ) -> Float[Tensor, "rows columns"]:
        """The product left right, added to `added_to` in place if given; both may be transposed views."""
        left, right = (part.resolve_neg() if 1 in part.stride() else dense(part) for part in (left, right))
        to = allocator.empty(left, len(left), right.shape[1]) if added_to is None else added_to
        product = CppProduct(*left.shape, right.shape[1], added_to is not None)
        product.left_row, product.left_column = left.stride()
        product.right_row, product.right_column = right.stride()
        product.point_apart(left=left, right=right)
        product.point(to=to)
        self.call("multiply", left.dtype, ctypes.byref(product))
        return to


class CppPlan(NamedTuple):
    """Settings of one call: library, rows, norms as numbers of `recurrence.h`, eps."""

    library: CppLibrary
    rows: Rows
    gate_norm: int
    cell_norm: int
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
            numbers = len(rows.order), rows.frames, hidden, len(parts) * hidden, number, self.gate_norm, self.cell_norm
            direction = Direction(*numbers, self.eps)
            direction.point(order=rows.order, lengths=rows.lengths, starts=rows.starts, **trace._asdict())
            direction.point(first_hidden=part.hidden, first_cell=part.cell)
            direction.point(**{name: getattr(part, name) for name in ("weight", *PARAMETERS)})
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
            for number, grads in enumerate(gradients):
                if packed is None:
                    source = ctx.plan.rows.unpack(grads.source)
                else:
                    source = ctx.plan.library.product(grads.source.t(), packed)
                gradients[number] = grads._replace(source=source)
        d_frames = None if d_packed is None else ctx.plan.rows.unpack(d_packed)
        return None, d_frames, *chain.from_iterable(gradients)


@torch.no_grad()
def infer(plan: CppPlan, frames: Tensor | None, *fields: Tensor | None) -> tuple[Tensor, ...]:
    """The results of `CppRecurrence`, without a graph."""
    _, parts, projected = _project(plan, frames, fields)
    return _forward(plan, parts, [CppTrace(each) for each in projected])


def _parts(fields: Sequence[Tensor | None]) -> list[CppPart]:
    size = len(CppPart._fields)
    return [CppPart(*fields[start : start + size]) for start in range(0, len(fields), size)]


def _project(
    plan: CppPlan, frames: Tensor | None, fields: Sequence[Tensor | None]
) -> tuple[Tensor | None, list[CppPart], list[Tensor]]:
    """The packed frames, the parts, and W x of every part."""
    parts = _parts(fields)
    if frames is None:
        return None, parts, [plan.rows.pack(part.source) for part in parts]
    packed = plan.rows.pack(frames)
    return packed, parts, [plan.library.product(packed, part.source.t()) for part in parts]


def _empty_trace(projected: Tensor, hidden: int, in_place: bool) -> CppTrace:
    states = [allocator.empty(projected, len(projected), hidden) for _ in range(2)]
    return CppTrace(projected, projected if in_place else allocator.empty_like(projected), *states)


def _forward(plan: CppPlan, parts: Sequence[CppPart], traces: Sequence[CppTrace]) -> tuple[Tensor, ...]:
    """The results of all directions; fills the tensors of the traces that are not None."""
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
    """The gradients of each direction's tensors; that of `source` is the gradient of W x, packed."""
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
        gradients.append(CppPart(source, plan.library.product(grads.t(), trace.hidden_before), *others, *state))
    return gradients
