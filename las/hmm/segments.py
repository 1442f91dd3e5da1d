"""Phones and words with times, from the best path through an utterance's graph."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from las.data.manifest import Interval
from las.hmm.frame_times import FrameTimes
from las.hmm.graph import AlignmentGraph
from las.hmm.topology import NUM_STATES
from las.hmm.viterbi import Path


class AlignedUtterance(NamedTuple):
    """An utterance with the times of its phones, silences among them, and of its words, in seconds."""

    id: str
    duration_s: float
    phones: list[Interval]
    words: list[Interval]


def aligned(
    utterance_id: str, duration_s: float, words: Sequence[str], graph: AlignmentGraph, path: Path, times: FrameTimes
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
    of_words = [(segment.word, phone) for segment, phone in zip(visited, phones, strict=True)]
    return AlignedUtterance(utterance_id, duration_s, phones, list(_words(words, of_words)))


def _words(words: Sequence[str], phones: Sequence[tuple[int | None, Interval]]) -> Iterator[Interval]:
    """Words from their first phone to their last one."""
    for index, word in enumerate(words):
        own = [phone for place, phone in phones if place == index]
        yield Interval(own[0].start_s, own[-1].end_s, word)


def boundary_distances(found: Sequence[Interval], known: Sequence[Interval]) -> list[float]:
    """Distances, in seconds, of the boundaries between phones from the known ones; the phones must be the same.

    The ends of an utterance are no boundaries. Empty where the numbers of phones differ.
    """
    if len(found) != len(known):
        return []
    return [abs(one.start_s - other.start_s) for one, other in zip(found[1:], known[1:], strict=True)]
