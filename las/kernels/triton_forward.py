"""The device code of `las.kernels.triton`, forwards: two phases per frame.

    product        P1   products[part, d, row] = values[d, row, part's columns] weight[d, :, part's columns]^T
    forward_row    P2   norm, gates, memory and output of one row, from the product U' h_{t-1}

One program of a row phase holds a row's four gates as a tile [H, 2, 2] (i f, g o), so that cells differ in nothing but
a row's equations. Statistics, memory and accumulators are fp32.

Small tensors that the phases share, [directions, rows, ...] with rows rounded up, stay where they are, so that a
captured graph can be replayed. What differs from call to call, sizes and places of large buffers, is in a table. Each
row has its own clock: a step is the same launch at every frame, and does nothing to a row that is at its end. Large
buffers are [directions, batch, frames, ...] by the frame's own position; the second direction visits the frames of a
row from its true end.
"""

from typing import no_type_check

import triton
import triton.language as tl

from las.kernels.triton_rows import (
    CELLS,
    GATES,
    INPUTS,
    OUTPUTS,
    address,
    cell_affine,
    mean_of,
    parts_of,
    place_of,
    row_of,
    scale_of,
    statistics_of,
    store_four,
    tanh,
    together,
)


@triton.jit
@no_type_check
def product(
    products, values, weight, ROWS, N, K: tl.constexpr, PARTS: tl.constexpr,
    TILE_ROWS: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """products[part, d, row, n] = sum over k < K of values[d, row, part K + k] weight[d, n, part K + k].

    Grid: (tiles of N, tiles of rows, directions * parts).
    """
    direction, part = tl.program_id(2) // PARTS, tl.program_id(2) % PARTS
    directions = tl.num_programs(2) // PARTS
    columns = tl.program_id(0) * TILE_N + tl.arange(0, TILE_N)
    rows = tl.program_id(1) * TILE_ROWS + tl.arange(0, TILE_ROWS)
    k = tl.arange(0, TILE_K)
    values += (direction * ROWS + rows)[:, None] * (PARTS * K) + part * K + k[None, :]
    weight += (direction * N + columns)[None, :] * (PARTS * K) + part * K + k[:, None]
    total = tl.zeros((TILE_ROWS, TILE_N), tl.float32)
    for start in range(0, K, TILE_K):
        left = tl.load(values + start, mask=k[None, :] < K - start, other=0.0)
        right = tl.load(weight + start, mask=(columns[None, :] < N) & (k[:, None] < K - start), other=0.0)
        total = tl.dot(left, right, total, input_precision=PRECISION)
    target = ((part * directions + direction) * ROWS + rows)[:, None] * N + columns[None, :]
    tl.store(products + target, total, mask=columns[None, :] < N)


@triton.jit
@no_type_check
def forward_row(
    table, clock, lengths, affine, products, operand, memory, ROWS,
    H: tl.constexpr, BLOCK: tl.constexpr, DIRECTIONS: tl.constexpr, NORM: tl.constexpr, CELL_NORM: tl.constexpr,
    EPS: tl.constexpr, INPUT: tl.constexpr, OUTPUT: tl.constexpr, OPERAND: tl.constexpr, KEEP: tl.constexpr,
):  # fmt: skip
    """One row of one frame:

        G   = pre_activations(x, U' h_{t-1})
        c_t = sigmoid(f) c_{t-1} + sigmoid(i) tanh(g)
        h_t = sigmoid(o) tanh(c_t)    with LN(c_t) as `CELL_NORM` says

    Grid: (rows, directions).
    """
    row, direction = tl.program_id(0), tl.program_id(1)
    slot = direction * ROWS + row
    t, length = tl.load(clock + slot), tl.load(lengths + row)
    if t >= length:
        return
    tl.debug_barrier()  # every thread has read the clock before one sets it
    position, place = place_of(table, row, direction, t, length)
    columns, inside, gates, within = row_of(H, BLOCK)
    affine += direction * (10 * H)
    inputs = tl.load(address(table, INPUTS + direction, INPUT) + position * (4 * H) + gates, mask=within, other=0.0)
    projected = tl.load(products + slot * (4 * H) + gates, mask=within, other=0.0)
    pre, mean, scale = pre_activations(inputs.to(tl.float32), projected, affine, gates, within, H, NORM, EPS)
    i, f, g, o = parts_of(pre)
    i, f, g, o = tl.sigmoid(i), tl.sigmoid(f), tanh(g), tl.sigmoid(o)
    cells = memory + (DIRECTIONS * ROWS + slot) * H + columns
    raw = f * tl.load(cells, mask=inside, other=0.0) + i * g
    normalised, cell_mean, cell_scale = normalised_memory(raw, affine, columns, inside, H, CELL_NORM, EPS)
    h = o * tanh(normalised if CELL_NORM == "output" or CELL_NORM == "both" else raw)
    tl.store(cells, normalised if CELL_NORM == "state" or CELL_NORM == "both" else raw, mask=inside)
    tl.store(memory + slot * H + columns, h, mask=inside)
    tl.store(operand + slot * H + columns, h.to(OPERAND), mask=inside)
    outputs = address(table, OUTPUTS, OUTPUT) + (position * DIRECTIONS + direction) * H
    tl.store(outputs + columns, h.to(OUTPUT), mask=inside)
    tl.store(clock + slot, t + 1)
    if KEEP:
        target = address(table, GATES, OPERAND) + place * (4 * H)
        tl.store(target + gates, together(i, f, g, o).to(OPERAND), mask=within)
        centred = raw - cell_mean
        tl.store(address(table, CELLS, OPERAND) + place * H + columns, centred.to(OPERAND), mask=inside)
        statistics = statistics_of(table, place)
        store_four(statistics, mean)
        store_four(statistics + 4, scale)
        tl.store(statistics + 8, cell_mean)
        tl.store(statistics + 9, cell_scale)


@triton.jit
@no_type_check
def pre_activations(x, projected, affine, gates, within, H: tl.constexpr, NORM: tl.constexpr, EPS: tl.constexpr):
    """G of a row, with the mean and the scale of its norm, by `NORM`:

        none      x + U h + b
        apart     x + gain z r + b    z = U' h
        joined    gain z r + b        z = x - mean(x) + U' h,    r = 1 / sqrt(mean(z^2) + eps)
        per_gate  as joined, means over each gate

    U' is U without its mean over what the norm sees, so U' h has none either.
    """
    offset = tl.load(affine + 4 * H + gates, mask=within, other=0.0)
    mean, scale = tl.zeros((1, 2, 2), tl.float32), tl.full((1, 2, 2), 1.0, tl.float32)
    if NORM == "none":
        return x + projected + offset, mean, scale
    else:
        z = projected
        if NORM != "apart":
            mean = mean_of(x, H, NORM)
            z += tl.where(within, x - mean, 0.0)
            x = tl.zeros_like(x)
        scale = scale_of(mean_of(z * z, H, NORM), EPS)
        gain = tl.load(affine + gates, mask=within, other=0.0)
        return x + gain * (z * scale) + offset, mean, scale


@triton.jit
@no_type_check
def normalised_memory(
    raw, affine, columns, inside, H: tl.constexpr, CELL_NORM: tl.constexpr, EPS: tl.constexpr
):  # fmt: skip
    """LN(c), or c where it has no norm; and the mean and 1 / sqrt(var + eps)."""
    if CELL_NORM == "none":
        return raw, 0.0, 1.0
    else:
        mean = tl.sum(tl.where(inside, raw, 0.0), 0) / H
        centred = tl.where(inside, raw - mean, 0.0)
        scale = scale_of(tl.sum(centred * centred, 0) / H, EPS)
        return cell_affine(centred * scale, affine, columns, inside, H), mean, scale
