"""Long audio in pieces that a model can hear: cut in pauses, or where it is least loud, then with overlap.

A piece has a core, and cores tile the audio. Between two cores there is either a pause, and the pieces end there, or
none, and each piece hears `overlap_s` beyond its core: a word at the border is heard whole by at least one of them, and
`words.stitch` decides who says it.
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
"""Loudness is measured in frames; without a pause a cut is made where it is low for so many of them."""
QUIET_DB, DEPTH = 10.0, 0.6
"""A window has pauses if its loud frames (95 % are below) are so many decibels above its soft ones (10 % are). A pause
is below the loud ones by this share of the difference."""
DEEPEST_DB = 50.0
"""Differences above count as this one: digital silence would else hide pauses with breath and noise in them."""
FAINTEST_DB = -120.0
LEAST_S = 0.1


class Piece(NamedTuple):
    """A stretch of audio and the part of it that is its own, its core; times are seconds in the whole."""

    samples: Float[Tensor, " samples"]
    start_s: float
    core_start_s: float
    core_end_s: float


class Cutter:
    """Cuts audio into pieces.

    Args:
        sample_rate: in Hz.
        longest_s: of a core; audio up to it stays whole.
        shortest_s: of a core, but for audio that is shorter.
        overlap_s: what a piece hears beyond its core where there is no pause: longer than a word.
        pause_s: a pause is at least so long.
        long_pause_s: such a pause is cut wherever it is, and not only where a core becomes too long.
        silence_db: audio that never is louder (decibels below full scale) is silence, in which nothing is heard.

    A cut is made in the middle of a pause, of those between `shortest_s` and `longest_s` after the last cut: of the
    first long one, or else of the longest. At most `longest_s` and twice `overlap_s` of audio are held, and what the
    source gives at a time.
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

    def __call__(self, blocks: Iterable[Tensor]) -> Iterator[Piece]:
        """The pieces of blocks [samples] that follow each other; none for no samples."""
        held, first = torch.zeros(0), 0  # sample `first` of the whole is the first one held
        core, before = 0, 0  # where the next core starts, and how much is heard before it
        for block in itertools.chain(blocks, [None]):
            held = held if block is None else torch.cat([held, block])
            end = first + len(held)
            while core < end and (block is None or end - core > self.longest + self.overlap):
                length, after = self._cut(held[core - first :], is_all=core == 0 and block is None)
                core_end = core + length
                yield self._piece(held, first, (core - before, core, core_end, core_end + after))
                core, before = core_end, after
                held, first = held[core - before - first :], core - before

    def is_silent(self, samples: Float[Tensor, " samples"]) -> bool:
        """Whether nothing in it is louder than silence."""
        return not len(samples) or float(loudness(samples, self.frame).max()) < self.silence_db

    def _piece(self, held: Tensor, first: int, places: tuple[int, int, int, int]) -> Piece:
        start, core, core_end, end = places
        rate = self.sample_rate
        return Piece(held[start - first : end - first].clone(), start / rate, core / rate, core_end / rate)

    def _cut(self, left: Float[Tensor, " samples"], is_all: bool) -> tuple[int, int]:
        """How many samples of what is left are the next core, and how much is heard beyond them.

        `is_all` says that nothing was before and nothing will follow.
        """
        fits = len(left) <= self.longest
        if fits and is_all:
            return len(left), 0
        levels = loudness(left[: self.longest], self.frame)
        lengths, middles = runs(is_pause(levels))
        # What is left behind a cut must be worth hearing, too.
        latest = len(left) // self.frame - self.shortest
        usable = (lengths >= (self.long_pause if fits else self.pause)) & (middles >= self.shortest)
        usable &= middles <= latest
        if usable.any():
            # All long ones count as equal, and of equals the first is taken.
            best = int(lengths.clamp(max=self.long_pause).masked_fill(~usable, 0).argmax())
            return int(middles[best]) * self.frame, 0
        if fits:
            return len(left), 0
        smooth = torch.nn.functional.avg_pool1d(levels.unsqueeze(0), SMOOTH_FRAMES, 1, SMOOTH_FRAMES // 2)[0]
        earliest = max(len(levels) // 2, self.shortest)  # late, so that pieces are long
        return (earliest + int(smooth[earliest : latest + 1].argmin())) * self.frame, self.overlap


def loudness(samples: Float[Tensor, " samples"], frame: int) -> Float[Tensor, " frames"]:
    """Decibels below full scale of each frame; the last may be shorter."""
    padded = torch.nn.functional.pad(samples, (0, -len(samples) % frame))
    power = padded.double().view(-1, frame).square().mean(1)
    return (10 * power.log10()).clamp(min=FAINTEST_DB)


def is_pause(levels: Float[Tensor, " frames"]) -> Bool[Tensor, " frames"]:
    """Which frames are soft, compared with the others."""
    loud, soft = torch.quantile(levels, 0.95), torch.quantile(levels, 0.1)
    if loud - soft < QUIET_DB:
        return torch.zeros_like(levels, dtype=torch.bool)
    return levels < loud - DEPTH * (loud - soft).clamp(max=DEEPEST_DB)


def runs(marks: Bool[Tensor, " frames"]) -> tuple[Tensor, Tensor]:
    """Length and middle (rounded down) of every run of marked frames, in order."""
    edges = torch.diff(torch.nn.functional.pad(marks.long(), (1, 1)))
    starts, ends = (edges == 1).nonzero()[:, 0], (edges == -1).nonzero()[:, 0]
    return ends - starts, (starts + ends) // 2
