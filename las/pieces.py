"""Long audio in pieces that a model can hear: cut in pauses, or where it is least loud, then with overlap.

A piece has a core, and cores tile the audio. Between two cores there is either a pause, and the pieces end there, or
none, and each piece hears `overlap_s` beyond its core: a word at the border is heard whole by at least one of them, and
`words.stitch` decides who says it.
"""

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from las.errors import ConfigError

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
        silence_db: audio that never is louder (decibels below full scale) is silence, in which nothing is heard.

    Of the pauses between `shortest_s` and `longest_s` after the last cut, the longest is cut in its middle. At most
    `longest_s` and twice `overlap_s` of audio are held, and what the source gives at a time.
    """

    def __init__(
        self,
        sample_rate: int,
        *,
        longest_s: float = 20.0,
        shortest_s: float = 2.0,
        overlap_s: float = 1.5,
        pause_s: float = 0.3,
        silence_db: float = -80.0,
    ) -> None:
        for name, value in (("shortest_s", shortest_s), ("overlap_s", overlap_s), ("pause_s", pause_s)):
            if not LEAST_S <= value < math.inf:
                raise ConfigError(f"pieces.{name}={value} must be at least {LEAST_S} seconds")
        if not longest_s >= shortest_s + pause_s:
            raise ConfigError(f"pieces.longest_s={longest_s} must be at least shortest_s + pause_s")
        self.frame = round(FRAME_S * sample_rate)
        self.sample_rate, self.silence_db = sample_rate, silence_db
        self.longest, self.shortest, self.overlap = (
            max(round(seconds / FRAME_S), 1) * self.frame for seconds in (longest_s, shortest_s, overlap_s)
        )
        self.pause_frames = max(round(pause_s / FRAME_S), 1)

    def __call__(self, blocks: Iterable[Float[Tensor, " samples"]]) -> Iterator[Piece]:
        """The pieces of blocks that follow each other; none for no samples."""
        held, first = torch.zeros(0), 0  # sample `first` of the whole is the first one held
        core, before = 0, 0  # where the next core starts, and how much is heard before it
        for block in blocks:
            held = torch.cat([held, block])
            while first + len(held) - core > self.longest + self.overlap:
                length, after = self._cut(held[core - first :][: self.longest])
                end = core + length
                yield self._piece(held, first, (core - before, core, end, end + after))
                core, before = end, after
                held, first = held[core - before - first :], core - before
        end = first + len(held)
        if end > core:
            yield self._piece(held, first, (core - before, core, end, end))

    def is_silent(self, samples: Float[Tensor, " samples"]) -> bool:
        """Whether nothing in it is louder than silence."""
        return not len(samples) or float(loudness(samples, self.frame).max()) < self.silence_db

    def _piece(self, held: Tensor, first: int, places: tuple[int, int, int, int]) -> Piece:
        start, core, core_end, end = places
        rate = self.sample_rate
        return Piece(held[start - first : end - first].clone(), start / rate, core / rate, core_end / rate)

    def _cut(self, window: Float[Tensor, " samples"]) -> tuple[int, int]:
        """How many samples of a window are the next core, and how much is heard beyond them."""
        levels = loudness(window, self.frame)
        lengths, middles = runs(is_pause(levels))
        inside = (lengths >= self.pause_frames) & (middles * self.frame >= self.shortest)
        if inside.any():
            longest = int(lengths.masked_fill(~inside, 0).argmax())
            return int(middles[longest]) * self.frame, 0
        smooth = torch.nn.functional.avg_pool1d(levels.unsqueeze(0), SMOOTH_FRAMES, 1, SMOOTH_FRAMES // 2)[0]
        earliest = max(len(levels) // 2, self.shortest // self.frame)  # late, so that pieces are long
        earliest = min(earliest, len(levels) - 1)
        return (earliest + int(smooth[earliest : len(levels)].argmin())) * self.frame, self.overlap


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
