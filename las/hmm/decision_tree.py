"""Decision trees over the neighbours of a phone, grown by the gain in likelihood (Young, Odell and Woodland 1994).

A node holds the triphones of one state of a phone. Of all questions it asks the one whose two answers, each with its
own Gaussian, raise the log-likelihood of their frames most over one Gaussian together; it is a leaf if no question
raises it enough and leaves enough frames on both sides. A triphone that was never seen comes to a leaf as any other.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from las.hmm.questions import Question
from las.hmm.topology import Triphone
from las.hmm.triphones import Sums, log_likelihood


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
    """The pdf of a phone between its neighbours."""
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
