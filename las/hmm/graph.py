"""Graphs of what may have been said in an utterance whose words are known: states and arcs between them.

Pronunciations of a word are alternatives; silence may stand before, between and after words. All states emit, so that
the arcs lead straight from the last states of one phone to the first states of those that may follow it. Where
states depend on neighbours, a phone has a copy for each pair of them, and arcs join those that agree.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from las.hmm.lexicon import Lexicon
from las.hmm.topology import NUM_STATES, StateNumbering, Topology, Triphone
from las.runtime.errors import DataError

START = -1
"""Source of arcs from before the first frame."""


class Arc(NamedTuple):
    """Arc from a state, or START, with the logarithm of its weight."""

    source: int
    score: float


class PhoneSegment(NamedTuple):
    """A phone at its place in a graph; `word` is the index of its word, None for silence between words."""

    phone: str
    word: int | None


class AlignmentGraph(NamedTuple):
    """States that a path goes through, one each frame; states of a phone are consecutive."""

    pdfs: NDArray[np.int64]
    """Distribution of each state, [states]."""
    sources: NDArray[np.int64]
    """States that arcs come from, [states, arcs]; padded with state 0."""
    scores: NDArray[np.float32]
    """Logarithms of the weights of these arcs, -inf in padding."""
    initial: NDArray[np.float32]
    """Score of beginning in a state, [states]."""
    final: NDArray[np.float32]
    """Score of ending in a state, [states]."""
    segments: list[PhoneSegment]
    """Phones in the order of their states: state s belongs to segment s // 3."""


class _Node(NamedTuple):
    """A phone at its place, and the arcs that lead to it, from other nodes or START."""

    segment: PhoneSegment
    entries: list[Arc]


class _Copy(NamedTuple):
    """A node between two neighbours, as they are seen."""

    node: int
    left: str | None
    right: str | None


class _Builder:
    """Nodes of phones first; then the states of each, once for every pair of neighbours that it may have."""

    def __init__(self, states: StateNumbering, where: str) -> None:
        self.states, self.where = states, where
        self.nodes: list[_Node] = []

    def phone(self, entries: Sequence[Arc], segment: PhoneSegment) -> list[Arc]:
        """Add a phone behind `entries`; returns the arcs that leave it."""
        self.nodes.append(_Node(segment, list(entries)))
        return [Arc(len(self.nodes) - 1, -self.states.costs(segment.phone).exit)]

    def pause(self, entries: list[Arc], silence: str | None) -> list[Arc]:
        """Add a silence that may be left out."""
        return entries if silence is None else entries + self.phone(entries, PhoneSegment(silence, None))

    def finish(self, exits: Sequence[Arc]) -> AlignmentGraph:
        """Yield the graph of all states; arcs join copies of which each has the other one as its neighbour."""
        seen = {START: self.states.neighbour(None)}
        seen |= {place: self.states.neighbour(node.segment.phone) for place, node in enumerate(self.nodes)}
        rights: dict[int, dict[str | None, None]] = {place: {} for place in seen}
        for place, entries in [*((place, node.entries) for place, node in enumerate(self.nodes)), (START, exits)]:
            for arc in entries:
                rights[arc.source][seen[place]] = None
        lefts = {
            place: dict.fromkeys(seen[arc.source] for arc in node.entries) for place, node in enumerate(self.nodes)
        }
        copies = [_Copy(place, left, right) for place in lefts for left in lefts[place] for right in rights[place]]
        last = {copy: NUM_STATES * index + NUM_STATES - 1 for index, copy in enumerate(copies)}

        def from_states(arcs: Sequence[Arc], right: str | None) -> Iterator[Arc]:
            """Arcs from the last states of the copies of their sources."""
            for arc in arcs:
                if arc.source == START:
                    yield arc
                else:
                    yield from (Arc(last[_Copy(arc.source, left, right)], arc.score) for left in lefts[arc.source])

        rows: list[list[Arc]] = []
        pdfs: list[int] = []
        for place, left, right in copies:
            segment, entries = self.nodes[place]
            matching = [arc for arc in entries if seen[arc.source] == left]
            rows += self._rows(len(rows), segment.phone, from_states(matching, seen[place]))
            pdfs += self.states.in_context(Triphone(left, segment.phone, right), self.where)
        segments = [self.nodes[copy.node].segment for copy in copies]
        return _packed(pdfs, rows, list(from_states(exits, seen[START])), segments)

    def _rows(self, first: int, phone: str, entries: Iterable[Arc]) -> list[list[Arc]]:
        """Arcs into each state of a phone, whose first state has the number `first`."""
        costs = self.states.costs(phone)
        rows = [[*entries, Arc(first, -costs.loop)]]
        rows += [[Arc(state - 1, -costs.forward), Arc(state, -costs.loop)] for state in (first + 1, first + 2)]
        if costs.skip < math.inf:
            rows[-1].append(Arc(first, -costs.skip))
        return rows


def _packed(
    pdfs: list[int], rows: list[list[Arc]], exits: Sequence[Arc], segments: list[PhoneSegment]
) -> AlignmentGraph:
    num_states, width = len(pdfs), max(map(len, rows))
    sources = np.zeros((num_states, width), np.int64)
    scores = np.full((num_states, width), -np.inf, np.float32)
    initial, final = np.full((2, num_states), -np.inf, np.float32)
    for state, arcs in enumerate(rows):
        for place, arc in enumerate(arcs):
            if arc.source == START:
                initial[state] = max(initial[state], arc.score)
            else:
                sources[state, place], scores[state, place] = arc
    for arc in exits:
        final[arc.source] = arc.score
    return AlignmentGraph(np.array(pdfs), sources, scores, initial, final, segments)


def alignment_graph(
    words: Sequence[str], lexicon: Lexicon, states: StateNumbering, where: str = "text"
) -> AlignmentGraph:
    """Return the graph of all ways to say `words`; without words, of silence.

    Neighbours reach across words: a phone before a silence that may be left out has states for either.

    Raises DataError, which begins with `where`, for a word without a pronunciation, a phone without states, and a text
    that is empty where there is no silence.
    """
    builder = _Builder(states, where)
    if not words:
        if lexicon.silence is None:
            raise DataError(f"{where}: there is nothing to align, the text is empty")
        return builder.finish(builder.phone([Arc(START, 0.0)], PhoneSegment(lexicon.silence, None)))
    exits = builder.pause([Arc(START, 0.0)], lexicon.silence)
    for index, word in enumerate(words):
        if word not in lexicon.entries:
            raise DataError(f"{where}: the word {word!r} has no pronunciation")
        entries, exits = exits, []
        for variant in lexicon.entries[word]:
            score = math.log(variant.probability)
            arcs = [Arc(arc.source, arc.score + score) for arc in entries]
            for phone in variant.phones:
                arcs = builder.phone(arcs, PhoneSegment(phone, index))
            exits += arcs
        exits = builder.pause(exits, lexicon.silence)
    return builder.finish(exits)


def first_path(words: Sequence[str], lexicon: Lexicon, topology: Topology) -> list[int]:
    """Pdfs of the words' first pronunciations, between two silences: a beginning for models that know nothing yet."""
    phones = [phone for word in words for phone in lexicon.entries[word][0].phones]
    pause = [] if lexicon.silence is None else [lexicon.silence]
    return [pdf for phone in [*pause, *phones, *pause] for pdf in topology.pdfs(phone)]
