"""Weighted finite-state transducers as arrays, grammars made of them, and their way to kaldifst and back.

Transducers go through a file in OpenFst's format of constant transducers ("const", version 2), which NumPy reads and
writes as a whole: a header, a record of each state, a record of each arc in the order of the states. One arc at a time
would take a microsecond each in Python.
"""

import importlib
import struct
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from las.runtime.errors import ConfigError, StorageError
from las.storage import atomic

EPSILON = 0
"""Label of arcs that read, or write, nothing."""
_PREFIX = "las-graph-"
_MAGIC = struct.pack("<i", 2125659606)
_VERSION, _EXPANDED = 2, 1
_TYPES = struct.pack("<i5si8s", 5, b"const", 8, b"standard")
_HEADER = struct.Struct("<iiQqqq")  # version, flags, properties, start, states, arcs
_STATE = np.dtype(
    [("final", "<f4"), ("first", "<u4"), ("arcs", "<u4"), ("input_epsilons", "<u4"), ("output_epsilons", "<u4")]
)
_ARC = np.dtype([("input", "<i4"), ("output", "<i4"), ("cost", "<f4"), ("target", "<i4")])
_LATTICE_TYPES = struct.pack("<i6si8s", 6, b"vector", 8, b"lattice4")
_STATE_WORDS, _ARC_WORDS = 4, 5
"""Records of a lattice in words of 4 bytes: two costs and a count of 8 bytes; two labels, two costs, a target."""


class Arcs(NamedTuple):
    """Arcs from `sources` to `targets` with labels and costs (-log), each [arcs]."""

    sources: NDArray[np.int64]
    inputs: NDArray[np.int64]
    outputs: NDArray[np.int64]
    costs: NDArray[np.float32]
    targets: NDArray[np.int64]


class Fst(NamedTuple):
    """Transducer: the first state, the cost of ending in each state ([states], inf for none), arcs."""

    start: int
    finals: NDArray[np.float32]
    arcs: Arcs


def concatenated(parts: list[Arcs]) -> Arcs:
    """All arcs of several lists."""
    return Arcs(*(np.concatenate(each) for each in zip(*parts, strict=True)))


def sorted_by_source(arcs: Arcs) -> Arcs:
    """Return the arcs in the order of the states that they leave."""
    sources, inputs, outputs, costs, targets = arcs
    order = np.argsort(sources, kind="stable")
    return Arcs(sources[order], inputs[order], outputs[order], costs[order], targets[order])


def library(name: str) -> Any:
    """kaldifst or kaldi_decoder, which are optional. Raises ConfigError with the command that installs them."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(
            f"graphs of words need kaldifst and kaldi-decoder ({error}): pip install 'las-asr[hmm]'"
        ) from error


def to_kaldi(fst: Fst) -> Any:
    """Return a kaldifst transducer of these arcs, sorted by state and input label; it cannot be changed."""
    order = np.lexsort((fst.arcs.inputs, fst.arcs.sources))
    arcs = np.empty(len(order), _ARC)
    arcs["input"], arcs["output"] = fst.arcs.inputs[order], fst.arcs.outputs[order]
    arcs["cost"], arcs["target"] = fst.arcs.costs[order], fst.arcs.targets[order]
    states = np.empty(len(fst.finals), _STATE)
    states["final"] = fst.finals
    states["arcs"] = np.bincount(fst.arcs.sources, minlength=len(states))
    for name, labels in (("input_epsilons", fst.arcs.inputs), ("output_epsilons", fst.arcs.outputs)):
        states[name] = np.bincount(fst.arcs.sources[labels == EPSILON], minlength=len(states))
    states["first"] = np.cumsum(states["arcs"]) - states["arcs"]
    kaldifst = library("kaldifst")
    with atomic.temporary_folder(_PREFIX) as folder:
        path = folder / "fst"
        with path.open("wb") as file:
            file.write(_MAGIC + _TYPES)
            file.write(_HEADER.pack(_VERSION, 0, _EXPANDED, fst.start, len(states), len(arcs)))
            states.tofile(file)
            arcs.tofile(file)
        return kaldifst.StdConstFst.read(str(path))


def from_kaldi(fst: Any) -> Fst:
    """Return the arcs of a kaldifst transducer."""
    kaldifst = library("kaldifst")
    with atomic.temporary_folder(_PREFIX) as folder:
        path = _written(kaldifst.StdConstFst(fst), folder)
        with path.open("rb") as file:
            _require_format(file.read(4 + len(_TYPES)), _TYPES)
            *_, start, num_states, num_arcs = _HEADER.unpack(file.read(_HEADER.size))
            states = np.fromfile(file, _STATE, num_states)
            arcs = np.fromfile(file, _ARC, num_arcs)
    sources = np.repeat(np.arange(num_states), states["arcs"])
    inputs, outputs, targets = (arcs[name].astype(np.int64) for name in ("input", "output", "target"))
    return Fst(start, states["final"], Arcs(sources, inputs, outputs, arcs["cost"], targets))


def _written(fst: Any, folder: Path) -> Path:
    """Return the file of a kaldifst transducer. Raises StorageError where it cannot be written."""
    path = folder / "fst"
    if not fst.write(str(path)):
        raise StorageError(f"{path}: a graph of words cannot be written there, is the disk full?")
    return path


def _require_format(head: bytes, types: bytes) -> None:
    if head != _MAGIC + types:
        raise ConfigError(
            f"kaldifst {library('kaldifst').__version__} writes graphs in another format than 1.8.3: "
            "pip install kaldifst==1.8.3"
        )


def from_lattice(lattice: Any) -> Fst:
    """Return the arcs of a lattice, each with the sum of its two costs.

    Lattices have only OpenFst's format "vector", in which the arcs of each state follow its own record.
    """
    with atomic.temporary_folder(_PREFIX) as folder:
        content = _written(lattice, folder).read_bytes()
    head = 4 + len(_LATTICE_TYPES)
    _require_format(content[:head], _LATTICE_TYPES)
    *_, start, num_states, _ = _HEADER.unpack_from(content, head)
    words = np.frombuffer(content, "<i4", offset=head + _HEADER.size)  # all records are made of 4 bytes each
    records, counts = [0], []
    for _ in range(num_states):
        counts.append(int(words[records[-1] + 2]))
        records.append(records[-1] + _STATE_WORDS + _ARC_WORDS * counts[-1])
    states = np.array(records[:-1])
    sources = np.repeat(np.arange(num_states), counts)
    place = np.arange(len(sources)) - np.repeat(np.cumsum(counts) - counts, counts)
    arcs = states[sources] + _STATE_WORDS + _ARC_WORDS * place
    costs = words.view("<f4")
    inputs, outputs, targets = (words[arcs + field].astype(np.int64) for field in (0, 1, 4))
    finals = costs[states] + costs[states + 1]
    return Fst(start, finals, Arcs(sources, inputs, outputs, costs[arcs + 2] + costs[arcs + 3], targets))


class _Index(NamedTuple):
    """Arcs of words by sorted key (state, word), and the arc that each state backs off by, -1 for none."""

    keys: NDArray[np.int64]
    arcs: NDArray[np.int64]
    backoffs: NDArray[np.int64]


class Grammar:
    """Words and an acceptor of their sequences: which may follow each other, at which cost.

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
        """Return the least cost (-log) of a sequence of words, with its end if it has `ended`; inf if impossible."""
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
        key = state * (len(self.words) + 1) + label
        place = int(np.searchsorted(self._index.keys, key))
        found = place < len(self._index.keys) and self._index.keys[place] == key
        return int(self._index.arcs[place]) if found else -1
