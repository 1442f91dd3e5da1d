"""Decision trees over the neighbours of a phone, grown by the gain in likelihood (Young, Odell and Woodland 1994).

A node holds the triphones of one state of a phone. Of all questions ("is the phone on the left one of B, D, G?") it
asks the one whose two answers, each with its own Gaussian, raise the log-likelihood of their frames most over one
Gaussian together; it is a leaf if no question raises it enough and leaves enough frames on both sides. A triphone that
was never seen comes to a leaf as any other. Without a list of questions they come from the data, as Kaldi's do: phones
are clustered by the likelihood of their frames, the two whose union loses least at a time, and every cluster on the way
is a question.

The log-likelihood of n frames with variance s_d under the Gaussian that is estimated on them needs their sums alone, so
that unions of triphones are scored without looking at a frame again (equation 2):

    L = -1/2 n sum_d [log(2 pi) + log var_d + s_d / var_d],   var_d = max(s_d, floor_d)
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from las.hmm.gmm import Example
from las.hmm.graph import AlignmentGraph
from las.hmm.topology import EDGE, NUM_STATES, Topology, Triphone
from las.hmm.viterbi import BestPath
from las.runtime.errors import DataError, suggest

Sums = NDArray[np.float64]
"""Sums over frames, [..., 1 + 2 size]: of ones, of values and of their squares."""


class Visit(NamedTuple):
    """A phone on a path, its neighbours, and the state of each of its frames, 0 to 2."""

    triphone: Triphone
    states: NDArray[np.int64]


def edge(topology: Topology) -> str:
    """Return the neighbour of phones at the ends of an utterance: silence, where there is one."""
    return topology.silences[0] if topology.silences else EDGE


def visits(graph: AlignmentGraph, path: BestPath, outside: str | None) -> Iterator[Visit]:
    """Yield the phones of a path in their order; `outside` stands before the first and after the last one."""
    starts = [0, *(np.flatnonzero(np.diff(path.states // NUM_STATES)) + 1).tolist(), len(path.states)]
    phones = [graph.segments[path.states[start] // NUM_STATES].phone for start in starts[:-1]]
    around: list[str | None] = [outside, *phones, outside]
    for place, (start, end) in enumerate(itertools.pairwise(starts)):
        triphone = Triphone(around[place], phones[place], around[place + 2])
        yield Visit(triphone, path.states[start:end] % NUM_STATES)


def statistics(aligned: Iterable[tuple[Example, BestPath]], outside: str) -> dict[Triphone, Sums]:
    """Return sums of each triphone, [states, 1 + 2 size], of examples and their paths."""
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


def sums_of_phones(statistics: Mapping[Triphone, Sums]) -> dict[str, Sums]:
    """Return sums of each phone, [states, 1 + 2 size], whatever its neighbours."""
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


Side = Literal["left", "right"]
SIDES: tuple[Side, ...] = ("left", "right")


class Question(NamedTuple):
    """Question whether the phone on one side is one of some."""

    side: Side
    phones: frozenset[str]

    def answer(self, left: str, right: str) -> bool:
        return (left if self.side == "left" else right) in self.phones


def questions_of_sets(sets: Sequence[Sequence[str]], phones: Sequence[str]) -> list[Question]:
    """Questions about each set on both sides. Raises DataError with the nearest phones for an unknown one."""
    for number, phone in ((number, phone) for number, each in enumerate(sets, 1) for phone in each):
        if phone not in phones:
            raise DataError(f"question {number}: there is no phone {phone!r}.{suggest(phone, phones)}")
    return [Question(side, frozenset(each)) for each in sets for side in SIDES]


def clusters(statistics: Mapping[str, Sums], floor: NDArray[np.float64]) -> list[tuple[str, ...]]:
    """Return sets of phones that sound alike, from single ones up to all but one cluster, sorted within.

    Args:
        statistics: sums of each phone, [states, 1 + 2 size]; of a union, the likelihoods of the states add up.
        floor: least variance, [size].
    """
    names: list[tuple[str, ...]] = [(phone,) for phone in sorted(statistics)]
    sums = [statistics[name[0]] for name in names]
    found = list(names)
    while len(names) > 2:
        stacked = np.stack(sums)
        own = log_likelihood(stacked, floor).sum(-1)
        losses = np.full((len(names), len(names)), np.inf)
        for row in range(len(names) - 1):
            joint = log_likelihood(stacked[row] + stacked[row + 1 :], floor).sum(-1)
            losses[row, row + 1 :] = own[row] + own[row + 1 :] - joint
        first, second = divmod(int(losses.argmin()), len(names))
        names.append(tuple(sorted(names[first] + names.pop(second))))
        sums.append(sums[first] + sums.pop(second))
        del names[first], sums[first]
        found.append(names[-1])
    return found


class Leaf(NamedTuple):
    """The end of a tree: the distribution (pdf) of its triphones."""

    pdf: int


class Split(NamedTuple):
    """A question, and the places of the nodes that follow its answers."""

    question: Question
    yes: int
    no: int


Tree = tuple[Leaf | Split, ...]
"""Nodes of a tree; the first one is the root, and a node comes before those that follow it."""


class Growth(NamedTuple):
    """Limits of the growth: frames that a leaf has at least, and the least gain of a question in log-likelihood."""

    min_count: float = 100.0
    min_gain: float = 300.0


DEFAULT_GROWTH = Growth()


def leaf(tree: Tree, left: str, right: str) -> int:
    """Return the pdf of a phone between its neighbours."""
    node = tree[0]
    while isinstance(node, Split):
        node = tree[node.yes if node.question.answer(left, right) else node.no]
    return node.pdf


def grow(
    statistics: Mapping[Triphone, Sums],
    questions: Sequence[Question],
    floor: NDArray[np.float64],
    growth: Growth,
    first_pdf: int,
) -> Tree:
    """Grow the tree of one state of a phone; its leaves have the pdfs from `first_pdf` on.

    Args:
        statistics: sums of its triphones, [1 + 2 size]; at least one of them.
        questions: without any, the tree is a leaf.
        floor: least variance, [size].
    """
    triphones = list(statistics)
    sums = np.stack([statistics[triphone] for triphone in triphones])
    answers = np.array([[each.answer(one.left or "", one.right or "") for one in triphones] for each in questions])
    nodes: list[Leaf | Split | None] = [None]
    waiting = [(0, np.arange(len(triphones)))]
    num_leaves = 0
    while waiting:
        place, members = waiting.pop()
        best = None
        if len(questions):
            gains = split_gains(sums[members], answers[:, members], floor, growth.min_count)
            best = int(gains.argmax()) if gains.max() >= growth.min_gain else None
        if best is None:
            nodes[place] = Leaf(first_pdf + num_leaves)
            num_leaves += 1
            continue
        yes = answers[best, members]
        nodes[place] = Split(questions[best], len(nodes), len(nodes) + 1)
        waiting += [(len(nodes) + 1, members[~yes]), (len(nodes), members[yes])]
        nodes += [None, None]
    return tuple(node for node in nodes if node is not None)


def split_gains(
    sums: Sums, answers: NDArray[np.bool_], floor: NDArray[np.float64], min_count: float
) -> NDArray[np.float64]:
    """Gain in log-likelihood of each question, [questions]; -inf for one that leaves too few frames on a side.

    Args:
        sums: of the triphones, [triphones, 1 + 2 size].
        answers: to each question, [questions, triphones].
    """
    total = sums.sum(0)
    yes = answers.astype(float) @ sums
    no = total - yes
    gains = log_likelihood(yes, floor) + log_likelihood(no, floor) - log_likelihood(total, floor)
    enough = (np.minimum(yes[:, 0], no[:, 0]) >= min_count) & answers.any(1) & ~answers.all(1)
    return np.where(enough, gains, -np.inf)
