"""Viterbi training of Gaussian mixtures of states, from a flat start or an alignment, realignment by realignment.

From a flat start, all states begin as one Gaussian of all frames, and the first statistics come from words cut into
equal parts. Then the best path of every utterance gives new statistics, and from time to time every component is split
(HTK book, chapter 3; Kaldi's train_mono.sh).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from las.hmm.gmm import Mixtures, Statistics
from las.hmm.graph import AlignmentGraph
from las.hmm.viterbi import Path, viterbi

BATCH_FRAMES = 10_000
"""Frames of a batch with padding: its scores of all components fit into a hundred megabytes."""
STATISTICS_FRAMES = 100_000
"""Frames that are sorted by their pdfs and added together."""


class Example(NamedTuple):
    """An utterance to train on: its features, its graph, and the pdfs of a first guess of its path."""

    id: str
    features: Float[Tensor, "frames size"]
    graph: AlignmentGraph
    first_path: Sequence[int]


class Round(NamedTuple):
    """One realignment: the mean score of a frame, and the ids of utterances that no path fits."""

    number: int
    num_components: int
    score: float
    without_path: list[str]


class Schedule(NamedTuple):
    """Realignments with one Gaussian for each state, and after each doubling of the components."""

    first: int = 12
    doublings: int = 3
    after_each: int = 4

    @property
    def realignments(self) -> int:
        """Realignments in all."""
        return self.first + self.doublings * self.after_each


DEFAULT_SCHEDULE = Schedule()


def train(
    examples: Sequence[Example],
    num_pdfs: int,
    schedule: Schedule = DEFAULT_SCHEDULE,
    report: Callable[[Round], None] = lambda each: None,
) -> Mixtures:
    """Train mixtures; `report` is called after every realignment.

    Within a number of components the score does not fall: a new path is at least as good as the one before, and so
    are new parameters, but for variances at their floor and components that are dropped.
    """
    frames = torch.cat([example.features for example in examples])
    mixtures = Mixtures.single(num_pdfs, frames.mean(0), frames.var(0, correction=0))
    mixtures = mixtures.updated(_equal_parts(examples, mixtures))
    number = 0
    for doubling in range(schedule.doublings + 1):
        for _ in range(schedule.after_each if doubling else schedule.first):
            number += 1
            statistics = Statistics.zeros(mixtures.means)
            score, count, without_path = 0.0, 0, []
            features, pdfs = list[Tensor](), list[Tensor]()
            for example, path in paths(examples, mixtures):
                if path is None:
                    without_path.append(example.id)
                    continue
                features.append(example.features)
                pdfs.append(torch.from_numpy(example.graph.pdfs[path.states]))
                score, count = score + path.score, count + len(path.states)
                if sum(map(len, pdfs)) >= STATISTICS_FRAMES:
                    statistics.add(torch.cat(features), torch.cat(pdfs), mixtures)
                    features, pdfs = [], []
            if pdfs:
                statistics.add(torch.cat(features), torch.cat(pdfs), mixtures)
            report(Round(number, mixtures.num_components, score / max(count, 1), without_path))
            mixtures = mixtures.updated(statistics)
        if doubling < schedule.doublings:
            mixtures = mixtures.split(statistics)
    return mixtures


def paths(examples: Sequence[Example], mixtures: Mixtures) -> Iterator[tuple[Example, Path | None]]:
    """The best path of each utterance, in batches of like lengths; None for one that is too short for its words."""
    for batch in _batches(examples):
        features = pad_sequence([example.features for example in batch], batch_first=True)
        num_frames = torch.tensor([len(example.features) for example in batch])
        found = viterbi(mixtures.log_likelihoods(features), num_frames, [example.graph for example in batch])
        yield from zip(batch, found, strict=True)


def _batches(examples: Sequence[Example]) -> Iterator[list[Example]]:
    batch: list[Example] = []
    for example in sorted(examples, key=lambda each: (len(each.features), each.id)):
        if batch and (len(batch) + 1) * len(example.features) > BATCH_FRAMES:
            yield batch
            batch = []
        batch.append(example)
    if batch:
        yield batch


def _equal_parts(examples: Sequence[Example], mixtures: Mixtures) -> Statistics:
    """Statistics of first paths whose states are equally long."""
    statistics = Statistics.zeros(mixtures.means)
    for example in examples:
        path, count = torch.tensor(example.first_path), len(example.features)
        statistics.add(example.features, path[torch.arange(count) * len(path) // count], mixtures)
    return statistics
