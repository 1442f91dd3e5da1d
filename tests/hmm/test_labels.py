"""Labels of frames and times of phones: from known times, from paths, written and read."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from las.data.manifest import Interval, Utterance
from las.hmm import labels, segments
from las.hmm.graph import alignment_graph
from las.hmm.labels import FrameLabels, LabelKind
from las.hmm.lexicon import Lexicon, Pronunciation
from las.hmm.segments import FrameTimes
from las.hmm.topology import Topology
from las.hmm.viterbi import BestPath

TIMES = FrameTimes(0.01, 0.025)
TOPOLOGY = Topology(["sil", "aa", "b"], ["sil"])
KIND = LabelKind.of(TOPOLOGY, TIMES)
SAID = (Interval(0.0, 0.0725, "sil"), Interval(0.0725, 0.0925, "b"), Interval(0.0925, 0.2, "aa"))
"""Of 18 frames, with centres at 12.5, 22.5 ... 182.5 ms: six, two and ten."""


def test_a_frame_belongs_to_the_interval_with_its_centre() -> None:
    """Without gaps: tests/hmm/test_imported.py."""
    gap = labels.of_times((SAID[0], Interval(0.0925, 0.2, "aa")), 18, TOPOLOGY, TIMES, "u1")
    assert gap[6:8].tolist() == [labels.NO_LABEL] * 2, "no interval, no label"
    short = labels.of_times((Interval(0, 0.02, "b"), Interval(0.02, 0.2, "aa")), 18, TOPOLOGY, TIMES, "u1")
    assert short[0] == 7, "the middle state of a single frame"


@given(st.lists(st.integers(1, 40), min_size=1, max_size=8))
def test_labels_give_the_times_back(counts: list[int]) -> None:
    ends = np.cumsum(counts)
    num_frames = int(ends[-1])
    bounds = [TIMES.boundary_s(int(frame), num_frames, num_frames * 0.01 + 0.015) for frame in (0, *ends)]
    names = [TOPOLOGY.phones[index % 3] for index in range(len(counts))]
    said = [Interval(*each) for each in zip(bounds[:-1], bounds[1:], names, strict=True)]
    found = labels.of_times(said, num_frames, TOPOLOGY, TIMES, "u1")
    assert [TOPOLOGY.phones[label // 3] for label in found] == [
        name for name, count in zip(names, counts, strict=True) for _ in range(count)
    ]


def test_labels_fit_the_features_or_are_refused() -> None:
    four = np.array([1, 2, 3, 4], np.int16)
    assert labels.fitted(four, 3, "u1").tolist() == [1, 2, 3]
    assert labels.fitted(four, 6, "u1").tolist() == [1, 2, 3, 4, 4, 4]
    for count in (16, 20):  # two fewer or more are accepted of times as well
        assert len(labels.of_times(SAID, count, TOPOLOGY, TIMES, "u1")) == count


def written(folder: Path) -> FrameLabels:
    return labels.write(folder, [("u1", np.array([0, 1, 8], np.int16)), ("u2", np.array([-1, 3], np.int16))], KIND)


def test_a_folder_reads_back(tmp_path: Path) -> None:
    made = written(tmp_path / "labels")
    read = FrameLabels(tmp_path / "labels", KIND)
    assert len(read) == 2 and read.of("u1").tolist() == [0, 1, 8] and read.of("u2").tolist() == [-1, 3]
    assert isinstance(read.of("u1").base, np.memmap) or isinstance(read.of("u1"), np.memmap)
    assert read.targets(Utterance("u2", "", 0, 0.0, 1.0, "", "")).tolist() == [-1, 3]
    assert read.content_hash == made.content_hash and read.counts().tolist() == [1, 1, 0, 1, 0, 0, 0, 0, 1]
    other = labels.write(tmp_path / "other", [("u1", np.array([0, 1, 7], np.int16))], KIND)
    assert other.content_hash != made.content_hash


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
