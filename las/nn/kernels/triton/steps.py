"""The device code of one step of `las.nn.kernels.triton.layer`. Forwards, a step has two phases:

    product        P1   products[part, d, row] = values[d, row, part's columns] weight[d, :, part's columns]^T
    forward_row    P2   norm, gates, memory and output of one row, from the product U' h_{t-1}

Backwards, it has the same in the opposite order, and after the loop over frames `norm_sums` computes the gradients of
gains and biases:

    backward_row   P2'  gradients of one row, from the products that sum to dh_t
    product        P1'  P1 with one part for each gate: w_k U'_k

One program of a row phase holds a row's four gates as a tile [H, 2, 2] (i f, g o), so that cells differ only in
a row's equations. Statistics, memory and accumulators are fp32.

Small tensors that the phases share, [directions, rows, ...] with rows rounded up, have fixed addresses, so that a
captured graph can be replayed. A table holds what changes from call to call: sizes and addresses of large buffers. Each
row has its own clock: a step is the same launch at every frame, and has no effect on a row that is at its end. Large
buffers are [directions, batch, frames, ...] by the position of the frame; every second direction visits the frames of a
row from its true end.
"""

from typing import no_type_check

import triton
import triton.language as tl

from las.nn.kernels.triton.rows import (
    CELLS,
    D_GATES,
    D_NORMALISED,
    D_OUTPUTS,
    D_PROJECTED,
    GATES,
    INPUTS,
    OUTPUTS,
    PROJECTED,
    address,
    cell_affine,
    join_gates,
    load_four,
    mean_of,
    normed,
    place_of,
    row_of,
    scale_of,
    split_gates,
    statistics_of,
    store_four,
    tanh,
)


@triton.jit
@no_type_check
def backward_row(
    table, clock, lengths, affine, products, scales, operand, first_cell, d_cell, ROWS,
    H: tl.constexpr, BLOCK: tl.constexpr, DIRECTIONS: tl.constexpr, NORM: tl.constexpr, CELL_NORM: tl.constexpr,
    KIND: tl.constexpr, OUTPUT: tl.constexpr, OPERAND: tl.constexpr,
):  # fmt: skip
    """One row of one frame backwards, where s is what the output sees of the memory:

        dh_t = dy_t + sum over gates k of r_k (w_k U'_k) of frame t+1
        ds   = o (1 - tanh(s)^2) dh_t
        dG   = dc g i(1-i), dc c_{t-1} f(1-f), dc i (1-g^2), dh tanh(s) o(1-o)

    with dc as in `through_memory` and w as in `through_norm`. Grid: (rows, directions).
    """
    row, direction = tl.program_id(0), tl.program_id(1)
    slot = direction * ROWS + row
    t, length = tl.load(clock + slot), tl.load(lengths + row)
    if t < 0:
        return
    position, place = place_of(table, row, direction, t, length)
    columns, inside, gates, within = row_of(H, BLOCK)
    affine += direction * (10 * H)
    d_outputs = address(table, D_OUTPUTS, OUTPUT) + (position * DIRECTIONS + direction) * H
    dh = tl.load(d_outputs + columns, mask=inside, other=0.0).to(tl.float32)
    dh += gathered(products, scales, slot, DIRECTIONS * ROWS, columns, inside, H)
    tl.debug_barrier()  # every thread has read the clock and the scales before one sets them
    KEPT: tl.constexpr = tl.float16 if tl.bfloat16 == OPERAND else OPERAND
    activations = address(table, GATES, KEPT) + place * (4 * H)
    i, f, g, o = split_gates(tl.load(activations + gates, mask=within, other=0.0).to(tl.float32))
    seen = memory_at(table, place, affine, columns, inside, H, CELL_NORM, OPERAND)[0]
    previous = tl.load(first_cell + slot * H + columns, mask=inside, other=0.0)
    if t > 0:
        # The frame before this one is one to the left, or to the right for every second direction.
        earlier = place + 2 * (direction % 2) - 1
        previous = memory_at(table, earlier, affine, columns, inside, H, CELL_NORM, OPERAND)[1]
    squashed = tanh(seen)
    ds = dh * o * (1 - squashed * squashed)
    d_carried = tl.load(d_cell + slot * H + columns, mask=inside, other=0.0)
    dc = through_memory(ds, d_carried, table, place, affine, columns, inside, H, CELL_NORM, KIND, OPERAND)
    tl.store(d_cell + slot * H + columns, dc * f, mask=inside)
    do = dh * squashed * o * (1 - o)
    d_gates = join_gates(dc * g * i * (1 - i), dc * previous * f * (1 - f), dc * i * (1 - g * g), do)
    tl.store(address(table, D_GATES, OPERAND) + place * (4 * H) + gates, d_gates.to(OPERAND), mask=within)
    w = through_norm(d_gates, table, place, affine, scales + slot * 4, gates, within, H, NORM, KIND, OPERAND)
    tl.store(operand + slot * (4 * H) + gates, w.to(OPERAND), mask=within)
    tl.store(clock + slot, t - 1)


@triton.jit
@no_type_check
def through_memory(
    ds, d_carried, table, place, affine, columns, inside,
    H: tl.constexpr, CELL_NORM: tl.constexpr, KIND: tl.constexpr, OPERAND: tl.constexpr,
):  # fmt: skip
    """Return the gradient of c from that of the memory seen by the output and that of the carried one (f_{t+1}
    dc_{t+1}).

    The part d that came through LN(c) goes back as r (y - mean(y) - n mean(y n)) with y = gain d, n = (c - mean) r.
    RMS norm has no mean and no mean(y), and without a norm y goes back as it is.
    """
    if CELL_NORM == "none":
        return ds + d_carried
    else:
        d = ds + d_carried
        past = tl.zeros_like(d)
        if CELL_NORM == "output":
            d, past = ds, d_carried
        if CELL_NORM == "state":
            d, past = d_carried, ds
        _, n, scale = cell_at(table, place, columns, inside, H, OPERAND)
        y = d * tl.load(affine + 8 * H + columns, mask=inside, other=0.0)
        tl.store(address(table, D_NORMALISED, OPERAND) + place * H + columns, d.to(OPERAND), mask=inside)
        if KIND == "layer":
            return past + scale * (y - tl.sum(y, 0) / H - n * (tl.sum(y * n, 0) / H))
        elif KIND == "rms":
            return past + scale * (y - n * (tl.sum(y * n, 0) / H))
        else:
            return past + y


@triton.jit
@no_type_check
def through_norm(
    d_gates, table, place, affine, scales, gates, within,
    H: tl.constexpr, NORM: tl.constexpr, KIND: tl.constexpr, OPERAND: tl.constexpr,
):  # fmt: skip
    """w = y - n mean(y n) and dz = r (w - mean(w)), with y = gain dG, n = z r, z less its mean; w = dG without a norm.

    r enters linearly and is left to the next step by way of `scales`: w has the size of dG, whatever the number
    format. The mean of w is nothing to w U', because U' has none; it is taken where x is inside the norm, for then
    dz is the gradient of x. RMS norm has no mean, dynamic tanh w = y (1 - n^2) with n = tanh(z), and r = 1.
    """
    if NORM == "none":
        return d_gates
    else:
        scale = load_four(statistics_of(table, place) + 4)
        projected = address(table, PROJECTED, OPERAND) + place * (4 * H)
        z = tl.load(projected + gates, mask=within, other=0.0).to(tl.float32)
        n = normed(z, scale, KIND)
        y = d_gates * tl.load(affine + gates, mask=within, other=0.0)
        w = y
        if KIND == "tanh":
            w = y * (1 - n * n)
        if KIND == "layer" or KIND == "rms":
            w = y - n * mean_of(y * n, H, NORM)
        if KIND == "layer" and NORM != "apart":
            w -= mean_of(y, H, NORM)
        dz = w * scale
        if tl.float16 == OPERAND:
            # U h = 0 at the first frame makes r as large as 1 / sqrt(eps); an infinity would be NaN in dU = dz h^T.
            dz = tl.clamp(dz, -65504.0, 65504.0, propagate_nan=tl.PropagateNan.ALL)
        target = address(table, D_PROJECTED, OPERAND) + place * (4 * H)
        tl.store(target + gates, dz.to(OPERAND), mask=within)
        store_four(scales, scale)
        return w


@triton.jit
@no_type_check
def gathered(products, scales, slot, slots, columns, inside, H: tl.constexpr):
    """sum over gates k of r_k (w_k U'_k), of which P1' made the products."""
    total = tl.zeros_like(columns).to(tl.float32)
    for gate in tl.static_range(4):
        part = tl.load(products + (gate * slots + slot) * H + columns, mask=inside, other=0.0)
        total += tl.load(scales + slot * 4 + gate) * part
    return total


@triton.jit
@no_type_check
def memory_at(
    table, place, affine, columns, inside, H: tl.constexpr, CELL_NORM: tl.constexpr, OPERAND: tl.constexpr
):  # fmt: skip
    """Return the memory at a frame as the output saw it, and as it was carried to the next frame."""
    raw, n, _ = cell_at(table, place, columns, inside, H, OPERAND)
    seen, carried = raw, raw
    if CELL_NORM == "output" or CELL_NORM == "both":
        seen = cell_affine(n, affine, columns, inside, H)
    if CELL_NORM == "state" or CELL_NORM == "both":
        carried = cell_affine(n, affine, columns, inside, H)
    return seen, carried


@triton.jit
@no_type_check
def cell_at(table, place, columns, inside, H: tl.constexpr, OPERAND: tl.constexpr):
    """c of a frame, c normalised, and the scale of its norm (1, and a mean of 0, where it has none)."""
    KEPT: tl.constexpr = tl.float16 if tl.bfloat16 == OPERAND else OPERAND
    centred = tl.load(address(table, CELLS, KEPT) + place * H + columns, mask=inside, other=0.0).to(tl.float32)
    statistics = statistics_of(table, place)
    scale = tl.load(statistics + 9)
    return centred + tl.load(statistics + 8), centred * scale, scale


@triton.jit
@no_type_check
def norm_sums(
    partial, grads, values, statistics, ROWS, N: tl.constexpr, GROUP: tl.constexpr, SCALE: tl.constexpr,
    KIND: tl.constexpr, TILE_ROWS: tl.constexpr, TILE_N: tl.constexpr,
):  # fmt: skip
    """Gradients of a norm's gain and bias, from the gradient d of its result and its centred argument v:

        partial[p, 0, n] = sum over rows of d v r    (d tanh(v) for dynamic tanh)
        partial[p, 1, n] = sum over rows of d

    over the tiles of rows that part p takes in turn with the others. A row has one norm for each `GROUP` columns.
    Grid: (tiles of N, parts).
    """
    columns = tl.program_id(0) * TILE_N + tl.arange(0, TILE_N)
    group = (columns // GROUP)[None, :]
    gain, bias = tl.zeros((TILE_ROWS, TILE_N), tl.float32), tl.zeros((TILE_ROWS, TILE_N), tl.float32)
    start = tl.program_id(1) * TILE_ROWS
    while start < ROWS:
        rows = (start + tl.arange(0, TILE_ROWS)).to(tl.int64)[:, None]
        inside = (rows < ROWS) & (columns < N)[None, :]
        d = tl.load(grads + rows * N + columns[None, :], mask=inside, other=0.0).to(tl.float32)
        v = tl.load(values + rows * N + columns[None, :], mask=inside, other=0.0).to(tl.float32)
        scale = tl.load(statistics + rows * 10 + SCALE + group, mask=inside, other=0.0)
        gain += d * normed(v, scale, KIND)
        bias += d
        start += tl.num_programs(1) * TILE_ROWS
    partial += tl.program_id(1) * (2 * N) + columns
    tl.store(partial, tl.sum(gain, 0), mask=columns < N)
    tl.store(partial + N, tl.sum(bias, 0), mask=columns < N)


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
    KIND: tl.constexpr, EPS: tl.constexpr, INPUT: tl.constexpr, OUTPUT: tl.constexpr, OPERAND: tl.constexpr,
    KEEP: tl.constexpr,
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
    pre, mean, scale = pre_activations(inputs.to(tl.float32), projected, affine, gates, within, H, NORM, KIND, EPS)
    i, f, g, o = split_gates(pre)
    i, f, g, o = tl.sigmoid(i), tl.sigmoid(f), tanh(g), tl.sigmoid(o)
    cells = memory + (DIRECTIONS * ROWS + slot) * H + columns
    raw = f * tl.load(cells, mask=inside, other=0.0) + i * g
    normalised, cell_mean, cell_scale = normalised_memory(raw, affine, columns, inside, H, CELL_NORM, KIND, EPS)
    h = o * tanh(normalised if CELL_NORM == "output" or CELL_NORM == "both" else raw)
    tl.store(cells, normalised if CELL_NORM == "state" or CELL_NORM == "both" else raw, mask=inside)
    tl.store(memory + slot * H + columns, h, mask=inside)
    tl.store(operand + slot * H + columns, h.to(OPERAND), mask=inside)
    outputs = address(table, OUTPUTS, OUTPUT) + (position * DIRECTIONS + direction) * H
    tl.store(outputs + columns, h.to(OUTPUT), mask=inside)
    tl.store(clock + slot, t + 1)
    if KEEP:
        KEPT: tl.constexpr = tl.float16 if tl.bfloat16 == OPERAND else OPERAND
        target = address(table, GATES, KEPT) + place * (4 * H)
        tl.store(target + gates, join_gates(i, f, g, o).to(KEPT), mask=within)
        centred = raw - cell_mean
        tl.store(address(table, CELLS, KEPT) + place * H + columns, centred.to(KEPT), mask=inside)
        statistics = statistics_of(table, place)
        store_four(statistics, mean)
        store_four(statistics + 4, scale)
        tl.store(statistics + 8, cell_mean)
        tl.store(statistics + 9, cell_scale)


@triton.jit
@no_type_check
def pre_activations(
    x, projected, affine, gates, within, H: tl.constexpr, NORM: tl.constexpr, KIND: tl.constexpr, EPS: tl.constexpr
):
    """G of a row, with the mean and the scale of its norm, by `NORM`:

        none      x + U h + b
        apart     x + gain z r + b    z = U' h
        joined    gain z r + b        z = x - mean(x) + U' h,    r = 1 / sqrt(mean(z^2) + eps)
        per_gate  as joined, means over each gate

    U' is U without its mean over what the norm sees, so U' h has none either. RMS norm has no mean, and U' is U; other
    norms have no r either, and dynamic tanh has tanh(z) in the place of z r.
    """
    offset = tl.load(affine + 4 * H + gates, mask=within, other=0.0)
    mean, scale = tl.zeros((1, 2, 2), tl.float32), tl.full((1, 2, 2), 1.0, tl.float32)
    if NORM == "none":
        return x + projected + offset, mean, scale
    else:
        z = projected
        if NORM != "apart":
            if KIND == "layer":
                mean = mean_of(x, H, NORM)
            z += tl.where(within, x - mean, 0.0)
            x = tl.zeros_like(x)
        if KIND == "layer" or KIND == "rms":
            scale = scale_of(mean_of(z * z, H, NORM), EPS)
        gain = tl.load(affine + gates, mask=within, other=0.0)
        return x + gain * normed(z, scale, KIND) + offset, mean, scale


@triton.jit
@no_type_check
def normalised_memory(
    raw, affine, columns, inside, H: tl.constexpr, CELL_NORM: tl.constexpr, KIND: tl.constexpr, EPS: tl.constexpr
):  # fmt: skip
    """LN(c), or c where it has no norm; and the mean and 1 / sqrt(var + eps)."""
    if CELL_NORM == "none":
        return raw, 0.0, 1.0
    elif KIND == "rms":
        scale = scale_of(tl.sum(tl.where(inside, raw * raw, 0.0), 0) / H, EPS)
        return cell_affine(raw * scale, affine, columns, inside, H), 0.0, scale
    elif KIND == "none":
        return cell_affine(raw, affine, columns, inside, H), 0.0, 1.0
    else:
        mean = tl.sum(tl.where(inside, raw, 0.0), 0) / H
        centred = tl.where(inside, raw - mean, 0.0)
        scale = scale_of(tl.sum(centred * centred, 0) / H, EPS)
        return cell_affine(centred * scale, affine, columns, inside, H), mean, scale
