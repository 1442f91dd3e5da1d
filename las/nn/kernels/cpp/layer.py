"""The recurrence compiled for the machine's own CPU: whole steps in C++, both directions side by side.

The loops over frames are in `csrc/loops.h`. Under autocast to bfloat16 all products are taken of operands rounded to
bfloat16 and summed in fp32 (`csrc/rounded.h`); states, norms and sums of gradients stay in fp32.
"""

import ctypes
from collections.abc import Sequence
from functools import cache, reduce
from itertools import chain
from typing import cast

import torch
from torch import Tensor

from las.nn.cells.base import CELL_NORMS, LSTMCell, LSTMState
from las.nn.cells.ln_global import LNGlobalLSTMCell
from las.nn.cells.ln_joined import LNJoinedLSTMCell
from las.nn.cells.ln_per_gate import LNPerGateLSTMCell
from las.nn.cells.lstm import PlainLSTMCell
from las.nn.kernels.base import (
    Frames,
    InputGates,
    Kernel,
    Lengths,
    States,
    Unrolled,
    forget_bias,
    parameters_of,
    side_of,
)
from las.nn.kernels.cpp import build
from las.nn.kernels.cpp.recurrence import APART, CppLibrary, CppPart, CppPlan, CppRecurrence, dense, infer, rows_of
from las.nn.masking import mask_of
from las.nn.normalisation import bounded_eps

GATE_NORMS: dict[type[LSTMCell], int] = {
    PlainLSTMCell: 0,
    LNGlobalLSTMCell: APART,
    LNJoinedLSTMCell: 2,
    LNPerGateLSTMCell: 3,
}
"""The number of each class's gate norm in `recurrence.h`."""


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
    """True if everything has one type that needs no conversion anywhere, automatic ones included."""
    types = {frames.dtype, *(parameter.dtype for cell in cells for parameter in cell.parameters())}
    return types in ({torch.float32}, {torch.float64}) and not torch.is_autocast_enabled("cpu")


def rounds(*tensors: Tensor | None) -> bool:
    """True if products of these tensors are to be taken in bfloat16, as autocast asks (`trainer.precision=bf16`)."""
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
    weight, gain, offset, *of_memory = parameters_of(cell)
    offset = (forget_bias(cell) if offset is None else offset).flatten()
    return CppPart(
        source,
        weight,
        input_gain,
        None if gain is None else gain.flatten(),
        offset if input_offset is None else offset + input_offset,
        *of_memory,
        *(state or (None, None)),
    )


def _run(cell: LSTMCell, num_frames: Tensor, frames: Tensor | None, parts: Sequence[CppPart]) -> Unrolled:
    """Outputs and last states; half-precision tensors are computed in fp32 and come back in their own type."""
    fields = [frames, *chain.from_iterable(parts)]
    own = reduce(torch.promote_types, (field.dtype for field in fields if field is not None))
    wide = torch.promote_types(own, torch.float32)
    # Frames are read where they are packed, the other tensors by the C++.
    fields = [field if field is None else field.to(wide) for field in fields]
    fields[1:] = [field if field is None else dense(field) for field in fields[1:]]
    size = (parts[0].source if frames is None else frames).shape[1]
    norms = GATE_NORMS[type(cell)], CELL_NORMS.index(cell.cell_norm)
    plan = CppPlan(library_for(*fields), rows_of(num_frames, size), *norms, bounded_eps(cell.eps, own))
    needs_gradient = any(field is not None and field.requires_grad for field in fields)
    function = CppRecurrence.apply if needs_gradient and torch.is_grad_enabled() else infer
    with torch.autocast("cpu", enabled=False):
        outputs, *last = (result.to(own) for result in function(plan, *fields))
    return outputs, [*map(LSTMState, last[::2], last[1::2])]


def library_for(*tensors: Tensor | None) -> CppLibrary:
    """The library with the products that these tensors are to have."""
    return CppLibrary(build.library(), bfloat16_unit() if rounds(*tensors) else None)


@cache
def bfloat16_unit() -> int:
    """The number in `bfloat16.h` of the fastest unit that agrees with the emulation in a trial."""
    generator = torch.Generator().manual_seed(1)
    left, right = (torch.randn(40, 40, generator=generator) for _ in range(2))
    products = [CppLibrary(build.library(), unit).product(left, right) for unit in range(fastest_unit() + 1)]
    return max(unit for unit, found in enumerate(products) if torch.allclose(found, products[0], rtol=1e-4, atol=1e-4))


def fastest_unit() -> int:
    """The number of the fastest unit that compiler, processor and system have."""
    count = build.library().fastest_bfloat16_unit
    count.restype = ctypes.c_int64
    return int(count())
