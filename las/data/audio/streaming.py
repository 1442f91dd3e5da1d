"""Long audio block by block, and its segments for decoding, so that hours of it take the memory of seconds.

Resampling is torchaudio's windowed sinc, which looks a few samples to either side. Blocks are filtered with what lies
around them, and give the samples that the whole file would have given.

Segments are cut in pauses, or with overlap where the audio is least loud. A segment has a core, and cores tile the
audio. Two cores meet in a pause, and the segments end there; or in speech, and each segment extends `overlap_s` beyond
its core, so that a word at the border is complete in at least one of them. `las.decoding.transcription.stitch` merges
the words.
"""

import hashlib
import itertools
import math
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Final, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
import soundfile
import torch
from jaxtyping import Bool, Float, Float32
from torch import Tensor

from las.data.audio import files, shards
from las.runtime import devices
from las.runtime.errors import ArgumentError, ConfigError, DataError
from las.storage import atomic

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
    resampler = Resampler(old_rate, new_rate)
    yield from map(resampler.take, blocks)
    if len(rest := resampler.rest()):
        yield rest


class Resampler:
    """Resampling of a stream whose blocks [samples] are pushed; `resampled` is that of one whose blocks are pulled."""

    def __init__(self, old_rate: int, new_rate: int) -> None:
        ratio = Fraction(new_rate, old_rate).limit_denominator(LARGEST_RATIO)
        self.down, self.up = ratio.denominator, ratio.numerator
        # Steps of `down` samples, on either side.
        self.context = math.ceil(FILTER_WIDTH / (min(self.down, self.up) * ROLLOFF) + 1)
        self.buffered, self.steps_done = torch.zeros(0), 0  # steps at the start of the buffer that were returned

    def take(self, block: Float[Tensor, " samples"]) -> Float[Tensor, " resampled"]:
        """Return the samples at the new rate that a block completes."""
        if self.down == self.up:
            return block
        self.buffered, up = torch.cat([self.buffered, block]), self.up
        ready = len(self.buffered) // self.down - self.context
        if ready <= self.steps_done:
            return self.buffered[:0]
        samples = _resample(self.buffered[: (ready + self.context) * self.down], self.down, up)
        samples, first = samples[self.steps_done * up : ready * up], max(ready - self.context, 0)
        self.buffered, self.steps_done = self.buffered[first * self.down :], ready - first
        return samples

    def rest(self) -> Float[Tensor, " resampled"]:
        """Return the last samples, after the last block."""
        if len(self.buffered) <= self.steps_done * self.down:
            return self.buffered[:0]
        return _resample(self.buffered, self.down, self.up)[self.steps_done * self.up :]


def _resample(samples: Float[Tensor, " samples"], down: int, up: int) -> Float[Tensor, " resampled"]:
    resample = devices.torchaudio().functional.resample
    output: Tensor = resample(samples, down, up, lowpass_filter_width=FILTER_WIDTH, rolloff=ROLLOFF)
    return output


def resampled_copy(path: Path, sample_rate: int, folder: Path) -> Path:
    """Write an audio file at another sample rate (Hz) into `folder`, as flac with 16 bits; returns the copy.

    An existing copy of the same file, by its path, size and time, is left as it is. Raises DataError as `files.info`
    and `files.blocks` do.
    """
    status = os.stat(shards.file_of(path))
    key = hashlib.sha256(f"{path.absolute()} {status.st_size} {status.st_mtime_ns}".encode()).hexdigest()[:12]
    resampled = folder / str(sample_rate) / key / f"{path.stem}.flac"
    if resampled.exists():
        return resampled
    channels = range(files.info(path).channels)
    streams = [open_blocks(path, sample_rate, channel)[1] for channel in channels]
    with (
        atomic.opened(resampled) as file,
        soundfile.SoundFile(file, "w", sample_rate, len(channels), subtype="PCM_16", format="FLAC") as output,
    ):
        for blocks in zip(*streams, strict=True):
            output.write(np.stack([block.numpy() for block in blocks], axis=1))
    return resampled


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


FRAME_S, SMOOTH_FRAMES = 0.01, 15
"""Length of a frame in seconds, and number of frames over which loudness is averaged to cut where there is no pause."""
QUIET_DB, DEPTH = 10.0, 0.6
"""Definition of pauses: a window has some if the 95th percentile of its levels is at least QUIET_DB decibels above the
10th; their levels lie below the 95th percentile by more than the share DEPTH of that difference."""
DEEPEST_DB = 50.0
"""Maximum of that difference: next to digital silence, pauses with breath and noise would not count otherwise."""
FAINTEST_DB = -120.0
LEAST_S = 0.1


class AudioSegment(NamedTuple):
    """Segment of a recording: samples, start of the segment, start and end of its core in seconds of the recording."""

    samples: Float[Tensor, " samples"]
    start_s: float
    core_start_s: float
    core_end_s: float


class Segmenter:
    """Segmenter of audio that arrives in blocks.

    Args:
        sample_rate: in Hz.
        longest_s: maximum length of a core in seconds; audio up to it stays whole.
        shortest_s: minimum length of a core in seconds, except in shorter audio.
        overlap_s: seconds of a segment beyond its core where there is no pause: longer than a word.
        pause_s: minimum length of a pause in seconds.
        long_pause_s: length from which a pause is always cut, not only where a core becomes too long.
        silence_db: level in decibels of full scale; audio that stays below it is silence and is not decoded.

    A cut is made in the middle of a pause, of those between `shortest_s` and `longest_s` after the last cut: of the
    first long one, or else of the longest. In memory are `longest_s`, `overlap_s`, the larger of `overlap_s` and
    `shortest_s`, and one block of audio, at most.
    """

    def __init__(
        self,
        sample_rate: int,
        *,
        longest_s: float = 20.0,
        shortest_s: float = 2.0,
        overlap_s: float = 1.5,
        pause_s: float = 0.3,
        long_pause_s: float = 0.7,
        silence_db: float = -80.0,
    ) -> None:
        lengths = {"shortest_s": shortest_s, "overlap_s": overlap_s, "pause_s": pause_s, "long_pause_s": long_pause_s}
        for name, value in lengths.items():
            if not LEAST_S <= value < math.inf:
                raise ArgumentError(f"{name}={value} must be at least {LEAST_S} seconds")
        if not 2 * shortest_s <= longest_s < math.inf:
            raise ArgumentError(f"longest_s={longest_s} must be at least twice shortest_s={shortest_s}")
        self.frame = round(FRAME_S * sample_rate)
        self.sample_rate, self.silence_db = sample_rate, silence_db
        self.longest, self.overlap = (round(seconds / FRAME_S) * self.frame for seconds in (longest_s, overlap_s))
        self.shortest, self.pause, self.long_pause = (
            round(seconds / FRAME_S) for seconds in (shortest_s, pause_s, long_pause_s)
        )
        # Beyond the longest core as much is read as may change where it is cut, whatever the size of the blocks.
        self.ahead = max(self.overlap, self.shortest * self.frame)

    def __call__(self, blocks: Iterable[Tensor]) -> Iterator[AudioSegment]:
        """Segments of consecutive blocks [samples]; none without samples."""
        buffered, first = torch.zeros(0), 0  # `buffered` starts at sample `first` of the recording
        core, overlap_before = 0, 0  # start of the next core, and samples of its segment before it
        for block in itertools.chain(blocks, [None]):
            buffered = buffered if block is None else torch.cat([buffered, block])
            end = first + len(buffered)
            while core < end and (block is None or end - core > self.longest + self.ahead):
                length, overlap_after = self._cut(buffered[core - first :], is_all=core == 0 and block is None)
                core_end = core + length
                yield self._piece(buffered, first, (core - overlap_before, core, core_end, core_end + overlap_after))
                core, overlap_before = core_end, overlap_after
                buffered, first = buffered[core - overlap_before - first :], core - overlap_before

    def is_silent(self, samples: Float[Tensor, " samples"]) -> bool:
        """Return whether all frames of the samples are below the level of silence."""
        return not len(samples) or float(loudness(samples, self.frame).max()) < self.silence_db

    def _piece(self, buffered: Tensor, first: int, bounds: tuple[int, int, int, int]) -> AudioSegment:
        start, core, core_end, end = bounds
        rate = self.sample_rate
        return AudioSegment(buffered[start - first : end - first].clone(), start / rate, core / rate, core_end / rate)

    def _cut(self, remaining: Float[Tensor, " samples"], is_all: bool) -> tuple[int, int]:
        """Length of the next core and of the overlap after it, in samples.

        `is_all`: `remaining` is the whole recording.
        """
        fits = len(remaining) <= self.longest
        if fits and is_all:
            return len(remaining), 0
        levels = loudness(remaining[: self.longest], self.frame)
        lengths, middles = runs(is_pause(levels))
        # The last core must not be shorter than `shortest` either.
        latest = len(remaining) // self.frame - self.shortest
        usable = (lengths >= (self.long_pause if fits else self.pause)) & (middles >= self.shortest)
        usable &= middles <= latest
        if usable.any():
            # All long pauses count as equal; argmax takes the first of equals.
            best = int(lengths.clamp(max=self.long_pause).masked_fill(~usable, 0).argmax())
            return int(middles[best]) * self.frame, 0
        if fits:
            return len(remaining), 0
        smooth = torch.nn.functional.avg_pool1d(levels.unsqueeze(0), SMOOTH_FRAMES, 1, SMOOTH_FRAMES // 2)[0]
        earliest = max(len(levels) // 2, self.shortest)  # in the second half, so that segments are long
        return (earliest + int(smooth[earliest : latest + 1].argmin())) * self.frame, self.overlap


def loudness(samples: Float[Tensor, " samples"], frame: int) -> Float[Tensor, " frames"]:
    """Level of each frame in decibels of full scale, at least FAINTEST_DB; zeros fill the last frame."""
    padded = torch.nn.functional.pad(samples, (0, -len(samples) % frame))
    power = padded.double().view(-1, frame).square().mean(1)
    return (10 * power.log10()).clamp(min=FAINTEST_DB)


def is_pause(levels: Float[Tensor, " frames"]) -> Bool[Tensor, " frames"]:
    """Mask of the frames that belong to pauses, compared with the other frames."""
    loud, soft = torch.quantile(levels, 0.95), torch.quantile(levels, 0.1)
    if loud - soft < QUIET_DB:
        return torch.zeros_like(levels, dtype=torch.bool)
    return levels < loud - DEPTH * (loud - soft).clamp(max=DEEPEST_DB)


def runs(marks: Bool[Tensor, " frames"]) -> tuple[Tensor, Tensor]:
    """Length and middle (rounded down) of every run of marked frames, in order."""
    edges = torch.diff(torch.nn.functional.pad(marks.long(), (1, 1)))
    starts, ends = (edges == 1).nonzero()[:, 0], (edges == -1).nonzero()[:, 0]
    return ends - starts, (starts + ends) // 2
