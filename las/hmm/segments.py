"""Times of frames, and phones and words with times from the best path through an utterance's graph.

A frame stands for the time around the centre of its window. An interval has the frames whose centres it holds, and the
boundary between two frames lies in the middle of their centres.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from las.data.manifest import Interval
from las.hmm.graph import AlignmentGraph
from las.hmm.topology import NUM_STATES
from las.hmm.viterbi import BestPath
from las.nn.features import Features


class FrameTimes(NamedTuple):
    """Windows of `length_s` seconds, each `shift_s` after the one before."""

    shift_s: float
    length_s: float

    @classmethod
    def of(cls, features: Features) -> "FrameTimes":
        return cls(features.frame_shift / features.sample_rate, features.frame_length / features.sample_rate)

    def centre_s(self, frame: int) -> float:
        return frame * self.shift_s + 0.5 * self.length_s

    def boundary_s(self, frame: int, num_frames: int, duration_s: float) -> float:
        """Time at which a frame begins, in seconds: the first one at 0, and what follows the last at the end."""
        if frame == 0:
            return 0.0
        if frame == num_frames:
            return duration_s
        return self.centre_s(frame) - 0.5 * self.shift_s


class AlignedUtterance(NamedTuple):
    """An utterance with the times of its phones, silences among them, and of its words, in seconds."""

    id: str
    duration_s: float
    phones: list[Interval]
    words: list[Interval]


def aligned(
    utterance_id: str, duration_s: float, words: Sequence[str], graph: AlignmentGraph, path: BestPath, times: FrameTimes
) -> AlignedUtterance:
    """Read the times of phones and words off a path."""
    segments = path.states // NUM_STATES
    starts = [0, *(np.flatnonzero(np.diff(segments)) + 1).tolist()]
    boundaries = [times.boundary_s(frame, len(segments), duration_s) for frame in (*starts, len(segments))]
    visited = [graph.segments[segments[frame]] for frame in starts]
    phones = [
        Interval(start, end, segment.phone)
        for segment, start, end in zip(visited, boundaries[:-1], boundaries[1:], strict=True)
    ]
    found = []
    for index, word in enumerate(words):
        own = [phone for segment, phone in zip(visited, phones, strict=True) if segment.word == index]
        found.append(Interval(own[0].start_s, own[-1].end_s, word))
    return AlignedUtterance(utterance_id, duration_s, phones, found)


def boundary_distances(found: Sequence[Interval], known: Sequence[Interval]) -> list[float]:
    """Distances, in seconds, of the boundaries between phones from the known ones; the phones must be the same.

    The ends of an utterance are no boundaries. Empty where the numbers of phones differ.
    """
    if len(found) != len(known):
        return []
    return [abs(one.start_s - other.start_s) for one, other in zip(found[1:], known[1:], strict=True)]
