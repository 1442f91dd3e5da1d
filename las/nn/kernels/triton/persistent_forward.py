"""The forward pass of `las.nn.kernels.triton.persistent`: a launch computes all frames.

Program p of a group of rows owns some units of a direction and keeps their rows of U' in shared memory. A frame is

    z   = U' h_{t-1}    for its units
    n   = z r,    r from sums over all programs
    c_t, h_t            for its units, and h_t to all programs

Large buffers are [directions, batch, frames, ...] by the position of the frame; every second direction visits the
frames of a row from its true end. A tile of numbers is [units, rows]; statistics, memory and sums are fp32.
"""

from typing import no_type_check

import triton
import triton.language as tl

from las.nn.kernels.triton.exchange import awaited, collect, operand_of, publish, words_of
from las.nn.kernels.triton.rows import normed, scale_of, split_gates, tanh
from las.nn.kernels.triton.tiles import each_gate, four, over_units, store_four


@triton.jit
@no_type_check
def memory_moments(raw, mine, sums, turn, p, H: tl.constexpr, OWN: tl.constexpr, ROWS: tl.constexpr,
                   KIND: tl.constexpr, EPS: tl.constexpr, PROGRAMS: tl.constexpr, PADDED: tl.constexpr):  # fmt: skip
    """Return mean and scale of the memory of all programs, [1, ROWS], by the moments of each (Chan et al. 1979)."""
    if KIND == "rms":
        squares = tl.sum(tl.where(mine, raw * raw, 0.0), 0)
        publish(squares, sums, turn, p, ROWS, ROWS, PROGRAMS)
        total = tl.sum(collect(sums, turn, ROWS, ROWS, PROGRAMS, PADDED), 0)
        return tl.zeros((1, ROWS), tl.float32), over_units(scale_of(total / H, EPS))
    else:
        own = tl.minimum(OWN, H - p * OWN).to(tl.float32)
        mean = tl.sum(tl.where(mine, raw, 0.0), 0) / own
        apart = tl.where(mine, raw - mean[None, :], 0.0)
        pairs = tl.reshape(tl.join(mean, tl.sum(apart * apart, 0)), (2 * ROWS,))
        publish(pairs, sums, turn, p, 2 * ROWS, ROWS, PROGRAMS)
        found = collect(sums, turn, 2 * ROWS, ROWS, PROGRAMS, PADDED)
        means, squares = tl.split(tl.reshape(found, (PADDED, ROWS, 2)))
        units = tl.minimum(OWN, tl.maximum(0, H - tl.arange(0, PADDED) * OWN)).to(tl.float32)[:, None]
        mean = tl.sum(units * means, 0) / H
        off = means - mean[None, :]
        scale = scale_of(tl.sum(squares + units * off * off, 0) / H, EPS)
        return over_units(mean), over_units(scale)


@triton.jit(do_not_specialize=["frames", "batch", "slots"])
@no_type_check
def forward(
    x, gap, weight, affine, first, lengths, outputs, gates, cells, statistics, last, hidden, sums,
    frames, batch, slots,
    H: tl.constexpr, BLOCK: tl.constexpr, OWN: tl.constexpr, UNITS: tl.constexpr, ROWS: tl.constexpr,
    PROGRAMS: tl.constexpr, PADDED: tl.constexpr, DIRECTIONS: tl.constexpr, NORM: tl.constexpr,
    CELL_NORM: tl.constexpr, KIND: tl.constexpr, EPS: tl.constexpr, OPERAND: tl.constexpr, OUTPUT: tl.constexpr,
    PRECISION: tl.constexpr, KEEP: tl.constexpr,
):  # fmt: skip
    """All frames of the rows of a group, by the equations of `steps.forward_row`.

    x of a direction lies `gap` elements after that of the one before. Grid: (programs, directions, groups).
    """
    p, direction, group = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    sums += (direction * slots // ROWS + group) * (2 * PROGRAMS * 8 * ROWS)
    row = group * ROWS + tl.arange(0, ROWS)
    length = tl.load(lengths + row, mask=row < batch, other=0)
    unit = p * OWN + tl.arange(0, UNITS)
    owned = (tl.arange(0, UNITS) < OWN) & (unit < H)
    mine = owned[:, None] & (row < batch)[None, :]
    affine += direction * (10 * H)
    gain_i, gain_f, gain_g, gain_o = four(affine + unit[:, None], owned[:, None], H)
    bias_i, bias_f, bias_g, bias_o = four(affine + 4 * H + unit[:, None], owned[:, None], H)
    cell_gain = tl.load(affine + 8 * H + unit, mask=owned, other=0.0)[:, None]
    cell_bias = tl.load(affine + 9 * H + unit, mask=owned, other=0.0)[:, None]
    # Rows of U' by gate, then by unit.
    r = tl.arange(0, 4 * UNITS)
    own = (r % UNITS < OWN) & (p * OWN + r % UNITS < H)
    k = tl.arange(0, BLOCK)
    source = (r // UNITS) * H + p * OWN + r % UNITS
    weight += direction * (4 * H * H) + source[:, None] * H + k[None, :]
    w = tl.load(weight, mask=own[:, None] & (k < H)[None, :], other=0.0)
    state = (direction * batch + row[None, :]) * H + unit[:, None]
    h = tl.load(first + state, mask=mine, other=0.0)
    c = tl.load(first + DIRECTIONS * batch * H + state, mask=mine, other=0.0)
    x += direction * gap
    PACK: tl.constexpr = 1 if tl.float32 == OPERAND else 2
    words: tl.constexpr = PROGRAMS * OWN // PACK
    word = tl.arange(0, BLOCK // PACK)
    hidden += direction * slots * words
    own_word = tl.arange(0, UNITS // PACK)
    own_words = row[None, :] * words + (p * (OWN // PACK) + own_word)[:, None]
    mine_words = (own_word < OWN // PACK)[:, None]
    tl.store(hidden + own_words, words_of(tl.where(owned[:, None], h, 0.0), 0, OPERAND), mask=mine_words)
    turn = 0
    for t in range(0, tl.max(length, 0)):
        active = t < length
        position = (row * frames + t + direction % 2 * (length - 1 - 2 * t)).to(tl.int64)
        place = direction * batch * frames.to(tl.int64) + position
        here = owned[:, None] & active[None, :]
        if NORM == "none" or NORM == "apart":
            x_i, x_f, x_g, x_o = four(x + position[None, :] * (4 * H) + unit[:, None], here, H)
        else:
            known = own[:, None] & active[None, :]
            inner = tl.load(x + position[None, :] * (4 * H) + source[:, None], mask=known, other=0.0).to(tl.float32)
            if KIND == "layer":
                mean = tl.load(statistics + place[None, :] * 10 + (r // UNITS)[:, None], mask=known, other=0.0)
                inner = tl.where(known, inner - mean, 0.0)
        turns = hidden + (t % 2) * DIRECTIONS * slots * words
        values = awaited(turns + row[None, :] * words + word[:, None], (word < words)[:, None] & (row >= 0)[None, :], t)
        product = tl.dot(w, operand_of(values, OPERAND), input_precision=PRECISION)
        if NORM == "joined" or NORM == "per_gate":
            product += inner
        if NORM != "none" and (KIND == "layer" or KIND == "rms"):
            if NORM == "per_gate":
                squares = tl.sum(tl.reshape(product * product, (2, 2, UNITS, ROWS)), 2)
                squares = tl.reshape(tl.permute(squares, (2, 0, 1)), (4 * ROWS,))
            else:
                squares = tl.sum(product * product, 0)
            length_of_sums: tl.constexpr = squares.shape[0]
            publish(squares, sums, turn, p, length_of_sums, ROWS, PROGRAMS)
        i, f, g, o = split_gates(tl.permute(tl.reshape(product, (2, 2, UNITS, ROWS)), (2, 3, 0, 1)))
        one = tl.full((1, ROWS), 1.0, tl.float32)
        r_i, r_f, r_g, r_o = one, one, one, one
        if NORM != "none":
            if KIND == "layer" or KIND == "rms":
                found = tl.sum(collect(sums, turn, length_of_sums, ROWS, PROGRAMS, PADDED), 0)
                turn += 1
                r_i, r_f, r_g, r_o = each_gate(scale_of(found / (H if NORM == "per_gate" else 4 * H), EPS), ROWS, NORM)
            i, f = gain_i * normed(i, r_i, KIND), gain_f * normed(f, r_f, KIND)
            g, o = gain_g * normed(g, r_g, KIND), gain_o * normed(o, r_o, KIND)
        if NORM == "none" or NORM == "apart":
            i, f, g, o = i + x_i, f + x_f, g + x_g, o + x_o
        i, f, g, o = tl.sigmoid(i + bias_i), tl.sigmoid(f + bias_f), tanh(g + bias_g), tl.sigmoid(o + bias_o)
        raw = f * c + i * g
        cell_mean, cell_scale = tl.zeros((1, ROWS), tl.float32), one
        normalised = raw
        if CELL_NORM != "none":
            if KIND == "layer" or KIND == "rms":
                cell_mean, cell_scale = memory_moments(
                    raw, owned[:, None], sums, turn, p, H, OWN, ROWS, KIND, EPS, PROGRAMS, PADDED
                )
                turn += 1
            normalised = cell_gain * ((raw - cell_mean) * cell_scale) + cell_bias
        seen = normalised if CELL_NORM == "output" or CELL_NORM == "both" else raw
        carried = normalised if CELL_NORM == "state" or CELL_NORM == "both" else raw
        h = tl.where(active[None, :], o * tanh(seen), h)
        c = tl.where(active[None, :], carried, c)
        turns = hidden + ((t + 1) % 2) * DIRECTIONS * slots * words
        tl.store(turns + own_words, words_of(tl.where(owned[:, None], h, 0.0), t + 1, OPERAND), mask=mine_words)
        target = outputs + (position[None, :] * DIRECTIONS + direction) * H + unit[:, None]
        tl.store(target, h.to(OUTPUT), mask=here)
        if KEEP:
            store_four(gates + place[None, :] * (4 * H) + unit[:, None], i, f, g, o, here, H, gates.dtype.element_ty)
            tl.store(
                cells + place[None, :] * H + unit[:, None], (raw - cell_mean).to(cells.dtype.element_ty), mask=here
            )
            known = (active & (p == 0))[None, :]
            numbers = statistics + place[None, :] * 10
            store_four(numbers + 4, r_i, r_f, r_g, r_o, known, 1, tl.float32)
            tl.store(numbers + 8, cell_mean, mask=known)
            tl.store(numbers + 9, cell_scale, mask=known)
    tl.store(last + state, h, mask=mine)
    tl.store(last + DIRECTIONS * batch * H + state, c, mask=mine)
