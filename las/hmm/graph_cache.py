"""Decoding graphs kept in a folder, in a file that is named by the hash of everything that they are made of."""

import hashlib
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from las.hmm import decoding_graph
from las.hmm.decoding_graph import DecodingGraph
from las.hmm.fst import Arcs, library
from las.hmm.grammar import Grammar
from las.hmm.lexicon import Lexicon
from las.hmm.topology import StateNumbering
from las.runtime import progress
from las.storage import atomic

FORMAT = 1
"""Raised when graphs of the same parts become others."""
_NUM_ARRAYS = 9


def build(lexicon: Lexicon, states: StateNumbering, grammar: Grammar, folder: Path | None = None) -> DecodingGraph:
    """The graph from the folder, or built and kept there; a file that cannot be read is built again, and a line says
    so. Raises as `decoding_graph.build`."""
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
    parts = [
        FORMAT,
        library("kaldifst").__version__,
        lexicon.silence,
        [[word, lexicon.entries[word]] for word in grammar.words],
    ]
    parts += [topology.phones, topology.silences, [topology.costs(phone) for phone in topology.phones]]
    parts += [] if states is topology else [states.content_hash]
    digest = hashlib.sha256(json.dumps([*parts, grammar.fst.start]).encode())
    for array in (grammar.fst.finals, *grammar.fst.arcs):
        digest.update(array.tobytes())
    return digest.hexdigest()


def _built(lexicon: Lexicon, states: StateNumbering, grammar: Grammar) -> DecodingGraph:
    started = time.monotonic()
    graph = decoding_graph.build(lexicon, states, grammar)
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
