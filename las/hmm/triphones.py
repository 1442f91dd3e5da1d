"""Statistics of triphones: one Gaussian with diagonal covariance for each state of each phone between its neighbours.

The log-likelihood of frames under the Gaussian that is estimated on them needs their sums alone, so that unions of
triphones are scored without looking at a frame again (Young, Odell and Woodland 1994, equation 2):

    L = -1/2 n sum_d [log(2 pi) + log var_d + s_d / var_d],   var_d = max(s_d, floor_d)

with n frames and their variance s_d.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from las.hmm.gmm_training import Example
from las.hmm.graph import AlignmentGraph
from las.hmm.topology import EDGE, NUM_STATES, Topology, Triphone
from las.hmm.viterbi import Path

Sums = NDArray[np.float64]
"""Sums over frames, [..., 1 + 2 size]: of ones, of values and of their squares."""


class Visit(NamedTuple):
    """A phone on a path, its neighbours, and the state of each of its frames, 0 to 2."""

    triphone: Triphone
    states: NDArray[np.int64]


def edge(topology: Topology) -> str:
    """The neighbour of phones at the ends of an utterance: silence, where there is one."""
    return topology.silences[0] if topology.silences else EDGE


def visits(graph: AlignmentGraph, path: Path, outside: str | None) -> Iterator[Visit]:
    """The phones of a path in their order; `outside` stands before the first and after the last one."""
    starts = [0, *(np.flatnonzero(np.diff(path.states // NUM_STATES)) + 1).tolist(), len(path.states)]
    phones = [graph.segments[path.states[start] // NUM_STATES].phone for start in starts[:-1]]
    around: list[str | None] = [outside, *phones, outside]
    for place, (start, end) in enumerate(itertools.pairwise(starts)):
        triphone = Triphone(around[place], phones[place], around[place + 2])
        yield Visit(triphone, path.states[start:end] % NUM_STATES)


def statistics(aligned: Iterable[tuple[Example, Path]], outside: str) -> dict[Triphone, Sums]:
    """Sums of each triphone, [states, 1 + 2 size], of examples and their paths."""
    found: dict[Triphone, Sums] = {}
    for example, path in aligned:
        features = example.features.double().numpy()
        rows = np.concatenate([np.ones((len(features), 1)), features, np.square(features)], axis=1)
        first = 0
        for triphone, states in visits(example.graph, path, outside):
            sums = found.setdefault(triphone, np.zeros((NUM_STATES, rows.shape[1])))
            np.add.at(sums, states, rows[first : first + len(states)])
            first += len(states)
    return found


def of_phones(statistics: Mapping[Triphone, Sums]) -> dict[str, Sums]:
    """Sums of each phone, [states, 1 + 2 size], whatever its neighbours."""
    found: dict[str, Sums] = {}
    for triphone, sums in statistics.items():
        found[triphone.phone] = found.get(triphone.phone, 0.0) + sums
    return found


def log_likelihood(sums: Sums, floor: NDArray[np.float64]) -> NDArray[np.float64]:
    """Log-likelihood of frames under the one Gaussian that is estimated on them, [...]; 0 for no frame.

    Args:
        floor: least variance, [size].
    """
    size = len(floor)
    count = sums[..., 0]
    per_frame = 1.0 / np.maximum(count, 1.0)[..., None]
    spread = np.maximum(sums[..., 1 + size :] * per_frame - np.square(sums[..., 1 : 1 + size] * per_frame), 0.0)
    variance = np.maximum(spread, floor)
    exponents = size * math.log(2.0 * math.pi) + (np.log(variance) + spread / variance).sum(-1)
    return np.asarray(-0.5 * count * exponents)
