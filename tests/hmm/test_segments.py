"""Times of phones and words from a path, and their distances from known times."""

import numpy as np
import pytest

from las.data.manifest import Interval
from las.hmm import segments
from las.hmm.graph import BestPath, alignment_graph
from las.hmm.lexicon import Lexicon, Pronunciation
from las.hmm.segments import FrameTimes
from las.hmm.topology import Topology

TIMES = FrameTimes(0.01, 0.025)


def test_a_path_gives_times_of_phones_and_words() -> None:
    lexicon = Lexicon({"a": [Pronunciation(("AH",)), Pronunciation(("EY",))], "by": [Pronunciation(("B", "AY"))]})
    graph = alignment_graph(["a", "by"], lexicon, Topology(lexicon.phones, ["SIL"]))
    names = [(each.phone, each.word) for each in graph.segments]
    assert names == [("SIL", None), ("AH", 0), ("EY", 0), ("SIL", None), ("B", 1), ("AY", 1), ("SIL", None)]
    # Silence, the second way to say `a`, and `by` without a pause: 3, 4, 3 and 5 frames.
    states = np.array([0, 1, 2, 6, 7, 7, 8, 12, 13, 14, 15, 15, 16, 17, 17])
    found = segments.aligned("u1", 0.18, ["a", "by"], graph, BestPath(0.0, states), TIMES)
    assert [each.symbol for each in found.phones] == ["SIL", "EY", "B", "AY"]
    assert [each.start_s for each in found.phones] == pytest.approx([0.0, 0.0375, 0.0775, 0.1075])
    assert [each.end_s for each in found.phones] == pytest.approx([0.0375, 0.0775, 0.1075, 0.18])
    assert [(each.symbol, each.start_s, each.end_s) for each in found.words] == [
        ("a", found.phones[1].start_s, found.phones[1].end_s),
        ("by", found.phones[2].start_s, 0.18),
    ]


def test_distances_are_of_inner_boundaries() -> None:
    one = [Interval(0.0, 0.1, "a"), Interval(0.1, 0.2, "b"), Interval(0.2, 0.3, "c")]
    other = [Interval(0.01, 0.12, "a"), Interval(0.12, 0.19, "b"), Interval(0.19, 0.31, "c")]
    assert segments.boundary_distances(one, other) == pytest.approx([0.02, 0.01])
    assert segments.boundary_distances(one, other[:2]) == []
