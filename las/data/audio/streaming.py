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
"""Number of a channel, counted from 0, or `mix` for the mean of all."""

FILTER_WIDTH, ROLLOFF = 6, 0.99
"""Windowed sinc filter: zero crossings on one side, and cut-off frequency as a share of the lower Nyquist frequency."""
LARGEST_RATIO = 1000
"""Largest number in a ratio of rates, 441 : 160 for 44,100 to 16,000 Hz. Filters for larger numbers would not fit into
memory: the nearest ratio is used instead, which differs by some millionths, less than 0.1 s in two hours."""


def open_blocks(
    path: str | Path, sample_rate: int, channel: Channel = MIX, block_s: float = 30.0
) -> tuple[files.AudioInfo, Iterator[Tensor]]:
    """Open a file: its header, and blocks [samples] at `sample_rate` (Hz) of about `block_s` seconds each.

    Raises DataError as `files.info` and `files.blocks` do, and for a channel that does not exist.
    """
    require_channel(channel)
    audio_info = files.info(path)
    if isinstance(channel, int):
        files.require_channel(path, channel, audio_info.channels)
    blocks = (_selected(block, channel) for block in map(torch.from_numpy, files.blocks(path, block_s)))
    return audio_info, resampled(blocks, audio_info.sample_rate, sample_rate)


class Recording(NamedTuple):
    """Recording in memory: [samples] or [channels, samples] at `sample_rate` (Hz), and a name for messages.

    Floating-point samples have full scale 1, integers (int16, int32) the full scale of their type.
    """

    samples: np.ndarray | Tensor
    sample_rate: int
    name: str

    def blocks(self, sample_rate: int, channel: Channel = MIX) -> tuple[float, Iterator[Tensor]]:
        """Duration in seconds, and blocks [samples] at `sample_rate` (Hz), like `open_blocks` for a file.

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
        if isinstance(channel, int):
            files.require_channel(self.name, channel, amplitudes.shape[1])
        blocks = resampled([_selected(amplitudes, channel)], self.sample_rate, sample_rate)
        return len(amplitudes) / self.sample_rate, blocks


def require_channel(channel: object) -> None:
    """Raise ConfigError unless the value is `mix` or the number of a channel."""
    if channel != MIX and (not isinstance(channel, int) or isinstance(channel, bool) or channel < 0):
        says = "is not a channel: give its number, counted from 0, or mix for all of them"
        raise ConfigError(f"channel={channel} {says}")


def _selected(block: Float32[Tensor, "samples channels"], channel: Channel) -> Float32[Tensor, " samples"]:
    return block[:, channel].contiguous() if isinstance(channel, int) else block.mean(dim=1)


def resampled(blocks: Iterable[Tensor], old_rate: int, new_rate: int) -> Iterator[Tensor]:
    """Resample a stream of blocks [samples]: concatenated, they equal the resampled concatenation of the input."""
    if old_rate == new_rate:
        yield from blocks
        return
    ratio = Fraction(new_rate, old_rate).limit_denominator(LARGEST_RATIO)
    down, up = ratio.denominator, ratio.numerator
    context = math.ceil(FILTER_WIDTH / (min(down, up) * ROLLOFF) + 1)  # steps of `down` samples, on either side
    buffered, steps_done = torch.zeros(0), 0  # steps at the start of the buffer that were yielded
    for block in blocks:
        buffered = torch.cat([buffered, block])
        ready = len(buffered) // down - context
        if ready > steps_done:
            yield _resample(buffered[: (ready + context) * down], down, up)[steps_done * up : ready * up]
            first = max(ready - context, 0)
            buffered, steps_done = buffered[first * down :], ready - first
    if len(buffered) > steps_done * down:
        yield _resample(buffered, down, up)[steps_done * up :]


def _resample(samples: Float[Tensor, " samples"], down: int, up: int) -> Float[Tensor, " resampled"]:
    resample = torchaudio_compat.torchaudio().functional.resample
    output: Tensor = resample(samples, down, up, lowpass_filter_width=FILTER_WIDTH, rolloff=ROLLOFF)
    return output


@runtime_checkable
class Readable(Protocol):
    """Stream of bytes."""

    def read(self, size: int = -1, /) -> bytes:
        """Read up to `size` bytes, by default all."""


@contextmanager
def spooled(source: Readable) -> Iterator[Path]:
    """Copy a stream that cannot seek, such as standard input, to a temporary file, removed after the body.

    Formats are recognised by the content of a file, and some need its end first.
    """
    with tempfile.TemporaryDirectory(prefix="las-") as folder:
        path = Path(folder) / "stdin"
        with path.open("wb") as file:
            shutil.copyfileobj(source, file)
        yield path
