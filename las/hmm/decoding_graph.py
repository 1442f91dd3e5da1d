"""Decoding graphs: all sentences of a dictionary and a grammar as one graph of states of phones (Mohri, Pereira & Riley
2002, "Weighted finite-state transducers in speech recognition").

    HLG = H (min det (L o G))       or, for tied states of triphones,       HCLG = H (C o min det (L o G))

G accepts words, with back-off as arcs that say nothing; L reads phones and writes words, with silence before, between
and after them; C puts phones into their contexts (`context.py`); H puts three states for every phone. L o G is
determinized with symbols of its own where two words, or a word and the beginning of another, sound the same, and where
G backs off; these symbols are then removed.

The costs of L o G (-log of the n-gram and of the pronunciations) stay apart from those of the transitions, so that one
graph serves all scales: determinization commutes with a positive factor on all costs.
A graph may be kept in a folder, in a file that is named by the hash of everything that it is made of.
"""

import hashlib
import json
import math
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from las.hmm import context
from las.hmm.context import Units
from las.hmm.fst import EPSILON, Arcs, Fst, Grammar, concatenated, from_kaldi, library, to_kaldi
from las.hmm.lexicon import Lexicon
from las.hmm.topology import NUM_STATES, StateNumbering, Topology
from las.runtime import progress
from las.runtime.errors import DataError
from las.storage import atomic

FORMAT = 1
"""Raised when graphs of the same parts become others."""
_NUM_ARRAYS = 9
_DELTA = 1e-5
"""Differences of costs that count as none where states are merged."""
_AFTER, _BETWEEN = 0, 1
"""States of L: after a word, where it begins, and before the next one, where it ends."""


class DecodingGraph(NamedTuple):
    """States and arcs of HLG: input labels are 1 + pdf, output labels 1 + index into `words`."""

    words: tuple[str, ...]
    start: int
    final_lm_costs: NDArray[np.float32]
    """Costs of the end of a sentence by the grammar, [states]; inf where none can end."""
    arcs: Arcs
    """Arcs with the costs of transitions."""
    lm_costs: NDArray[np.float32]
    """Costs of the same arcs by grammar and pronunciations, [arcs]."""

    def weighted(self, lm_scale: float, word_insertion: float) -> Fst:
        """Return the transducer for a search: costs of transitions, plus `lm_scale` times those of grammar and
        pronunciations, less `word_insertion` for each word.
        """
        costs = self.arcs.costs + lm_scale * self.lm_costs - word_insertion * (self.arcs.outputs != EPSILON)
        can_end = np.isfinite(self.final_lm_costs)
        finals = np.where(can_end, lm_scale * np.where(can_end, self.final_lm_costs, 0.0), np.inf)
        return Fst(self.start, finals.astype(np.float32), self.arcs._replace(costs=costs.astype(np.float32)))


class _Symbols(NamedTuple):
    """Input labels of L o G beyond those of phones: where G backs off, and after silence.

    The pronunciation of number n, from 1, among equal ones ends with the symbol `pause + n`.
    """

    backoff: int
    pause: int


def build(lexicon: Lexicon, states: StateNumbering, grammar: Grammar) -> DecodingGraph:
    """Build the graph of the words of a grammar, in memory.

    Raises DataError for a word without a pronunciation, a pronunciation that is empty or that a word has twice, a phone
    without states and a grammar without sentences; ConfigError where kaldifst is missing.
    """
    kaldifst, topology = library("kaldifst"), states.topology
    num_phones = len(topology.phones)
    symbols = _Symbols(num_phones + 1, num_phones + 2)
    spoken = kaldifst.StdVectorFst(to_kaldi(_lexicon_fst(lexicon, topology, grammar.words, symbols)))
    # A symbol in the place of the epsilons of back-off arcs, which write nothing: the label after those of words.
    arcs = grammar.fst.arcs
    read = np.where(arcs.inputs == EPSILON, len(grammar.words) + 1, arcs.inputs)
    words = kaldifst.StdVectorFst(to_kaldi(grammar.fst._replace(arcs=arcs._replace(inputs=read))))
    kaldifst.arcsort(spoken, "olabel")
    kaldifst.arcsort(words, "ilabel")
    composed = kaldifst.StdVectorFst(kaldifst.compose(spoken, words))
    del spoken, words
    if not composed.num_states:
        raise DataError("the graph of words is empty: the grammar has no sentence of words of the dictionary")
    kaldifst.determinize_star(composed, delta=_DELTA)
    kaldifst.minimize_encoded(composed, delta=_DELTA)
    of_phones = from_kaldi(composed)
    if isinstance(states, Topology):
        units = Units(np.arange(num_phones), np.arange(topology.num_pdfs).reshape(num_phones, NUM_STATES))
        return _with_states(of_phones, units, topology, grammar.words)
    return _with_states(*context.expand(of_phones, states), topology, grammar.words)


def _lexicon_fst(lexicon: Lexicon, topology: Topology, words: tuple[str, ...], symbols: _Symbols) -> Fst:
    """L: phones of the topology (labels from 1) to words (labels from 1)."""
    rows = [(_AFTER, EPSILON, EPSILON, 0.0, _BETWEEN)]
    # The grammar's symbol of back-off passes between words.
    rows.append((_BETWEEN, symbols.backoff, len(words) + 1, 0.0, _BETWEEN))
    num_states = 2
    if lexicon.silence is not None:
        silence = _label(lexicon.silence, topology, "the silence of the dictionary")
        rows.append((_AFTER, silence, EPSILON, 0.0, num_states))
        rows.append((num_states, symbols.pause, EPSILON, 0.0, _BETWEEN))
        num_states += 1
    for label, phones, number, cost in _pronunciations(lexicon, topology, words):
        path = [*phones, *([symbols.pause + number] if number else [])]
        state = _BETWEEN
        for place, phone in enumerate(path):
            target = _AFTER if place == len(path) - 1 else num_states
            num_states += target != _AFTER
            rows.append((state, phone, EPSILON if place else label, 0.0 if place else cost, target))
            state = target
    sources, inputs, outputs, costs, targets = zip(*rows, strict=True)
    source, read, written, target_states = (np.array(each, np.int64) for each in (sources, inputs, outputs, targets))
    finals = np.full(num_states, np.inf, np.float32)
    finals[_BETWEEN] = 0.0
    return Fst(_AFTER, finals, Arcs(source, read, written, np.array(costs, np.float32), target_states))


def _pronunciations(
    lexicon: Lexicon, topology: Topology, words: tuple[str, ...]
) -> Iterator[tuple[int, tuple[int, ...], int, float]]:
    """Pronunciations with the label of their word, labels of phones, number of a symbol (0 for none), cost.

    Those that sound like another one, or like the beginning of one, need a symbol of their own at the end.
    """
    listed: list[tuple[int, tuple[int, ...], float]] = []
    for label, word in enumerate(words, start=1):
        if word not in lexicon.entries:
            raise DataError(f"the grammar's word {word!r} has no pronunciation")
        ways = Counter(variant.phones for variant in lexicon.entries[word])
        for phones, count in ways.items():
            if count > 1:
                raise DataError(f"the word {word!r} has the pronunciation {' '.join(phones)} {count} times")
        if () in ways:
            raise DataError(f"the word {word!r} has a pronunciation without phones")
        for variant in lexicon.entries[word]:
            labels = tuple(_label(phone, topology, f"the word {word!r}") for phone in variant.phones)
            listed.append((label, labels, -math.log(variant.probability)))
    counts = Counter(labels for _, labels, _ in listed)
    beginnings = {labels[:length] for labels in counts for length in range(1, len(labels))}
    used: Counter[tuple[int, ...]] = Counter()
    for label, labels, cost in listed:
        used[labels] += 1
        yield label, labels, used[labels] if counts[labels] > 1 or labels in beginnings else 0, cost


def _label(phone: str, topology: Topology, where: str) -> int:
    return topology.pdfs(phone, where)[0] // NUM_STATES + 1


def _with_states(graph: Fst, units: Units, topology: Topology, words: tuple[str, ...]) -> DecodingGraph:
    """Put states of phones into the arcs that read units; arcs of one unit to one state share them.

    An arc of H emits with the pdf of the state that it leads to. Arcs with other symbols become epsilons.
    """
    num_units, num_states = len(units.phones), len(graph.finals)
    entering = (graph.arcs.inputs >= 1) & (graph.arcs.inputs <= num_units)
    read = graph.arcs.inputs - 1
    pairs, place = np.unique(graph.arcs.targets[entering] * num_units + read[entering], return_inverse=True)
    unit, target = pairs % num_units, pairs // num_units
    first = num_states + NUM_STATES * np.arange(len(pairs))
    costs = np.array([topology.costs(name) for name in topology.phones], np.float32)[units.phones[unit]]
    loop, forward, skip, leave = costs.T

    def arcs(sources: NDArray[np.int64], state: int, cost: NDArray[np.float32]) -> Arcs:
        """Arcs into a state of every pair."""
        inputs = units.pdfs[unit, state] + 1
        return Arcs(sources, inputs, np.zeros_like(inputs), cost, first + state)

    last = NUM_STATES - 1
    inside = [arcs(first + state, state, loop) for state in range(NUM_STATES)]
    inside += [arcs(first + state - 1, state, forward) for state in range(1, NUM_STATES)]
    can_skip = np.isfinite(skip)
    inside.append(Arcs(*(each[can_skip] for each in arcs(first, last, skip))))
    silent = np.zeros_like(target)
    inside.append(Arcs(first + last, silent, silent, leave, target))
    entry_inputs, entry_targets = np.zeros_like(graph.arcs.inputs), graph.arcs.targets.copy()
    entry_inputs[entering] = units.pdfs[read[entering], 0] + 1
    entry_targets[entering] = first[place]
    outside = graph.arcs._replace(inputs=entry_inputs, costs=np.zeros_like(graph.arcs.costs), targets=entry_targets)
    everything = concatenated([outside, *inside])
    lm_costs = np.zeros(len(everything.costs), np.float32)
    lm_costs[: len(graph.arcs.costs)] = graph.arcs.costs
    finals = np.full(num_states + NUM_STATES * len(pairs), np.inf, np.float32)
    finals[:num_states] = graph.finals
    return DecodingGraph(words, graph.start, finals, everything, lm_costs)


def stored_or_built(
    lexicon: Lexicon, states: StateNumbering, grammar: Grammar, folder: Path | None = None
) -> DecodingGraph:
    """Return the graph from the folder, or built and kept there; a file that cannot be read is built again, and a line
    says so. Raises as `build`.
    """
    if folder is None:
        return _built(lexicon, states, grammar)
    path = folder / f"{content_hash(lexicon, states, grammar)[:32]}.graph"
    if path.is_file():
        try:
            return _read(path, grammar.words)
        except (OSError, ValueError, EOFError) as error:
            progress.say(f"{path}: the stored graph of words is damaged ({error}): it is built again")
    graph = _built(lexicon, states, grammar)
    _write(path, graph)
    return graph


def content_hash(lexicon: Lexicon, states: StateNumbering, grammar: Grammar) -> str:
    """Hash (sha256, hex) of dictionary, states with their transitions, grammar and the version of kaldifst."""
    topology = states.topology
    parts = [FORMAT, library("kaldifst").__version__, lexicon.silence]
    parts.append([[word, lexicon.entries[word]] for word in grammar.words])
    parts += [topology.phones, topology.silences, [topology.costs(phone) for phone in topology.phones]]
    parts += [] if states is topology else [states.content_hash]
    digest = hashlib.sha256(json.dumps([*parts, grammar.fst.start]).encode())
    for array in (grammar.fst.finals, *grammar.fst.arcs):
        digest.update(array.tobytes())
    return digest.hexdigest()


def _built(lexicon: Lexicon, states: StateNumbering, grammar: Grammar) -> DecodingGraph:
    started = time.monotonic()
    graph = build(lexicon, states, grammar)
    progress.say(
        f"graph of {len(graph.words):,} words: {len(graph.final_lm_costs):,} states, {len(graph.lm_costs):,} arcs, "
        f"built in {time.monotonic() - started:.1f} s"
    )
    return graph


def _write(path: Path, graph: DecodingGraph) -> None:
    """Write the arrays of a graph one after the other behind their hash, whole numbers in 32 bits."""
    whole = (each.astype(np.int32) for each in (graph.arcs.sources, *graph.arcs[1:3], graph.arcs.targets))
    arrays = [np.array(graph.start), graph.final_lm_costs, graph.lm_costs, graph.arcs.costs, *whole]
    with atomic.opened(path) as file:
        for array in (_digest(arrays), *arrays):
            np.save(file, array, allow_pickle=False)


def _read(path: Path, words: tuple[str, ...]) -> DecodingGraph:
    with path.open("rb") as file:
        digest, *arrays = (np.load(file, allow_pickle=False) for _ in range(_NUM_ARRAYS))
    if not np.array_equal(digest, _digest(arrays)):
        raise ValueError("its content does not have the hash that it was written with")
    start, finals, lm_costs, costs, *whole = arrays
    sources, inputs, outputs, targets = (each.astype(np.int64) for each in whole)
    return DecodingGraph(words, int(start), finals, Arcs(sources, inputs, outputs, costs, targets), lm_costs)


def _digest(arrays: list[NDArray[Any]]) -> NDArray[np.uint8]:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(array.tobytes())
    return np.frombuffer(digest.digest(), np.uint8)
