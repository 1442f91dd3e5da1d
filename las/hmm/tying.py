"""Tied states of triphones: for each state of each phone a decision tree, whose leaves are the distributions (pdfs).

A tying is kept as JSON: phones, silences, trees, and the hash of all of it, which names it in labels and models.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from las.hmm import decision_tree
from las.hmm.decision_tree import DEFAULT_GROWTH, Growth, Leaf, Question, Split, Sums, Tree
from las.hmm.lexicon import require_phone
from las.hmm.topology import EDGE, NUM_STATES, Topology, TransitionCosts, Triphone
from las.runtime.errors import DataError, StorageError, suggest
from las.storage import atomic, bounded

FORMAT = 1
TYING = "tying.json"
"""Name of the tying file, stored next to the labels."""


class TiedStates:
    """Numbering of the tied states of triphones.

    Args:
        topology: of the phones; its transition costs stay.
        trees: those of the states of each phone, in the order of the topology; their pdfs are numbered from 0 on.
    """

    def __init__(self, topology: Topology, trees: Mapping[str, Sequence[Tree]]) -> None:
        self.topology = topology
        self.trees = {phone: tuple(trees[phone]) for phone in topology.phones}
        leaves = {
            leaf.pdf: (phone, state, number)
            for phone, own in enumerate(self.trees.values())
            for state, tree in enumerate(own)
            for number, leaf in enumerate(each for each in tree if isinstance(each, Leaf))
        }
        self._leaves = [leaves[pdf] for pdf in range(len(leaves))]

    @property
    def num_pdfs(self) -> int:
        return len(self._leaves)

    def in_context(self, triphone: Triphone, where: str = "tying") -> tuple[int, ...]:
        """Return the pdfs of the states of a triphone, whether it was seen or not.

        Raises DataError with the nearest phones for an unknown one, which may be a neighbour.
        """
        outside = decision_tree.edge(self.topology)
        left, right = (outside if each is None else each for each in (triphone.left, triphone.right))
        for phone in {left, triphone.phone, right} - {EDGE}:
            require_phone(phone, self.topology.phones, where)
        return tuple(decision_tree.leaf(tree, left, right) for tree in self.trees[triphone.phone])

    def costs(self, phone: str) -> TransitionCosts:
        return self.topology.costs(phone)

    def neighbour(self, phone: str | None) -> str | None:
        """Return the phone itself; the edge is silence, where there is one."""
        return decision_tree.edge(self.topology) if phone is None else phone

    def name(self, pdf: int) -> str:
        """Return the name of a pdf: phone, state, and leaf of its tree."""
        phone, state, number = self._leaves[pdf]
        return f"{self.topology.phones[phone]}.{state}.{number}"

    def owners(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        phones, states, _ = np.array(self._leaves).T
        return phones, states

    @property
    def content_hash(self) -> str:
        """Hash (sha256, hex) of phones and trees; the transition costs are not part of it."""
        return hashlib.sha256(json.dumps(self._plain, sort_keys=True).encode()).hexdigest()

    def state(self) -> dict[str, Any]:
        """Plain JSON values for files and checkpoints; `from_state` reads them."""
        return self._plain | {"content_hash": self.content_hash}

    @property
    def _plain(self) -> dict[str, Any]:
        trees = {phone: [[_plain(node) for node in tree] for tree in own] for phone, own in self.trees.items()}
        return {
            "format": FORMAT,
            "phones": list(self.topology.phones),
            "silences": list(self.topology.silences),
            "trees": trees,
        }

    def write(self, path: str | Path) -> None:
        atomic.write_json(Path(path), self.state())


def estimate(
    statistics: Mapping[Triphone, Sums],
    topology: Topology,
    floor: NDArray[np.float64],
    growth: Growth = DEFAULT_GROWTH,
    asked: Iterable[Question] | None = None,
) -> TiedStates:
    """Grow the trees of all phones.

    Args:
        statistics: sums of triphones, [states, 1 + 2 size], from `triphones.statistics`.
        topology: every phone of the triphones is one of it; silences and phones without frames keep three pdfs.
        floor: least variance, [size].
        growth: limits.
        asked: questions; None for those of clusters of the phones themselves, and the edge of utterances.
    """
    known = {phone: sums for phone, sums in decision_tree.sums_of_phones(statistics).items() if sums[:, 0].all()}
    if asked is None:
        sets = [*decision_tree.clusters(known, floor), (EDGE,)]
        asked = decision_tree.questions_of_sets(sets, (*topology.phones, EDGE))
    asked = list(asked)
    trees: dict[str, list[Tree]] = {}
    num_pdfs = 0
    for phone in topology.phones:
        own = {each: sums for each, sums in statistics.items() if each.phone == phone}
        splits = [] if phone in topology.silences or not own else asked
        trees[phone] = []
        for state in range(NUM_STATES):
            tree: Tree = (Leaf(num_pdfs),)
            if splits:
                of_state = {each: sums[state] for each, sums in own.items()}
                tree = decision_tree.grow(of_state, splits, floor, growth, num_pdfs)
            trees[phone].append(tree)
            num_pdfs += sum(isinstance(node, Leaf) for node in tree)
    return TiedStates(topology, trees)


def read(path: str | Path, topology: Topology) -> TiedStates:
    """Read a tying for the phones of a topology.

    Raises StorageError for a file that is missing, damaged or changed, DataError naming phones that the topology lacks
    or the tying.
    """
    return from_state(bounded.stored(Path(path)), topology, str(path))


def from_state(stored: Mapping[str, Any], topology: Topology, where: str) -> TiedStates:
    """Return the tying of `TiedStates.state`; errors begin with `where`, otherwise as `read`."""
    missing = {"format", "phones", "silences", "trees", "content_hash"} - stored.keys()
    if missing:
        raise StorageError(f"{where}: this is no tying of states, it lacks {', '.join(sorted(missing))}")
    if stored["format"] != FORMAT:
        raise StorageError(f"{where}: format {stored['format']}, and this release reads {FORMAT}")
    given = {key: value for key, value in stored.items() if key != "content_hash"}
    if hashlib.sha256(json.dumps(given, sort_keys=True).encode()).hexdigest() != stored["content_hash"]:
        raise StorageError(f"{where}: it was changed after it was written: its content has another hash than it says")
    _require_same(where, stored["phones"], topology.phones, "phones")
    _require_same(where, stored["silences"], topology.silences, "silences")
    trees = {phone: [tuple(map(_node, tree)) for tree in own] for phone, own in stored["trees"].items()}
    return TiedStates(topology, trees)


def _require_same(where: str, stored: Sequence[str], wanted: Sequence[str], kind: str) -> None:
    """Raise DataError, which names a difference, unless two lists of phones are the same."""
    for phone in wanted:
        if phone not in stored:
            raise DataError(f"{where}: the tying does not know the {kind[:-1]} {phone!r}.{suggest(phone, stored)}")
    for phone in stored:
        if phone not in wanted:
            raise DataError(f"{where}: there is no {kind[:-1]} {phone!r}, which the tying has.{suggest(phone, wanted)}")
    if list(stored) != list(wanted):
        raise DataError(f"{where}: the tying has the same {kind} in another order")


def _plain(node: Leaf | Split) -> dict[str, Any]:
    if isinstance(node, Leaf):
        return {"pdf": node.pdf}
    return {"side": node.question.side, "phones": sorted(node.question.phones), "yes": node.yes, "no": node.no}


def _node(plain: Mapping[str, Any]) -> Leaf | Split:
    if "pdf" in plain:
        return Leaf(plain["pdf"])
    return Split(Question(plain["side"], frozenset(plain["phones"])), plain["yes"], plain["no"])
