"""The n best sequences of a lattice, by a best-first search with exact costs of what remains (Soong & Huang 1991,
"A tree-trellis based fast search for finding the N best sentence hypotheses in continuous speech recognition").

Paths are extended in the order of the cost of their best completion. The first path to reach a state with some words is
the best one with them; after n different sequences of words a state can add none to the n best.
"""

import heapq
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from las.hmm.fst import EPSILON, Fst

_END = -1


class Sequence(NamedTuple):
    """Labels of words, and the cost of their best path."""

    labels: list[int]
    cost: float


class _Histories:
    """Sequences of labels by number, each one its predecessor with one more; 0 is the empty one."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, int]] = [(0, EPSILON)]
        self._numbers: dict[tuple[int, int], int] = {}

    def longer(self, history: int, label: int) -> int:
        if label == EPSILON:
            return history
        number = self._numbers.setdefault((history, label), len(self.entries))
        if number == len(self.entries):
            self.entries.append((history, label))
        return number

    def labels(self, history: int) -> list[int]:
        labels = []
        while history:
            history, label = self.entries[history]
            labels.append(label)
        return labels[::-1]


def nbest(lattice: Fst, count: int) -> list[Sequence]:
    """Return the `count` best sequences of output labels, or all if fewer, best first. The lattice has no cycle."""
    remaining = _remaining_costs(lattice)
    order = np.argsort(lattice.arcs.sources, kind="stable")
    first = np.searchsorted(lattice.arcs.sources[order], np.arange(len(remaining) + 1)).tolist()
    columns = (lattice.arcs.costs.astype(np.float64), lattice.arcs.outputs, lattice.arcs.targets)
    costs, outputs, targets = (column[order].tolist() for column in columns)
    finals, ahead = lattice.finals.tolist(), remaining.tolist()
    histories = _Histories()
    visited: list[set[int]] = [set() for _ in range(len(remaining) + 1)]  # the last one is that of _END
    found: list[Sequence] = []
    queue = [(ahead[lattice.start], lattice.start, 0, 0.0)]
    while queue and len(found) < count:
        total, state, history, cost = heapq.heappop(queue)
        known = visited[state]
        if history in known or len(known) >= count:
            continue
        known.add(history)
        if state == _END:
            found.append(Sequence(histories.labels(history), total))
            continue
        if finals[state] < np.inf:
            heapq.heappush(queue, (cost + finals[state], _END, history, cost + finals[state]))
        for arc in range(first[state], first[state + 1]):
            target, reached = targets[arc], cost + costs[arc]
            if ahead[target] < np.inf and len(visited[target]) < count:
                longer = histories.longer(history, outputs[arc])
                heapq.heappush(queue, (reached + ahead[target], target, longer, reached))
    return found


def _remaining_costs(lattice: Fst) -> NDArray[np.float64]:
    """Return the least cost from each state to the end, [states]: states are done when all that follow them are."""
    arcs, costs = lattice.arcs, lattice.finals.astype(np.float64)
    order = np.argsort(arcs.targets, kind="stable")
    sources, arc_costs = arcs.sources[order], arcs.costs[order].astype(np.float64)
    first = np.searchsorted(arcs.targets[order], np.arange(len(costs) + 1))
    waiting = np.bincount(arcs.sources, minlength=len(costs))
    done = np.flatnonzero(waiting == 0)
    while len(done):
        lengths = first[done + 1] - first[done]
        entering = np.repeat(first[done] - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
        before = sources[entering]
        np.minimum.at(costs, before, arc_costs[entering] + np.repeat(costs[done], lengths))
        np.subtract.at(waiting, before, 1)
        done = np.unique(before[waiting[before] == 0])
    return costs
