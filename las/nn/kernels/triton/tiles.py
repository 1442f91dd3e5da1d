"""Device functions shared by both passes of a persistent layer: four gates as tiles [units, rows]."""

from typing import no_type_check

import triton
import triton.language as tl

from las.nn.kernels.triton.rows import join_gates, split_gates


@triton.jit
@no_type_check
def four(place, mask, H: tl.constexpr):
    """Read i, f, g, o, which lie H apart, as fp32; 0 where masked."""
    i = tl.load(place, mask=mask, other=0.0)
    f = tl.load(place + H, mask=mask, other=0.0)
    g = tl.load(place + 2 * H, mask=mask, other=0.0)
    o = tl.load(place + 3 * H, mask=mask, other=0.0)
    return i.to(tl.float32), f.to(tl.float32), g.to(tl.float32), o.to(tl.float32)


@triton.jit
@no_type_check
def store_four(place, i, f, g, o, mask, H: tl.constexpr, KIND: tl.constexpr):
    """Write i, f, g, o, which lie H apart, in a type."""
    tl.store(place, i.to(KIND), mask=mask)
    tl.store(place + H, f.to(KIND), mask=mask)
    tl.store(place + 2 * H, g.to(KIND), mask=mask)
    tl.store(place + 3 * H, o.to(KIND), mask=mask)


@triton.jit
@no_type_check
def each_norm(i, f, g, o, ROWS: tl.constexpr, NORM: tl.constexpr):
    """Return the sums over the units of what each norm sees: [4 ROWS] where every gate has its own, else [ROWS]."""
    if NORM == "per_gate":
        sums = join_gates(tl.sum(i, 0), tl.sum(f, 0), tl.sum(g, 0), tl.sum(o, 0))
        return tl.reshape(sums, (4 * ROWS,))
    else:
        return tl.sum(i + f + g + o, 0)


@triton.jit
@no_type_check
def over_units(numbers):
    """Return numbers of rows as [1, ROWS].

    The compiler gives a tile the layout of the vector that is spread over it, and converts whatever else the tile
    meets, unless another operation is between.
    """
    return tl.split(tl.join(numbers, numbers))[0][None, :]


@triton.jit
@no_type_check
def each_gate(numbers, ROWS: tl.constexpr, NORM: tl.constexpr):
    """Return a number of each gate, [1, ROWS], from those of norms as `each_norm` gives them."""
    if NORM == "per_gate":
        i, f, g, o = split_gates(tl.reshape(numbers, (ROWS, 2, 2)))
        return over_units(i), over_units(f), over_units(g), over_units(o)
    else:
        number = over_units(numbers)
        return number, number, number, number
