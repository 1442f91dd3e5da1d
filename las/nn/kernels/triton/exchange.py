"""Device functions by which programs that run at the same time exchange numbers through global memory.

A cooperative launch checks that they do. Numbers travel in words of 32 bits, whose lowest bit tells which turn wrote
them, so that a reader waits for the words themselves, and nothing has to be ordered: an fp32 number is a word, as are
two numbers in half precision. That bit is one of the mantissa, of the first of two numbers.

A buffer has room for two turns. Nobody writes into one before everybody has read what was there, since a program that
is two turns ahead has read the turn between, which everybody wrote after reading the one before.
"""

from typing import no_type_check

import triton
import triton.language as tl


@triton.jit
@no_type_check
def tag_of(turn):
    """Return the lowest bit of the words of a turn, another one than that of the turn before in the same buffer."""
    return (turn // 2 + 1) & 1


@triton.jit
@no_type_check
def tagged(values, turn):
    """Return fp32 numbers as words."""
    return (values.to(tl.int32, bitcast=True) & -2) | tag_of(turn)


@triton.jit
@no_type_check
def numbers_of(words):
    """Return the fp32 numbers of words."""
    return (words & -2).to(tl.float32, bitcast=True)


@triton.jit
@no_type_check
def words_of(values, turn, KIND: tl.constexpr):
    """Return [units, rows] as words: as many in fp32, half as many in half precision, of units 2 j and 2 j + 1."""
    if tl.float32 == KIND:
        return tagged(values, turn)
    else:
        pairs = tl.reshape(values, (values.shape[0] // 2, 2, values.shape[1]))
        even, odd = tl.split(tl.permute(pairs, (0, 2, 1)))
        bits = even.to(KIND).to(tl.int16, bitcast=True).to(tl.int32)
        size = bits & 0x7FFF
        size = tl.minimum(size + ((size >> 1) & 1), 0x7FFE) & 0x7FFE  # half to even, and NaN stays NaN
        high = odd.to(KIND).to(tl.int16, bitcast=True).to(tl.int32) << 16
        return high | (bits & 0x8000) | size | tag_of(turn)


@triton.jit
@no_type_check
def operand_of(words, KIND: tl.constexpr):
    """Return the numbers of `words_of`, [units, rows]."""
    if tl.float32 == KIND:
        return numbers_of(words)
    else:
        even = (words & 0xFFFE).to(tl.int16).to(KIND, bitcast=True)
        odd = (words >> 16).to(tl.int16).to(KIND, bitcast=True)
        pairs = tl.permute(tl.join(even, odd), (0, 2, 1))
        return tl.reshape(pairs, (2 * words.shape[0], words.shape[1]))


@triton.jit
@no_type_check
def awaited(place, mask, turn):
    """Wait until all words of a turn are there, and return them; 0 where masked."""
    tag = tag_of(turn)
    found = tl.load(place, mask=mask, other=0, volatile=True)
    missing = tl.max(tl.ravel(tl.where(mask, (found & 1) ^ tag, 0)), 0)
    while missing != 0:
        found = tl.load(place, mask=mask, other=0, volatile=True)
        missing = tl.max(tl.ravel(tl.where(mask, (found & 1) ^ tag, 0)), 0)
    return found


@triton.jit
@no_type_check
def publish(values, sums, turn, p, LENGTH: tl.constexpr, ROWS: tl.constexpr, PROGRAMS: tl.constexpr):
    """Write the vector [LENGTH] of this program for a turn. Turns of the same parity have the same length."""
    place = sums + (turn % 2) * (PROGRAMS * 8 * ROWS) + p * LENGTH
    tl.store(place + tl.arange(0, LENGTH), tagged(values, turn))


@triton.jit
@no_type_check
def collect(sums, turn, LENGTH: tl.constexpr, ROWS: tl.constexpr, PROGRAMS: tl.constexpr, PADDED: tl.constexpr):
    """Return the vectors of all programs, [PADDED, LENGTH]."""
    other = tl.arange(0, PADDED)[:, None]
    entry = tl.arange(0, LENGTH)[None, :]
    place = sums + (turn % 2) * (PROGRAMS * 8 * ROWS) + other * LENGTH + entry
    return numbers_of(awaited(place, (other < PROGRAMS) & (entry >= 0), turn))
