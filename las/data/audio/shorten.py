"""Decoder of shorten, the lossless compression embedded in NIST SPHERE files, versions 1 and 2.

Tony Robinson, "SHORTEN: simple lossless and near-lossless waveform compression" (CUED/F-INFENG/TR.156, 1994). A stream
is a header and commands, all written as Rice codes: zeros, a one, and a fixed number of low bits. A block of one
channel is a predictor and the codes of its residuals; channels take turns.
"""

import functools
import operator
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat

import numpy as np
from jaxtyping import UInt8

from las.runtime.errors import DataError

MAGIC = b"ajkg"
_DIFF3, _QUIT, _BLOCKSIZE, _BITSHIFT, _QLPC, _ZERO = 3, 4, 5, 6, 7, 8
# Sample types with their coding in SPHERE headers. Mu-law of type 8 has a separate number for the negative zero.
_KINDS = {0: "ulaw", 1: "pcm8", 3: "pcm16", 5: "pcm16", 8: "ulaw"}
_SIGNED_ZERO = 8
# Bits of the numbers in a stream: commands, sizes, residual widths, predictor orders, coefficients, skipped bytes.
_COMMAND_BITS, _SIZE_BITS, _WIDTH_BITS, _ORDER_BITS, _SHIFT_BITS, _COEFFICIENT_BITS, _SKIP_BITS = 2, 2, 3, 2, 2, 5, 7
# Bounds that no encoder reaches; damaged streams do.
_MAX_BLOCK, _MAX_ORDER, _MAX_MEANS, _MAX_WIDTH, _MAX_VALUE = 65535, 64, 1024, 32, 1 << 40
_WINDOW_BYTES = 1 << 18  # more than a block of _MAX_BLOCK samples takes


class Damaged(DataError):
    """Damage of a stream, with the reason why it cannot be decoded."""


@dataclass(frozen=True)
class Header:
    """Header of a stream."""

    version: int
    sample_type: int
    channels: int
    block: int
    max_order: int
    num_means: int

    @property
    def kind(self) -> str:
        """Coding of the samples: ulaw, pcm8 or pcm16."""
        return _KINDS[self.sample_type]


def decode(data: bytes, num_samples: int, channels: int, kind: str) -> np.ndarray:
    """Decode the first `num_samples` samples [samples channels]: mu-law codes (uint8) or amplitudes (int8, int16).

    `channels` and `kind` (ulaw, pcm8, pcm16) are those of the SPHERE header. Raises Damaged with the reason and the
    number of samples that could be decoded.
    """
    dtype = {"ulaw": np.uint8, "pcm8": np.int8, "pcm16": np.int16}[kind]
    if num_samples == 0:
        return np.zeros((0, channels), dtype)
    num_decoded = [0]
    reason = "the stream ends there"
    try:
        bits = _Bits(data)
        header = _read_header(bits)
        if (header.channels, header.kind) != (channels, kind):
            raise Damaged(f"the stream holds {header.channels} channels of {header.kind}, not {channels} of {kind}")
        decoded: list[list[np.ndarray]] = [[] for _ in range(channels)]
        num_decoded = [0] * channels
        for number, samples in enumerate(_blocks(header, bits)):
            decoded[number % channels].append(samples.astype(dtype))
            num_decoded[number % channels] += len(samples)
            if min(num_decoded) >= num_samples:
                return np.stack([np.concatenate(blocks)[:num_samples] for blocks in decoded], axis=1)
    except Damaged as error:
        reason = str(error)
    raise Damaged(f"promises {num_samples} samples, {min(num_decoded)} could be decoded: {reason}")


class _Bits:
    """Reader of Rice codes. The end of each code is looked up in a table of the next set bit."""

    _first: int  # byte at which the window begins
    _position: int  # bit of the window that is read next
    _num_bits: int
    _following: memoryview  # for each bit of the window, the next one that is set

    def __init__(self, data: bytes) -> None:
        if not data.startswith(MAGIC) or len(data) <= len(MAGIC):
            raise Damaged("the samples do not begin with the shorten mark ajkg")
        self.version = data[len(MAGIC)]
        self._data = data
        self._load(len(MAGIC) + 1)

    def code(self, low_bits: int) -> int:
        """Read a code: a whole number of at least 0."""
        start, stop = self._starts(1, low_bits)
        word = int.from_bytes(self._window[stop - low_bits >> 3 : stop + 7 >> 3], "big") >> (-stop & 7)
        return (stop - start - 1 - low_bits << low_bits) | (word & (1 << low_bits) - 1)

    def number(self, maximum: int, name: str) -> int:
        """Read a code that is preceded by its number of low bits. Raises Damaged above `maximum`."""
        width = self.code(_SIZE_BITS)
        value = self.code(width) if width <= _MAX_WIDTH else maximum + 1
        if value > maximum:
            raise Damaged(f"the {name} is larger than {maximum}")
        return value

    def signed(self, count: int, low_bits: int) -> np.ndarray:
        """Read `count` codes of signed numbers, whose lowest bit is the sign: int64 [count]."""
        starts = np.array(self._starts(count, low_bits + 1), np.int64)
        zeros = starts[1:] - starts[:-1] - (low_bits + 2)
        position = starts[1:] - (low_bits + 1)
        words = self._words[position >> 3].view(">u8")[:, 0]
        low = (words >> (63 - low_bits - (position & 7)).view(np.uint64)).astype(np.int64) & ((2 << low_bits) - 1)
        values = (zeros << low_bits + 1) | low
        return (values >> 1) ^ -(values & 1)

    def _starts(self, count: int, low_bits: int) -> list[int]:
        """Bit positions of the next `count` codes and of the end of the last one; moves past them."""
        step = low_bits + 1
        for _ in range(2):
            position, following = self._position, self._following
            try:
                starts = [position, *[position := following[position] + step for _ in repeat(None, count)]]
                if position <= self._num_bits:
                    self._position = position
                    return starts
            except IndexError:
                pass  # the codes reach past the window, which is moved to their beginning
            self._load(self._first + (self._position >> 3), self._position & 7)
        raise Damaged("the stream ends in the middle of a code")

    def _load(self, first: int, position: int = 0) -> None:
        """Build the tables of the window that begins at byte `first`; the next code begins at bit `position` of it."""
        window = np.frombuffer(self._data[first : first + _WINDOW_BYTES], np.uint8)
        bits = np.unpackbits(window)
        positions = np.where(bits, np.arange(len(bits), dtype=np.int32), np.int32(len(bits)))
        following = np.minimum.accumulate(positions[::-1])[::-1]
        padded = np.concatenate([window, np.zeros(8, np.uint8)])
        self._first, self._position, self._num_bits = first, position, len(bits)
        self._window = window.tobytes()
        self._following = np.ascontiguousarray(following).data
        self._words = np.lib.stride_tricks.sliding_window_view(padded, 8)


def _read_header(bits: _Bits) -> Header:
    if bits.version not in (1, 2):
        raise Damaged(f"it is shorten of version {bits.version}, las reads 1 and 2")
    sample_type = bits.number(15, "number of the sample type")
    if sample_type not in _KINDS:
        raise Damaged(f"samples of shorten's type {sample_type} are not supported")
    channels = bits.number(255, "number of channels")
    block = bits.number(_MAX_BLOCK, "block")
    max_order = bits.number(_MAX_ORDER, "order of the predictors")
    num_means = bits.number(_MAX_MEANS, "number of means")
    for _ in range(bits.number(_MAX_BLOCK, "number of bytes to skip")):
        bits.code(_SKIP_BITS)
    return Header(bits.version, sample_type, channels, block, max_order, num_means)


@dataclass
class _Channel:
    """State of a channel between blocks: its last samples and the means of its last blocks."""

    history: np.ndarray
    means: deque[int]

    def offset(self, version: int, shift: int) -> int:
        """Mean that is subtracted before prediction."""
        if not self.means:
            return 0
        rounding = len(self.means) // 2 if version > 1 else 0
        mean = _quotient(sum(self.means) + rounding, len(self.means))
        return mean >> shift if version > 1 else mean

    def update(self, block: np.ndarray, version: int, shift: int) -> None:
        """Add a decoded block to the state."""
        if self.means:
            rounding = len(block) // 2 if version > 1 else 0
            mean = _quotient(int(block.sum()) + rounding, len(block))
            self.means.append(mean << shift if version > 1 else mean)
        self.history = np.concatenate([self.history, block])[-len(self.history) :]


def _blocks(header: Header, bits: _Bits) -> Iterator[np.ndarray]:
    """Decode block after block; channels alternate."""
    wrap = max(_DIFF3, header.max_order)
    channels = [
        _Channel(np.zeros(wrap, np.int64), deque([0] * header.num_means, header.num_means))
        for _ in range(header.channels)
    ]
    turn, size, shift = 0, header.block, 0
    while (command := bits.code(_COMMAND_BITS)) != _QUIT:
        if command == _BLOCKSIZE:
            size = bits.number(_MAX_BLOCK, "block")
        elif command == _BITSHIFT:
            shift = bits.code(_SHIFT_BITS)
        elif command > _ZERO or size == 0:
            raise Damaged(f"command {command} for a block of {size} samples is not one of shorten's")
        else:
            channel = channels[turn]
            block = _predicted(command, size, channel.history, channel.offset(header.version, shift), header, bits)
            channel.update(block, header.version, shift)
            yield _samples(block, header.sample_type, shift)
            turn = (turn + 1) % header.channels


def _predicted(command: int, size: int, history: np.ndarray, offset: int, header: Header, bits: _Bits) -> np.ndarray:
    """Decode one block of predicted numbers, from which `_samples` makes mu-law codes or amplitudes."""
    if command == _ZERO:
        return np.zeros(size, np.int64)
    width = bits.code(_WIDTH_BITS)
    if width > _MAX_WIDTH:
        raise Damaged(f"residuals of {width} bits")
    if command == _QLPC:
        order = bits.code(_ORDER_BITS)
        if order > header.max_order:
            raise Damaged(f"a predictor of order {order}, the stream promises at most {header.max_order}")
        coefficients = bits.signed(order, _COEFFICIENT_BITS).tolist() if order else []
        rounding = 1 << _COEFFICIENT_BITS if header.version > 1 else 0
        return _filtered(bits.signed(size, width), history - offset, coefficients, rounding) + offset
    block = bits.signed(size, width)
    if command == 0:
        return block + offset
    last, second, third = history[-1:-4:-1].tolist()
    differences = (last, last - second, last - 2 * second + third)
    for difference in reversed(differences[:command]):  # a polynomial predictor of order n is n cumulative sums
        np.cumsum(block, out=block)
        block += difference
    return block


def _filtered(residuals: np.ndarray, history: np.ndarray, coefficients: list[int], rounding: int) -> np.ndarray:
    """Reconstruct samples from residuals and a linear predictor, whose sum is rounded down after every sample."""
    past = deque(history[::-1][: len(coefficients)].tolist(), len(coefficients))
    samples = []
    for residual in residuals.tolist():
        value = residual + (sum(map(operator.mul, coefficients, past), rounding) >> _COEFFICIENT_BITS)
        if not -_MAX_VALUE < value < _MAX_VALUE:
            raise Damaged("its amplitudes grow without bound")
        past.appendleft(value)
        samples.append(value)
    return np.array(samples, np.int64)


def _samples(block: np.ndarray, sample_type: int, shift: int) -> np.ndarray:
    """Convert predicted numbers to mu-law codes or amplitudes; those of lossy streams are clipped to their range."""
    kind = _KINDS[sample_type]
    if kind == "ulaw":
        tables = _law_codes(sample_type == _SIGNED_ZERO)
        indices = (block + 128).view(np.uint64)
        if shift >= len(tables) or indices.max() > 255:
            raise Damaged("its numbers are not mu-law codes")
        return tables[shift][indices]
    if shift > _MAX_WIDTH:
        raise Damaged(f"amplitudes shifted by {shift} bits")
    maximum = 127 if kind == "pcm8" else 32767
    return np.clip(block << shift, -maximum - 1, maximum)


@functools.cache
def _law_codes(signed_zero: bool) -> UInt8[np.ndarray, "13 256"]:
    """Table of mu-law codes by shift and predicted number, which counts from -128.

    The code of magnitude m stands for an interval of linear amplitudes. With a shift s, the codes whose interval holds
    a multiple of 2^s come first, counted away from zero, and all others after them. The negative zero is one of the
    others; where a stream has a number for it, that is -1.
    """
    magnitude = np.arange(128)
    width = 1 << (magnitude >> 4)
    start = 16 * (width - 1) + (magnitude & 15) * width
    end = start + width - 1
    rows = []
    for shift in range(13):
        multiple = -(-start >> shift) << shift
        positive = multiple <= end
        negative = multiple <= np.where(magnitude == 127, 4096, end)  # the lowest code covers everything below it
        negative[0] = False
        above = 0xFF - np.concatenate([magnitude[positive], magnitude[~positive]])
        below = 0x7F - np.concatenate([magnitude[negative], magnitude[~negative]])
        below = np.append(below[126::-1], 0x7F) if signed_zero else below[::-1]
        rows.append(np.concatenate([below, above]))
    return np.array(rows, np.uint8)


def _quotient(dividend: int, divisor: int) -> int:
    """Division rounded towards zero, as in C."""
    return -(-dividend // divisor) if dividend < 0 else dividend // divisor
