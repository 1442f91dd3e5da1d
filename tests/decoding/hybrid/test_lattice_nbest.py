"""Lists of the best sequences of a lattice equal those of all its paths."""

import random
from collections import defaultdict

import numpy as np
import pytest

from las.decoding.hybrid.lattice_nbest import nbest
from las.hmm.fst import Arcs, Fst


def lattice(seed: int) -> Fst:
    """States in any order, arcs with words, the same words, and none; states that lead nowhere."""
    draw = random.Random(seed)
    order = draw.sample(range(12), 12)
    rows = []
    for source in range(11):
        for target in draw.choices(range(source + 1, 12), k=draw.randint(0, 4)):
            label = draw.choice([0, 0, 1, 2])
            rows.append((order[source], 1, label, draw.uniform(-2.0, 3.0), order[target]))
    sources, inputs, outputs, costs, targets = (
        np.array(each) for each in zip(*draw.sample(rows, len(rows)), strict=True)
    )
    finals = np.array([draw.choice([draw.uniform(0.0, 2.0), np.inf]) for _ in range(12)], np.float32)
    return Fst(order[0], finals, Arcs(sources, inputs, outputs, costs.astype(np.float32), targets))


def all_sequences(given: Fst) -> list[tuple[float, list[int]]]:
    best: dict[tuple[int, ...], float] = defaultdict(lambda: np.inf)
    pending: list[tuple[int, tuple[int, ...], float]] = [(given.start, (), 0.0)]
    arcs = list(zip(*(each.tolist() for each in given.arcs), strict=True))
    while pending:
        state, labels, cost = pending.pop()
        best[labels] = min(best[labels], cost + float(given.finals[state]))
        for source, _, label, step, target in arcs:
            if source == state:
                pending.append((target, (*labels, label) if label else labels, cost + step))
    return sorted((cost, list(labels)) for labels, cost in best.items() if cost < np.inf)


def test_the_best_sequences_of_all_paths() -> None:
    lengths = set()
    for seed in range(150):
        given = lattice(seed)
        expected = all_sequences(given)
        for count in (1, 3, 100):
            found = nbest(given, count)
            assert [each.cost for each in found] == pytest.approx([cost for cost, _ in expected[:count]], abs=1e-5)
            assert [each.labels for each in found] == [labels for _, labels in expected[:count]]
        lengths.add(len(expected))
    assert min(lengths) == 0 and max(lengths) > 10
