"""Triphones in a decoding graph: C o L o G (Mohri, Pereira & Riley 2002, section 3.2).

A phone's states depend on the phone after it, so its unit is read when that one is known: a state of the new graph is a
state of L o G, the phone that leads to it, and the neighbour to the left of that phone. Left neighbours that make no
difference to the pdfs of a phone, whatever follows it, share a state.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from las.hmm.fst import EPSILON, Arcs, Fst, concatenated, sorted_by_source
from las.hmm.topology import StateNumbering, Triphone

Integers = NDArray[np.int64]


class Units(NamedTuple):
    """Units of a decoding graph: phones with their pdfs."""

    phones: Integers
    """Numbers of their phones, [units]."""
    pdfs: Integers
    """The pdfs of their states, [units, 3]."""


class _Contexts(NamedTuple):
    """Units of all triphones. The edge of an utterance is one of the phones, or follows them as one more."""

    units: Units
    of: Integers
    """Number of the unit, [left, phone, right]."""
    classes: Integers
    """Left neighbours that make the same unit of a phone with each right one have the same number, [left, phone]."""
    members: Integers
    """One left neighbour of each class, [class, phone]; classes of a phone are counted from 0."""
    edge: int
    """Number of the edge as a neighbour."""

    @property
    def num_classes(self) -> int:
        return len(self.members)


def expand(graph: Fst, states: StateNumbering) -> tuple[Fst, Units]:
    """Read units in the place of phones.

    Args:
        graph: L o G; its input labels are 1 + number of a phone, 0 and larger ones are no phones and are kept as 0.
        states: pdfs of phones in their contexts.

    Returns the graph, whose input labels are 1 + number of a unit, and the units. Outputs and costs of an arc stand on
    the arc that reads the phone before, costs of the end on arcs to a last state.
    """
    contexts = _contexts(states)
    num_phones = contexts.of.shape[1]
    arcs = sorted_by_source(graph.arcs)
    degrees = np.bincount(arcs.sources, minlength=len(graph.finals))
    firsts = np.cumsum(degrees) - degrees
    none = num_phones  # the phone before the first one
    places = _Places(num_phones + 1, contexts.num_classes)

    def leaving(keys: Integers) -> tuple[Integers, Integers, Integers, Integers]:
        """Arcs that leave some states: rows of `keys`, arcs of L o G, input labels, and keys of their targets."""
        state, phone, left = places.split(keys)
        count = degrees[state]
        row = np.repeat(np.arange(len(keys)), count)
        arc = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count) + firsts[state][row]
        read, target = arcs.inputs[arc] - 1, arcs.targets[arc]
        is_phone = (read >= 0) & (read < num_phones)
        before, lefts = phone[row], left[row]
        follows = np.where(is_phone, read, 0)
        is_first = before == none
        inside = np.where(is_first, 0, before)
        unit = contexts.of[contexts.members[lefts, inside], inside, follows]
        inputs = np.where(is_phone & ~is_first, unit + 1, EPSILON)
        seen = np.where(is_first, contexts.edge, inside)
        reached = places.key(target, follows, contexts.classes[seen, follows])
        return row, arc, inputs, np.where(is_phone, reached, places.key(target, before, lefts))

    start = places.key(np.array([graph.start]), np.array([none]), np.array([0]))
    known, new = start, start
    while len(new):
        reached = np.unique(leaving(new)[3])
        places_of = np.searchsorted(known, reached)  # a merge of sorted keys: there are many rounds
        is_new = known[np.minimum(places_of, len(known) - 1)] != reached
        new = reached[is_new]
        known = np.insert(known, places_of[is_new], new)
    row, arc, inputs, targets = leaving(known)
    inner = Arcs(row, inputs, arcs.outputs[arc], arcs.costs[arc], np.searchsorted(known, targets))
    state, phone, left = places.split(known)
    finals = np.full(len(known) + 1, np.inf, np.float32)
    can_end = np.isfinite(graph.finals[state])
    silent = can_end & (phone == none)
    finals[: len(known)][silent] = graph.finals[state][silent]
    finals[-1] = 0.0
    last = np.flatnonzero(can_end & (phone != none))
    unit = contexts.of[contexts.members[left[last], phone[last]], phone[last], contexts.edge]
    nothing = np.full(len(last), EPSILON)
    ends = Arcs(last, unit + 1, nothing, graph.finals[state][last], np.full(len(last), len(known)))
    begin = int(np.searchsorted(known, start[0]))
    return Fst(begin, finals, concatenated([inner, ends])), contexts.units


class _Places(NamedTuple):
    """States of the new graph as whole numbers."""

    num_phones: int
    num_classes: int

    def key(self, state: Integers, phone: Integers, left: Integers) -> Integers:
        """Return the number of a state of L o G, with the phone that leads to it and the class of its left
        neighbour.
        """
        return (state * self.num_phones + phone) * self.num_classes + left

    def split(self, keys: Integers) -> tuple[Integers, Integers, Integers]:
        rest, left = np.divmod(keys, self.num_classes)
        return *np.divmod(rest, self.num_phones), left


def _contexts(states: StateNumbering) -> _Contexts:
    phones = states.topology.phones
    outside = states.neighbour(None)
    assert outside is not None, "states of phones alone have no contexts"
    around = [*phones] if outside in phones else [*phones, outside]
    rows = np.array(
        [
            [number, *states.in_context(Triphone(left, phone, right))]
            for left in around
            for number, phone in enumerate(phones)
            for right in around
        ]
    )
    different, numbers = np.unique(rows, axis=0, return_inverse=True)
    of = numbers.reshape(len(around), len(phones), len(around))
    classes = np.empty(of.shape[:2], np.int64)
    members = np.zeros_like(classes)
    for phone in range(len(phones)):
        _, first, classes[:, phone] = np.unique(of[:, phone], axis=0, return_index=True, return_inverse=True)
        members[: len(first), phone] = first
    units = Units(different[:, 0], different[:, 1:])
    return _Contexts(units, of, classes, members[: classes.max() + 1], around.index(outside))
