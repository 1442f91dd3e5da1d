"""Graph of all sequences of phones, weighed by a trigram, which lattice-free training sets a transcript against
(Povey et al. 2016, "Purely sequence-trained neural networks for ASR based on lattice-free MMI", section 2.4).

The trigram has the relative frequencies of the training part, without smoothing, so that the graph has only trigrams
that occur there. A unit is a phone between its neighbours with three states; units of one phone with the same pdfs and
the same right neighbour are one. A junction is a pair of phones: the units that end with the first of it, before the
second, lead to it, and from it the trigram leads to the units of the second one.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from las.hmm.topology import EDGE, NUM_STATES, StateNumbering, Triphone
from las.runtime.errors import DataError


class PhoneGraph(NamedTuple):
    """States and junctions, together its places, and the arcs between them, in the order of their targets.

    All states emit and junctions do not; junctions are the places behind the states, and their sources are states.
    """

    pdfs: NDArray[np.int64]
    """Distribution of each state, [states]."""
    num_junctions: int
    sources: NDArray[np.int64]
    """Places that arcs come from, [arcs]."""
    targets: NDArray[np.int64]
    weights: NDArray[np.float64]
    """Factors of the arcs, not their logarithms."""
    initial: NDArray[np.float64]
    """Probability of beginning in a state, [states]: the share of its unit in all phones, evenly over its states."""


def phone_graph(sentences: Iterable[Sequence[str]], states: StateNumbering, lm_scale: float = 1.0) -> PhoneGraph:
    """Make the graph of phones.

    Args:
        sentences: the phones of training utterances.
        states: pdfs and transition costs of phones in their contexts.
        lm_scale: transition costs are divided by it, as a search weighs them whose n-gram has this factor.

    Raises DataError without sentences, and as `StateNumbering.in_context`.
    """
    edge = states.neighbour(None) or EDGE
    counts: Counter[tuple[str, str, str]] = Counter()
    for phones in sentences:
        counts.update(zip([edge, *phones], phones, [*phones[1:], edge], strict=False))
    if not counts:
        raise DataError("the graph of phones is empty: there are no phones to count")
    units: dict[tuple[tuple[int, ...], str, str], int] = {}
    junctions: dict[tuple[str, str], int] = {}
    of_junction: Counter[tuple[str, str]] = Counter()
    entering: Counter[tuple[int, int]] = Counter()
    shares: Counter[int] = Counter()
    for (left, phone, right), count in counts.items():
        seen = (states.neighbour(left), states.neighbour(right))
        pdfs = states.in_context(Triphone(seen[0], phone, seen[1]))
        unit = units.setdefault((pdfs, phone, right), len(units))
        junction = junctions.setdefault((left, phone), len(junctions))
        of_junction[left, phone] += count
        entering[junction, unit] += count
        shares[unit] += count
    num_states = NUM_STATES * len(units)
    arcs: list[tuple[int, int, float]] = []  # target, source, weight
    for (_, phone, right), unit in units.items():
        first = NUM_STATES * unit
        loop, forward, skip, leave = np.exp(-np.array(states.costs(phone)) / lm_scale)
        arcs += [(first + state, first + state, loop) for state in range(NUM_STATES)]
        arcs += [(first + state, first + state - 1, forward) for state in range(1, NUM_STATES)]
        arcs += [(first + NUM_STATES - 1, first, skip)] if skip else []
        if (phone, right) in junctions:
            arcs.append((num_states + junctions[phone, right], first + NUM_STATES - 1, leave))
    totals = {number: of_junction[pair] for pair, number in junctions.items()}
    arcs += [
        (NUM_STATES * unit, num_states + junction, count / totals[junction])
        for (junction, unit), count in entering.items()
    ]
    targets, sources, weights = zip(*sorted(arcs), strict=True)
    initial = np.repeat([shares[unit] for unit in range(len(units))], NUM_STATES) / (NUM_STATES * shares.total())
    pdfs_of_units = np.array([pdfs for pdfs, _, _ in units], np.int64).reshape(-1)
    return PhoneGraph(
        pdfs_of_units, len(junctions), np.array(sources), np.array(targets), np.array(weights, np.float64), initial
    )


def restricted(graph: PhoneGraph, pdfs: NDArray[np.int64]) -> PhoneGraph:
    """Return the part of a graph whose states have one of these pdfs, which are numbered in their order.

    Args:
        graph: the whole one.
        pdfs: numbers of pdfs, ascending.
    """
    places = np.searchsorted(pdfs, graph.pdfs).clip(max=len(pdfs) - 1)
    states = pdfs[places] == graph.pdfs
    reached = np.zeros(graph.num_junctions, bool)
    into_junction = graph.targets >= len(states)
    leaving = into_junction & states[graph.sources.clip(max=len(states) - 1)]
    reached[graph.targets[leaving] - len(states)] = True
    kept = np.concatenate([states, reached])
    numbers = np.cumsum(kept) - 1
    arcs = kept[graph.sources] & kept[graph.targets]
    return PhoneGraph(
        places[states],
        int(reached.sum()),
        numbers[graph.sources[arcs]],
        numbers[graph.targets[arcs]],
        graph.weights[arcs],
        graph.initial[states],
    )
