"""Writes shorten streams and the SPHERE files around them, for tests: every command and predictor of the format."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

DIFF0, DIFF1, DIFF2, DIFF3, QUIT, BLOCKSIZE, BITSHIFT, QLPC, ZERO = range(9)
TYPES = {np.dtype(np.uint8): "ulaw", np.dtype(np.int8): "pcm", np.dtype(np.int16): "pcm"}


def encode(
    samples: np.ndarray,
    version: int = 2,
    block: int = 256,
    predictors: Sequence[int] = (DIFF0, DIFF1, DIFF2, DIFF3),
    order: int = 0,
    num_means: int = 4,
    signed_zero: bool = True,
) -> bytes:
    """The shorten stream of samples [samples channels]: uint8 are mu-law codes, int8 and int16 amplitudes.

    Each block takes the cheapest of `predictors`; QLPC uses `order` coefficients. Without `signed_zero` mu-law is
    written as type 0, as shorten version 1 did.
    """
    types = {"uint8": 8 if signed_zero else 0, "int8": 1, "int16": 5}
    sample_type = types[samples.dtype.name]
    num_means = 0 if samples.dtype == np.uint8 else num_means
    bits = Bits()
    for number in (sample_type, samples.shape[1], block, order, num_means, 0):
        bits.number(number)
    channels = [Channel(version, sample_type, predictors, order, num_means) for _ in range(samples.shape[1])]
    size, shift = block, 0
    for start in range(0, len(samples), block):
        rows = samples[start : start + block]
        if len(rows) != size:
            size = len(rows)
            bits.code(BLOCKSIZE, 2)
            bits.number(size)
        for channel, column in zip(channels, rows.T, strict=True):
            shift = channel.write(bits, column, shift)
    bits.code(QUIT, 2)
    return b"ajkg" + bytes([version]) + bits.packed()


def write_sphere(
    path: Path, samples: np.ndarray, sample_rate: int = 8000, version: int = 2, **encoding: object
) -> Path:
    """A SPHERE file with the shorten stream of samples [samples channels] in it; `encoding` is that of `encode`."""
    size = samples.dtype.itemsize
    coding = f"{TYPES[samples.dtype]},embedded-shorten-v{version}.00"
    order = "1" if size == 1 else "01"
    fields = [
        f"channel_count -i {samples.shape[1]}",
        f"sample_count -i {len(samples)}",
        f"sample_rate -i {sample_rate}",
        f"sample_n_bytes -i {size}",
        f"sample_byte_format -s{len(order)} {order}",
        f"sample_coding -s{len(coding)} {coding}",
        f"sample_checksum -i {int(samples.view(f'u{size}').astype(np.int64).sum()) % 65536}",
    ]
    header = "\n".join(["NIST_1A", "   1024", *fields, "end_head", ""]).encode().ljust(1024)
    path.write_bytes(header + encode(samples, version, **encoding))
    return path


class Bits:
    """A growing row of bits."""

    def __init__(self) -> None:
        self.parts: list[np.ndarray] = []

    def codes(self, values: np.ndarray, low_bits: int) -> None:
        """Rice codes of whole numbers of at least 0: zeros, a one, `low_bits` low bits."""
        values = np.asarray(values, np.int64)
        lengths = (values >> low_bits) + 1 + low_bits
        ends = np.cumsum(lengths)
        bits = np.zeros(int(ends[-1]) if len(ends) else 0, np.uint8)
        bits[ends - 1 - low_bits] = 1
        for place in range(low_bits):
            bits[ends - 1 - place] = (values >> place) & 1
        self.parts.append(bits)

    def code(self, value: int, low_bits: int) -> None:
        self.codes(np.array([value]), low_bits)

    def number(self, value: int) -> None:
        self.code(value.bit_length(), 2)
        self.code(value, value.bit_length())

    def signed(self, values: np.ndarray, width: int) -> None:
        self.codes(folded(values), width + 1)

    def packed(self) -> bytes:
        data = np.packbits(np.concatenate(self.parts)).tobytes()
        return data + bytes(-len(data) % 4)


class Channel:
    """What a channel carries from block to block."""

    def __init__(self, version: int, sample_type: int, predictors: Sequence[int], order: int, num_means: int) -> None:
        self.version, self.sample_type, self.predictors, self.order = version, sample_type, predictors, order
        self.history = np.zeros(max(3, order), np.int64)
        self.means = [0] * num_means

    def write(self, bits: Bits, column: np.ndarray, last_shift: int) -> int:
        """Write one block; returns the shift that is in force after it."""
        shift, numbers = self.shifted(column, last_shift)
        offset = self.offset(shift)
        if shift != last_shift:
            bits.code(BITSHIFT, 2)
            bits.code(shift, 2)
        if not numbers.any():
            bits.code(ZERO, 2)
        else:
            self.predicted(bits, numbers, offset)
        if self.means:
            total = int(numbers.sum()) + (len(numbers) // 2 if self.version > 1 else 0)
            mean = int(np.fix(total / len(numbers)))
            self.means = [*self.means[1:], mean << shift if self.version > 1 else mean]
        self.history = np.concatenate([self.history, numbers])[-len(self.history) :]
        return shift

    def shifted(self, column: np.ndarray, last_shift: int) -> tuple[int, np.ndarray]:
        """The largest shift that loses nothing, and the numbers to predict."""
        if self.sample_type in (0, 8):
            shift = min(LAW_SHIFTS[code] for code in column)
            table = law_numbers(shift, self.sample_type == 8)
            return shift, np.array([table[code] for code in column], np.int64)
        numbers = column.astype(np.int64)
        joined = int(np.bitwise_or.reduce(numbers))
        shift = (joined & -joined).bit_length() - 1 if joined else last_shift
        return shift, numbers >> shift

    def offset(self, shift: int) -> int:
        if not self.means:
            return 0
        total = sum(self.means) + (len(self.means) // 2 if self.version > 1 else 0)
        mean = int(np.fix(total / len(self.means)))
        return mean >> shift if self.version > 1 else mean

    def predicted(self, bits: Bits, numbers: np.ndarray, offset: int) -> None:
        candidates = [self.candidate(command, numbers, offset) for command in self.predictors]
        command, residuals, coefficients = min(candidates, key=lambda each: cost(each[1])[0])
        width = cost(residuals)[1]
        bits.code(command, 2)
        bits.code(width, 3)
        if command == QLPC:
            bits.code(len(coefficients), 2)
            bits.signed(coefficients, 5)
        bits.signed(residuals, width)

    def candidate(self, command: int, numbers: np.ndarray, offset: int) -> tuple[int, np.ndarray, np.ndarray]:
        joined = np.concatenate([self.history, numbers])
        none = np.zeros(0, np.int64)
        if command == DIFF0:
            return command, numbers - offset, none
        if command in (DIFF1, DIFF2, DIFF3):
            return command, np.diff(joined, command)[-len(numbers) :], none
        joined = joined - offset
        lags = [joined[len(self.history) - 1 - lag : len(joined) - 1 - lag] for lag in range(self.order)]
        past = np.stack(lags, axis=1) if lags else np.zeros((len(numbers), 0), np.int64)
        best = np.linalg.lstsq(past.astype(float), (numbers - offset).astype(float), rcond=None)[0]
        coefficients = np.clip(np.round(best * 32), -2000, 2000).astype(np.int64)
        rounding = 32 if self.version > 1 else 0
        return command, numbers - offset - ((past @ coefficients + rounding) >> 5), coefficients


def folded(values: np.ndarray) -> np.ndarray:
    """Whole numbers as numbers of at least 0: 0, -1, 1, -2, ... become 0, 1, 2, 3, ..."""
    values = np.asarray(values, np.int64)
    return np.where(values < 0, -2 * values - 1, 2 * values)


def cost(residuals: np.ndarray) -> tuple[int, int]:
    """Bits that residuals take, and the width they take them at."""
    values = folded(residuals)
    return min((int((values >> width + 1).sum()) + len(values) * (width + 2), width) for width in range(17))


def law_shift(code: int) -> int:
    """The largest power of two that has a multiple among the linear amplitudes (14 bits) that a mu-law code stands for.

    G.711: segment e has sixteen steps of 2^e; the lowest code also stands for -4096.
    """
    magnitude = 127 - (code & 127)
    if code == 0x7F:
        return 0
    if magnitude == 0 or code == 0:
        return 12
    segment, step = divmod(magnitude, 16)
    start = 16 * (2**segment - 1) + step * 2**segment
    return max(
        shift for shift in range(13) if any(start + i >= 0 and (start + i) % 2**shift == 0 for i in range(2**segment))
    )


LAW_SHIFTS = [law_shift(code) for code in range(256)]


def law_numbers(shift: int, signed_zero: bool) -> dict[int, int]:
    """The number that is predicted in place of each mu-law code that a shift can express."""
    positive = [code for code in range(255, 127, -1) if LAW_SHIFTS[code] >= shift]
    negative = [code for code in range(126, -1, -1) if LAW_SHIFTS[code] >= shift]
    numbers = {code: number for number, code in enumerate(positive)}
    first = 2 if signed_zero else 1
    numbers |= {code: -number for number, code in enumerate(negative, start=first)}
    if shift == 0:
        numbers[0x7F] = -1 if signed_zero else -128
    return numbers
