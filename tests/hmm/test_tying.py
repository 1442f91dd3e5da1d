"""Tied states: trees find planted contexts, gains equal brute force, a tying is read as it was written."""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from las.hmm import decision_tree, tying
from las.hmm.decision_tree import Growth, Leaf, Question, Split, Sums
from las.hmm.topology import EDGE, NUM_STATES, StateNumbering, Topology, Triphone

PHONES = ("SIL", "A", "B", "D", "G", "M", "N")
TOPOLOGY = Topology(PHONES, ["SIL"])
NASALS = frozenset({"M", "N"})
FLOOR = np.full(2, 1e-3)
SIZE = len(FLOOR)


def sums_of(frames: NDArray[np.float64]) -> Sums:
    return np.concatenate([[len(frames)], frames.sum(0), np.square(frames).sum(0)])


def planted(seed: int = 0, count: int = 40) -> tuple[dict[Triphone, Sums], dict[Triphone, NDArray[np.float64]]]:
    """Frames of every triphone: state 0 of A depends on a nasal on the left, its state 2 on one on the right."""
    draw = np.random.default_rng(seed)
    centres = {phone: 4.0 * draw.normal(size=(NUM_STATES, SIZE)) for phone in PHONES}
    centres["N"] = centres["M"] + 0.3
    found, frames = {}, {}
    for phone in PHONES:
        for left in PHONES:
            for right in PHONES:
                own = centres[phone].copy()
                if phone == "A":
                    own[0] += 2.0 * (left in NASALS)
                    own[2] += 2.0 * (right in NASALS)
                drawn = own[:, None] + draw.normal(size=(NUM_STATES, count, SIZE))
                triphone = Triphone(left, phone, right)
                found[triphone] = np.stack([sums_of(each) for each in drawn])
                frames[triphone] = drawn
    return found, frames


def test_trees_find_planted_contexts() -> None:
    statistics, _ = planted()
    seen = {each: sums for each, sums in statistics.items() if each != Triphone("M", "A", "B")}
    tied = tying.estimate(seen, TOPOLOGY, FLOOR, Growth(min_count=40, min_gain=60.0))
    assert isinstance(tied, StateNumbering) and isinstance(TOPOLOGY, StateNumbering)
    first, middle, last = tied.trees["A"]
    assert isinstance(first[0], Split) and isinstance(last[0], Split) and len(middle) == 1
    assert (len(first), len(last)) == (3, 3), "one question each"
    for tree, side in ((first[0], "left"), (last[0], "right")):
        assert tree.question.side == side and tree.question.phones & set(PHONES) in (NASALS, set(PHONES) - NASALS)
    assert all(len(tree) == 1 for phone in PHONES if phone != "A" for tree in tied.trees[phone])
    assert tied.num_pdfs == TOPOLOGY.num_pdfs + 2
    assert tied.in_context(Triphone("M", "A", "B")) == tied.in_context(Triphone("N", "A", "D")), "never seen"
    assert tied.in_context(Triphone("M", "A", "B")) != tied.in_context(Triphone("D", "A", "B"))
    assert tied.in_context(Triphone(None, "A", None)) == tied.in_context(Triphone("SIL", "A", "SIL"))
    names = [tied.name(pdf) for pdf in range(tied.num_pdfs)]
    assert len(set(names)) == tied.num_pdfs and names[:5] == ["SIL.0.0", "SIL.1.0", "SIL.2.0", "A.0.0", "A.0.1"]


def gaussian(frames: NDArray[np.float64]) -> float:
    """Log-likelihood of frames under their own mean and variance, frame by frame."""
    drawn = torch.from_numpy(frames)
    deviation = drawn.var(0, correction=0).clamp(min=FLOOR[0]).sqrt()
    return float(torch.distributions.Normal(drawn.mean(0), deviation).log_prob(drawn).sum())


def every_question() -> Iterator[Question]:
    for number in range(1, 2 ** len(PHONES) - 1):
        chosen = frozenset(phone for place, phone in enumerate(PHONES) if number >> place & 1)
        yield from (Question(side, chosen) for side in decision_tree.SIDES)


def test_the_gain_of_every_split_is_that_of_all_its_frames() -> None:
    statistics, frames = planted(1, count=3)
    members = [each for each in statistics if each.phone == "A"]
    asked = list(every_question())
    answers = np.array([[each.answer(one.left or "", one.right or "") for one in members] for each in asked])
    sums = np.stack([statistics[each][0] for each in members])
    gains = decision_tree.split_gains(sums, answers, FLOOR, 0.0)
    drawn = np.stack([frames[each][0] for each in members])
    whole = gaussian(drawn.reshape(-1, SIZE))
    expected = [
        gaussian(drawn[own].reshape(-1, SIZE)) + gaussian(drawn[~own].reshape(-1, SIZE)) - whole for own in answers
    ]
    np.testing.assert_allclose(gains, expected, atol=1e-7)
    tree = decision_tree.grow(dict(zip(members, sums, strict=True)), asked, FLOOR, Growth(0.0, 0.0), 5)
    root = tree[0]
    assert isinstance(root, Split) and root.question == asked[int(np.argmax(expected))]
    leaves = [node.pdf for node in tree if isinstance(node, Leaf)]
    assert sorted(leaves) == list(range(5, 5 + len(leaves))) and min(expected) > -1e-9


def test_limits_hold() -> None:
    statistics, _ = planted()
    asked = decision_tree.questions_of_sets([["M", "N"], ["M"]], PHONES)
    own = {each: sums[0] for each, sums in statistics.items() if each.phone == "A"}
    frames_of_nasals = 2 * len(PHONES) * 40
    for growth, size in (
        (Growth(frames_of_nasals, 1.0), 3),
        (Growth(frames_of_nasals + 1, 1.0), 1),
        (Growth(1.0, math.inf), 1),
    ):
        assert len(decision_tree.grow(own, asked, FLOOR, growth, 0)) == size
    assert decision_tree.grow(own, [], FLOOR, Growth(), 3) == (Leaf(3),)


def test_a_floor_keeps_a_constant_feature_finite() -> None:
    sums = sums_of(np.ones((50, SIZE)))
    assert decision_tree.log_likelihood(sums, FLOOR) == pytest.approx(gaussian(np.ones((50, SIZE))))
    assert decision_tree.log_likelihood(np.zeros(1 + 2 * SIZE), FLOOR) == 0.0


def test_clusters_join_what_is_alike_first() -> None:
    statistics, _ = planted()
    found = decision_tree.clusters(decision_tree.sums_of_phones(statistics), FLOOR)
    assert found[: len(PHONES)] == [(phone,) for phone in sorted(PHONES)]
    assert found[len(PHONES)] == ("M", "N") and len(found) == 2 * len(PHONES) - 2
    assert len(set(found)) == len(found)


def test_a_tying_is_read_as_it_was_written(tmp_path: Path) -> None:
    statistics, _ = planted()
    tied = tying.estimate(statistics, TOPOLOGY, FLOOR, Growth(40, 20.0))
    path = tmp_path / "tying.json"
    tied.write(path)
    again = tying.read(path, TOPOLOGY)
    assert again.trees == tied.trees and again.content_hash == tied.content_hash != TOPOLOGY.content_hash
    assert all(again.in_context(each) == tied.in_context(each) for each in statistics)
    without_silence = tying.estimate(statistics, Topology(PHONES), FLOOR)
    assert without_silence.neighbour(None) == EDGE, "an edge of its own"
    other = tying.estimate(statistics, TOPOLOGY, FLOOR, Growth(40, math.inf))
    assert other.content_hash != tied.content_hash and other.num_pdfs == TOPOLOGY.num_pdfs
