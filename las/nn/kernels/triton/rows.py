"""Device functions shared by the row phases of a layer: addresses, gates as a tile, nonlinearities.

`triton.jit` reads the source of a function; `no_type_check` keeps shape checkers from wrapping it before that.
Importing this module needs Triton, whose interpreter runs everything here on a CPU (TRITON_INTERPRET=1).
"""

from typing import no_type_check

import triton
import triton.language as tl

# Entries of the int64 table of a call: sizes, then addresses of large buffers.
FRAMES, BATCH = tl.constexpr(0), tl.constexpr(1)
GATES, CELLS, STATISTICS = tl.constexpr(2), tl.constexpr(3), tl.constexpr(4)
# Forwards: the results, and x of each direction.
OUTPUTS, INPUTS = tl.constexpr(5), tl.constexpr(6)
# Backwards: what arrives, z, and the gradients of G, of z and of LN(c).
D_OUTPUTS, PROJECTED = tl.constexpr(5), tl.constexpr(6)
D_GATES, D_PROJECTED, D_NORMALISED = tl.constexpr(7), tl.constexpr(8), tl.constexpr(9)


@triton.jit
@no_type_check
def tanh(x):
    """tanh, accurate to a few units in the last place also near zero: a norm enlarges small errors of small numbers."""
    square = x * x
    series = x * (1 + square * (-1 / 3 + square * (2 / 15 + square * (-17 / 315 + square * (62 / 2835)))))
    return tl.where(square < 0.0625, series, 2 * tl.sigmoid(2 * x) - 1)


@triton.jit
@no_type_check
def scale_of(variance, EPS: tl.constexpr):
    """Return the scale 1 / sqrt(variance + eps), correctly rounded: the fast root treats a very small eps as zero."""
    return tl.div_rn(tl.full(variance.shape, 1.0, tl.float32), tl.sqrt_rn(variance + EPS))


@triton.jit
@no_type_check
def mean_of(gates, H: tl.constexpr, NORM: tl.constexpr):
    """Return the mean over what a norm sees, for each gate [1, 2, 2]: over its own H values, or over all 4H."""
    sums = tl.sum(gates, 0, keep_dims=True)
    if NORM == "per_gate":
        return sums / H
    else:
        total = tl.sum(tl.sum(sums, 2, keep_dims=True), 1, keep_dims=True)
        return tl.broadcast_to(total / (4 * H), (1, 2, 2))


@triton.jit
@no_type_check
def normed(z, scale, KIND: tl.constexpr):
    """Return n, before gain and bias, of centred values: z r, or tanh(z)."""
    if KIND == "tanh":
        return tanh(z)
    else:
        return z * scale


@triton.jit
@no_type_check
def cell_affine(n, affine, columns, inside, H: tl.constexpr):
    """Apply gain and bias to the normalised values of the memory cell."""
    gain = tl.load(affine + 8 * H + columns, mask=inside, other=0.0)
    return n * gain + tl.load(affine + 9 * H + columns, mask=inside, other=0.0)


@triton.jit
@no_type_check
def place_of(table, row, direction, t, length):
    """Position of a row's frame t in [batch, frames] and in [directions, batch, frames]."""
    frames = tl.load(table + FRAMES)
    position = row * frames + t + direction % 2 * (length - 1 - 2 * t)
    return position, direction * tl.load(table + BATCH) * frames + position


@triton.jit
@no_type_check
def row_of(H: tl.constexpr, BLOCK: tl.constexpr):
    """Offsets of H values with their mask, [BLOCK], and of four gates of H values, [BLOCK, 2, 2]."""
    columns = tl.arange(0, BLOCK)
    pair = tl.arange(0, 2)
    gate = 2 * pair[None, :, None] + pair[None, None, :]
    gates = gate * H + columns[:, None, None]
    return columns, columns < H, gates, (columns[:, None, None] < H) & (gate < 4)


@triton.jit
@no_type_check
def split_gates(gates):
    """i, f, g, o of [BLOCK, 2, 2]."""
    first, second = tl.split(gates)
    i, g = tl.split(first)
    f, o = tl.split(second)
    return i, f, g, o


@triton.jit
@no_type_check
def join_gates(i, f, g, o):
    """Return the inverse of `split_gates`."""
    return tl.join(tl.join(i, g), tl.join(f, o))


@triton.jit
@no_type_check
def address(table, entry, KIND: tl.constexpr):
    """Return a tensor of the table; all of them begin at multiples of 16 bytes."""
    return tl.multiple_of(tl.load(table + entry).to(tl.pointer_type(KIND)), 16)


@triton.jit
@no_type_check
def statistics_of(table, place):
    """Return the ten numbers of a frame: means of the gates, their scales 1 / sqrt(var + eps), mean and scale of c."""
    return tl.load(table + STATISTICS).to(tl.pointer_type(tl.float32)) + place * 10


@triton.jit
@no_type_check
def load_four(numbers):
    """Load one number for each gate, [1, 2, 2]."""
    pair = tl.arange(0, 2)
    return tl.load(numbers + 2 * pair[None, :, None] + pair[None, None, :])


@triton.jit
@no_type_check
def store_four(numbers, values):
    """Store one number for each gate, [1, 2, 2], where `load_four` reads it."""
    pair = tl.arange(0, 2)
    tl.store(numbers + 2 * pair[None, :, None] + pair[None, None, :], values)
