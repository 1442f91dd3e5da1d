"""The backward pass of `las.nn.kernels.triton.persistent`: a launch computes all frames.

Program p of a group of rows owns some units of a direction, and keeps a tile of U' of SIDE x SIDE in shared memory. A
frame is

    dh_t = dy_t + r (sum over row blocks of w U')
    dG, w               for its units, with sums over all programs; w to the programs that multiply it
    w U'                for its tile

Buffers and tiles are those of `persistent_forward`.
"""

from typing import no_type_check

import triton
import triton.language as tl

from las.nn.kernels.triton.exchange import awaited, collect, numbers_of, operand_of, publish, tag_of, tagged, words_of
from las.nn.kernels.triton.rows import normed, tanh
from las.nn.kernels.triton.tiles import each_gate, each_norm, four, over_units, store_four


@triton.jit
@no_type_check
def largest(i, f, g, o):
    """Return the largest of four numbers; 1 where there are none."""
    most = tl.maximum(tl.maximum(i, f), tl.maximum(g, o))
    return tl.where(most > 0, most, 1.0)


@triton.jit
@no_type_check
def summed(products, mask, turn, stride, SIDE: tl.constexpr, DIRECTIONS: tl.constexpr):
    """Wait for the products of all row blocks, which lie `stride` apart, and return their sum; 0 before turn 0."""
    products += (turn % 2) * (DIRECTIONS * SIDE) * stride
    mask = mask & (turn >= 0)
    total, missing = tagged_sum(products, mask, turn, stride, SIDE)
    while missing != 0:
        total, missing = tagged_sum(products, mask, turn, stride, SIDE)
    return total


@triton.jit
@no_type_check
def tagged_sum(products, mask, turn, stride, SIDE: tl.constexpr):
    """Return a sum of tagged numbers, and whether one of them is of another turn."""
    tag = tag_of(turn)
    found = tl.load(products, mask=mask, other=0, volatile=True)
    total, wrong = numbers_of(found), (found & 1) ^ tag
    for block in tl.static_range(1, SIDE):
        found = tl.load(products + block * stride, mask=mask, other=0, volatile=True)
        total += numbers_of(found)
        wrong |= (found & 1) ^ tag
    return total, tl.max(tl.ravel(tl.where(mask, wrong, 0)), 0)


@triton.jit
@no_type_check
def publish_gates(place, i, f, g, o, mask, turn, stride: tl.constexpr, KIND: tl.constexpr):
    """Write the words of four gates, which lie `stride` apart."""
    tl.store(place, words_of(i, turn, KIND), mask=mask)
    tl.store(place + stride, words_of(f, turn, KIND), mask=mask)
    tl.store(place + 2 * stride, words_of(g, turn, KIND), mask=mask)
    tl.store(place + 3 * stride, words_of(o, turn, KIND), mask=mask)


@triton.jit
@no_type_check
def finite(numbers):
    """Return numbers that fp16 can hold, and NaN where they are."""
    return tl.clamp(numbers, -65504.0, 65504.0, propagate_nan=tl.PropagateNan.ALL)


@triton.jit(do_not_specialize=["frames", "batch", "slots", "first_direction", "first_group"])
@no_type_check
def backward(
    d_outputs, weight, affine, first, lengths, d_last, gates, cells, statistics, projected,
    d_gates, d_projected, d_normalised, d_first, vectors, partial, sums,
    frames, batch, slots, first_direction, first_group,
    H: tl.constexpr, OWN: tl.constexpr, UNITS: tl.constexpr, ROWS: tl.constexpr, SIDE: tl.constexpr,
    SPAN: tl.constexpr, PROGRAMS: tl.constexpr, PADDED: tl.constexpr, DIRECTIONS: tl.constexpr, NORM: tl.constexpr,
    CELL_NORM: tl.constexpr, KIND: tl.constexpr, OPERAND: tl.constexpr, OUTPUT: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """All frames of the rows of a group from the last to the first, by the equations of `steps.backward_row`.

    Program p owns units p OWN and after, and multiplies the gates of the block p // SIDE of SIDE OWN units by the
    columns of the block p % SIDE. What it publishes is w r / max(r) over the gates' norms, which has the size of dG
    whatever r is; the reader multiplies by max(r). Grid: (programs, directions, groups).
    """
    p, direction, group = tl.program_id(0), first_direction + tl.program_id(1), first_group + tl.program_id(2)
    from_end = direction % 2
    sums += (direction * slots // ROWS + group) * (2 * PROGRAMS * 8 * ROWS)
    row = group * ROWS + tl.arange(0, ROWS)
    length = tl.load(lengths + row, mask=row < batch, other=0)
    unit = p * OWN + tl.arange(0, UNITS)
    owned = (tl.arange(0, UNITS) < OWN) & (unit < H)
    mine = owned[:, None] & (row < batch)[None, :]
    affine += direction * (10 * H)
    gain_i, gain_f, gain_g, gain_o = four(affine + unit[:, None], owned[:, None], H)
    cell_gain = tl.load(affine + 8 * H + unit, mask=owned, other=0.0)[:, None]
    cell_bias = tl.load(affine + 9 * H + unit, mask=owned, other=0.0)[:, None]
    # The tile of U': columns of one block, gates of another.
    n = tl.arange(0, SPAN)
    to = (p % SIDE) * (SIDE * OWN) + n
    reached = (n < SIDE * OWN) & (to < H)
    k = tl.arange(0, 4 * SPAN)
    source = (p // SIDE) * (SIDE * OWN) + k % SPAN
    taken = (k % SPAN < SIDE * OWN) & (source < H)
    source += (k // SPAN) * H
    weight += direction * (4 * H * H) + source[None, :] * H + to[:, None]
    w = tl.load(weight, mask=reached[:, None] & taken[None, :], other=0.0)
    state = (direction * batch + row[None, :]) * H + unit[:, None]
    d_last_hidden = tl.load(d_last + state, mask=mine, other=0.0)
    dc = tl.load(d_last + DIRECTIONS * batch * H + state, mask=mine, other=0.0)
    initial = tl.load(first + DIRECTIONS * batch * H + state, mask=mine, other=0.0)
    products = partial + (direction * SIDE * slots + row[None, :]) * H + unit[:, None]
    # Words of four gates, of all programs; of those of a block of rows of U', which this program multiplies; its own.
    PACK: tl.constexpr = 1 if tl.float32 == OPERAND else 2
    words: tl.constexpr = 4 * PROGRAMS * OWN // PACK
    span: tl.constexpr = SPAN // PACK
    word = tl.arange(0, 4 * span)
    inside = word % span < SIDE * OWN // PACK
    word = (word // span) * (words // 4) + (p // SIDE) * (SIDE * OWN // PACK) + word % span
    vectors += direction * slots * words
    own_word = tl.arange(0, UNITS // PACK)
    own_words = row[None, :] * words + (p * (OWN // PACK) + own_word)[:, None]
    mine_words = (own_word < OWN // PACK)[:, None]
    turn, frames_here = 0, tl.max(length, 0)
    for step in range(0, frames_here):
        t = frames_here - 1 - step
        active, later = t < length, t + 1 < length
        position = (row * frames + t + from_end * (length - 1 - 2 * t)).to(tl.int64)
        place = direction * batch * frames.to(tl.int64) + position
        here = owned[:, None] & active[None, :]
        at = place[None, :] * H + unit[:, None]
        numbers = statistics + place[None, :] * 10
        known = active[None, :]
        target = d_outputs + (position[None, :] * DIRECTIONS + direction) * H + unit[:, None]
        dh = tl.load(target, mask=here, other=0.0).to(tl.float32)
        wide = place[None, :] * (4 * H) + unit[:, None]
        i, f, g, o = four(gates + wide, here, H)
        centred = tl.load(cells + at, mask=here, other=0.0).to(tl.float32)
        cell_mean = tl.load(numbers + 8, mask=known, other=0.0)
        cell_scale = tl.load(numbers + 9, mask=known, other=1.0)
        cell_n = centred * cell_scale
        # The frame before this one is one to the left, or to the right for every second direction.
        has_earlier = active & (t > 0)
        earlier = place + 2 * from_end - 1
        old = tl.load(
            cells + earlier[None, :] * H + unit[:, None], mask=owned[:, None] & has_earlier[None, :], other=0.0
        )
        old_mean = tl.load(statistics + earlier * 10 + 8, mask=has_earlier, other=0.0)[None, :]
        previous = old.to(tl.float32) + old_mean
        seen = centred + cell_mean
        if CELL_NORM == "output" or CELL_NORM == "both":
            seen = cell_gain * cell_n + cell_bias
        if CELL_NORM == "state" or CELL_NORM == "both":
            old_scale = tl.load(statistics + earlier * 10 + 9, mask=has_earlier, other=1.0)[None, :]
            previous = cell_gain * (old.to(tl.float32) * old_scale) + cell_bias
        previous = tl.where(has_earlier[None, :], previous, initial)
        squashed = tanh(seen)
        if NORM != "none":
            n_i, n_f, n_g, n_o = four(projected + wide, here, H)
            r_i, r_f, r_g, r_o = four(numbers + 4, known, 1)
            n_i, n_f, n_g, n_o = (
                normed(n_i, r_i, KIND),
                normed(n_f, r_f, KIND),
                normed(n_g, r_g, KIND),
                normed(n_o, r_o, KIND),
            )
            peak = largest(r_i, r_f, r_g, r_o)
            later_scales = statistics + (place + 1 - 2 * from_end)[None, :] * 10 + 4
            next_i, next_f, next_g, next_o = four(later_scales, later[None, :], 1)
            next_peak = largest(next_i, next_f, next_g, next_o)
        arriving = summed(products, owned[:, None], step - 1, slots * H, SIDE, DIRECTIONS)
        if NORM != "none":
            arriving *= next_peak
        dh += tl.where(later[None, :], arriving, d_last_hidden)
        ds = dh * o * (1 - squashed * squashed)
        d_raw = ds + dc
        if CELL_NORM != "none":
            d, past = d_raw, tl.zeros_like(d_raw)
            if CELL_NORM == "output":
                d, past = ds, dc
            if CELL_NORM == "state":
                d, past = dc, ds
            y = d * cell_gain
            tl.store(d_normalised + at, d.to(OPERAND), mask=here)
            if KIND == "layer" or KIND == "rms":
                inner = tl.where(owned[:, None], y * cell_n, 0.0)
                pairs = tl.join(tl.sum(tl.where(owned[:, None], y, 0.0), 0), tl.sum(inner, 0))
                pairs = tl.reshape(pairs, (2 * ROWS,))
                publish(pairs, sums, turn, p, 2 * ROWS, ROWS, PROGRAMS)
                found = tl.sum(collect(sums, turn, 2 * ROWS, ROWS, PROGRAMS, PADDED), 0)
                turn += 1
                of_y, of_inner = tl.split(tl.reshape(found / H, (ROWS, 2)))
                y -= cell_n * over_units(of_inner)
                if KIND == "layer":
                    y -= over_units(of_y)
                y *= cell_scale
            d_raw = past + y
        dc = tl.where(active[None, :], d_raw * f, dc)
        d_i = tl.where(here, d_raw * g * i * (1 - i), 0.0)
        d_f = tl.where(here, d_raw * previous * f * (1 - f), 0.0)
        d_g = tl.where(here, d_raw * i * (1 - g * g), 0.0)
        d_o = tl.where(here, dh * squashed * o * (1 - o), 0.0)
        turns = vectors + (step % 2) * DIRECTIONS * slots * words
        if NORM == "none":
            publish_gates(turns + own_words, d_i, d_f, d_g, d_o, mine_words, step, words // 4, OPERAND)
        else:
            v_i, v_f, v_g, v_o = d_i * gain_i, d_f * gain_f, d_g * gain_g, d_o * gain_o
            if KIND == "tanh":
                v_i, v_f = v_i * (1 - n_i * n_i), v_f * (1 - n_f * n_f)
                v_g, v_o = v_g * (1 - n_g * n_g), v_o * (1 - n_o * n_o)
            if KIND == "layer" or KIND == "rms":
                inner = each_norm(v_i * n_i, v_f * n_f, v_g * n_g, v_o * n_o, ROWS, NORM)
                size: tl.constexpr = inner.shape[0]
                pairs = tl.reshape(tl.join(each_norm(v_i, v_f, v_g, v_o, ROWS, NORM), inner), (2 * size,))
                publish(pairs, sums, turn, p, 2 * size, ROWS, PROGRAMS)
                found = tl.sum(collect(sums, turn, 2 * size, ROWS, PROGRAMS, PADDED), 0)
                turn += 1
                of_v, of_inner = tl.split(tl.reshape(found / (H if NORM == "per_gate" else 4 * H), (size, 2)))
                q_i, q_f, q_g, q_o = each_gate(of_inner, ROWS, NORM)
                v_i, v_f, v_g, v_o = v_i - n_i * q_i, v_f - n_f * q_f, v_g - n_g * q_g, v_o - n_o * q_o
                if KIND == "layer" and NORM != "apart":
                    q_i, q_f, q_g, q_o = each_gate(of_v, ROWS, NORM)
                    v_i, v_f, v_g, v_o = v_i - q_i, v_f - q_f, v_g - q_g, v_o - q_o
            z_i, z_f, z_g, z_o = v_i * r_i, v_f * r_f, v_g * r_g, v_o * r_o
            shrink = tl.where(here, 1 / peak, 0.0)
            o_i, o_f, o_g, o_o = z_i * shrink, z_f * shrink, z_g * shrink, z_o * shrink
            publish_gates(turns + own_words, o_i, o_f, o_g, o_o, mine_words, step, words // 4, OPERAND)
            if tl.float16 == OPERAND:
                # U h = 0 at the first frame makes r as large as 1 / sqrt(eps); an infinity would be NaN in dU = dz h^T.
                z_i, z_f, z_g, z_o = finite(z_i), finite(z_f), finite(z_g), finite(z_o)
            store_four(d_projected + wide, z_i, z_f, z_g, z_o, here, H, OPERAND)
        store_four(d_gates + wide, d_i, d_f, d_g, d_o, here, H, OPERAND)
        values = awaited(turns + row[None, :] * words + word[:, None], inside[:, None] & (row >= 0)[None, :], step)
        product = tl.dot(w, operand_of(values, OPERAND), input_precision=PRECISION)
        result = partial + (((step % 2 * DIRECTIONS + direction) * SIDE + p // SIDE) * slots + row[None, :]) * H
        tl.store(result + to[:, None], tagged(product, step), mask=reached[:, None])
    begun = length > 0
    arriving = summed(products, owned[:, None], frames_here - 1, slots * H, SIDE, DIRECTIONS)
    if NORM != "none":
        start = direction * batch * frames.to(tl.int64) + row * frames + from_end * (length - 1)
        next_i, next_f, next_g, next_o = four(statistics + start[None, :] * 10 + 4, begun[None, :], 1)
        arriving *= largest(next_i, next_f, next_g, next_o)
    tl.store(d_first + state, tl.where(begun[None, :], arriving, d_last_hidden), mask=mine)
    tl.store(d_first + DIRECTIONS * batch * H + state, dc, mask=mine)
