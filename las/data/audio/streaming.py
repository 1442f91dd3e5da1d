"""Long audio block by block: one channel or all mixed, resampled, so that hours of it take the memory of seconds.

Resampling is torchaudio's windowed sinc, which looks a few samples to either side. Blocks are filtered with what lies
around them, and give the samples that the whole file would have given.
"""

import math
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Final, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor

from las.data.audio import files
from las.runtime import torchaudio_compat
from las.runtime.errors import ConfigError, DataError

MIX: Final = "mix"
Channel = int | Literal["mix"]
"""Counted from 0, or the mean of all."""

FILTER_WIDTH, ROLLOFF = 6, 0.99
"""Of the windowed sinc: its zero crossings on one side, and where it cuts off, as a share of the lower rate's half."""
LARGEST_RATIO = 1000
"""Rates are taken as a ratio of whole numbers up to this, 44,100 to 16,000 Hz as 441 : 160. For ratios of larger ones
filters would not fit into memory: the nearest is off by some millionths, less than 0.1 s in two hours."""


def open_blocks(
    path: str | Path, sample_rate: int, channel: Channel = MIX, block_s: float = 30.0
) -> tuple[files.AudioInfo, Iterator[Tensor]]:
    """What the header of a file says, and blocks [samples] at `sample_rate` (Hz), each of about `block_s`.

    Raises DataError as `audio.info` and `audio.blocks` do, and for a channel that does not exist.
    """
    require_channel(channel)
    found = files.info(path)
    _check_channel(path, channel, found.channels)
    blocks = (_one(block, channel) for block in map(torch.from_numpy, files.blocks(path, block_s)))
    return found, resampled(blocks, found.sample_rate, sample_rate)


class Recording(NamedTuple):
    """Samples in memory: [samples] or [channels, samples] at `sample_rate` (Hz), and a name for messages.

    Numbers with a fraction are amplitudes, full scale is 1; whole numbers (int16, int32) have the full scale of their
    type.
    """

    samples: np.ndarray | Tensor
    sample_rate: int
    name: str

    def blocks(self, sample_rate: int, channel: Channel = MIX) -> tuple[float, Iterator[Tensor]]:
        """Seconds, and blocks [samples] at `sample_rate` (Hz), as `open_blocks` gives them of a file.

        Raises DataError for another shape or type, samples that are not finite, and a channel that does not exist.
        """
        require_channel(channel)
        samples = torch.as_tensor(self.samples).detach().cpu()
        shape = list(samples.shape)
        if samples.dim() not in (1, 2) or (samples.dim() == 2 and shape[0] > max(shape[1], 1)):
            raise DataError(f"{self.name}: samples of the shape {shape}: give [samples] or [channels, samples]")
        if not samples.is_floating_point() and samples.dtype not in (torch.int16, torch.int32):
            raise DataError(f"{self.name}: samples of the type {samples.dtype}: give float32, int16 or int32")
        scale = 1.0 if samples.is_floating_point() else -float(torch.iinfo(samples.dtype).min)
        amplitudes = torch.atleast_2d(samples.float() / scale).t()
        if not amplitudes.isfinite().all():
            raise DataError(f"{self.name}: there are samples that are not finite numbers")
        _check_channel(self.name, channel, amplitudes.shape[1])
        return len(amplitudes) / self.sample_rate, resampled([_one(amplitudes, channel)], self.sample_rate, sample_rate)


def require_channel(channel: object) -> None:
    """Raise ConfigError unless this is `mix` or the number of a channel."""
    if channel != MIX and (not isinstance(channel, int) or isinstance(channel, bool) or channel < 0):
        raise ConfigError(f"channel={channel} is no channel: give its number, counted from 0, or mix for all of them")


def _check_channel(name: str | Path, channel: Channel, channels: int) -> None:
    if isinstance(channel, int) and channel >= channels:
        message = f"{name}: there is no channel {channel}: the file has {channels}, counted from 0"
        raise DataError(message, kind="channels")


def _one(block: Float32[Tensor, "samples channels"], channel: Channel) -> Float32[Tensor, " samples"]:
    return block[:, channel].contiguous() if isinstance(channel, int) else block.mean(dim=1)


def resampled(blocks: Iterable[Tensor], before: int, after: int) -> Iterator[Tensor]:
    """Blocks [samples] at another sample rate, of whatever lengths: joined they are what the joined blocks give."""
    if before == after:
        yield from blocks
        return
    ratio = Fraction(after, before).limit_denominator(LARGEST_RATIO)
    step, made = ratio.denominator, ratio.numerator  # so many samples become so many
    around = math.ceil(FILTER_WIDTH * step / (min(step, made) * ROLLOFF) / step + 1)  # of these steps on either side
    held, left = torch.zeros(0), 0  # the first `left` steps of what is held have been given out
    for block in blocks:
        held = torch.cat([held, block])
        ready = len(held) // step - around
        if ready > left:
            yield _resample(held[: (ready + around) * step], step, made)[left * made : ready * made]
            first = max(ready - around, 0)
            held, left = held[first * step :], ready - first
    if len(held) > left * step:
        yield _resample(held, step, made)[left * made :]


def _resample(samples: Float[Tensor, " samples"], step: int, made: int) -> Float[Tensor, " resampled"]:
    found: Tensor = torchaudio_compat.torchaudio().functional.resample(
        samples, step, made, lowpass_filter_width=FILTER_WIDTH, rolloff=ROLLOFF
    )
    return found


@runtime_checkable
class Readable(Protocol):
    """A stream of bytes."""

    def read(self, size: int = -1, /) -> bytes: ...


@contextmanager
def kept(source: Readable) -> Iterator[Path]:
    """A stream that cannot be searched, such as standard input, as a file that is gone afterwards.

    Formats are told by what is in a file, and some keep at its end what is needed first.
    """
    with tempfile.TemporaryDirectory(prefix="las-") as folder:
        path = Path(folder) / "stdin"
        with path.open("wb") as file:
            shutil.copyfileobj(source, file)
        yield path
