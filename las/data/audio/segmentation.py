"""Segmentation of long audio for decoding: cut in pauses, or with overlap where the audio is least loud.

A segment has a core, and cores tile the audio. Two cores meet in a pause, and the segments end there; or in speech, and
each segment extends `overlap_s` beyond its core, so that a word at the border is complete in at least one of them.
`las.decoding.transcription.stitch` merges the words.
"""

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from las.runtime.errors import ArgumentError

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
    first long one, or else of the longest. At most `longest_s`, twice `overlap_s` and one
    block of audio are in memory.
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

    def __call__(self, blocks: Iterable[Tensor]) -> Iterator[AudioSegment]:
        """Segments of consecutive blocks [samples]; none without samples."""
        buffered, first = torch.zeros(0), 0  # `buffered` starts at sample `first` of the recording
        core, overlap_before = 0, 0  # start of the next core, and samples of its segment before it
        for block in itertools.chain(blocks, [None]):
            buffered = buffered if block is None else torch.cat([buffered, block])
            end = first + len(buffered)
            while core < end and (block is None or end - core > self.longest + self.overlap):
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
