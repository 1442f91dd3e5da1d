"""Grammars: which words may follow each other, at which cost, as acceptors for a decoding graph."""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from las.hmm.fst import EPSILON, Fst


class _Index(NamedTuple):
    """Arcs of words by sorted key (state, word), and the arc that each state backs off by, -1 for none."""

    keys: NDArray[np.int64]
    arcs: NDArray[np.int64]
    backoffs: NDArray[np.int64]


class Grammar:
    """Words and an acceptor of their sequences.

    Args:
        words: the labels of its arcs, from 1 on.
        fst: arcs of words, and at most one arc of each state that says nothing (EPSILON): its back-off. A word may be
            said after backing off even where the state has an arc of its own: the cheaper way counts, as in Kaldi.
    """

    def __init__(self, words: Sequence[str], fst: Fst) -> None:
        self.words, self.fst = tuple(words), fst

    @cached_property
    def _index(self) -> _Index:
        arcs = self.fst.arcs
        backoffs = np.full(len(self.fst.finals), -1)
        silent = np.flatnonzero(arcs.inputs == EPSILON)
        backoffs[arcs.sources[silent]] = silent
        keys = arcs.sources * (len(self.words) + 1) + arcs.inputs
        order = np.argsort(keys)
        return _Index(keys[order], order, backoffs)

    def cost(self, labels: Sequence[int], ended: bool = True) -> float:
        """The least cost (-log) of a sequence of words, with its end if it has `ended`; inf if it is impossible."""
        reached = {self.fst.start: 0.0}
        for label in labels:
            following: dict[int, float] = {}
            for state, cost in self._backed_off(reached).items():
                self._move(following, self._arc(state, label), cost)
            reached = following
        if ended:
            reached = {state: cost + float(self.fst.finals[state]) for state, cost in self._backed_off(reached).items()}
        return min(reached.values(), default=np.inf)

    def _backed_off(self, reached: dict[int, float]) -> dict[int, float]:
        """All states with those that they back off to, and the least cost of each."""
        found = dict(reached)
        pending = list(reached)
        while pending:
            state = pending.pop()
            pending += self._move(found, int(self._index.backoffs[state]), found[state])
        return found

    def _move(self, costs: dict[int, float], arc: int, cost: float) -> list[int]:
        """Follow an arc, -1 for none; its target, if it is cheaper by this way."""
        if arc < 0:
            return []
        target, cost = int(self.fst.arcs.targets[arc]), cost + float(self.fst.arcs.costs[arc])
        if cost >= costs.get(target, np.inf):
            return []
        costs[target] = cost
        return [target]

    def _arc(self, state: int, label: int) -> int:
        """The arc of a word, -1 for none."""
        key = state * (len(self.words) + 1) + label
        place = int(np.searchsorted(self._index.keys, key))
        found = place < len(self._index.keys) and self._index.keys[place] == key
        return int(self._index.arcs[place]) if found else -1
