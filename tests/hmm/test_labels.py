"""Labels of frames: from times, written and read, of the right kind and length."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from las.data.manifest import Interval, Utterance
from las.hmm import labels
from las.hmm.labels import FrameLabels, LabelKind
from las.hmm.segments import FrameTimes
from las.hmm.topology import Topology
from las.runtime.errors import DataError, StorageError

TIMES = FrameTimes(0.01, 0.025)
TOPOLOGY = Topology(["sil", "aa", "b"], ["sil"])
KIND = LabelKind.of(TOPOLOGY, TIMES)
SAID = (Interval(0.0, 0.0725, "sil"), Interval(0.0725, 0.0925, "b"), Interval(0.0925, 0.2, "aa"))
"""Of 18 frames, with centres at 12.5, 22.5 ... 182.5 ms: six, two and ten."""


def test_a_frame_belongs_to_the_interval_with_its_centre() -> None:
    found = labels.of_times(SAID, 18, TOPOLOGY, TIMES, "u1")
    assert found.tolist() == [0, 0, 1, 1, 2, 2, 6, 8, 3, 3, 3, 3, 4, 4, 4, 5, 5, 5]
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


@pytest.mark.parametrize("num_frames", [15, 21, 40])
def test_times_of_other_audio_are_refused(num_frames: int) -> None:
    labels.of_times(SAID, 16, TOPOLOGY, TIMES, "u1")
    labels.of_times(SAID, 20, TOPOLOGY, TIMES, "u1")
    with pytest.raises(DataError, match=rf"u1: 18 labels for {num_frames} frames, and at most 2"):
        labels.of_times(SAID, num_frames, TOPOLOGY, TIMES, "u1")
    with pytest.raises(DataError, match=r"u1: the phone 'zz' has no states\. Did you mean"):
        labels.of_times([Interval(0.0, 0.2, "zz")], 18, TOPOLOGY, TIMES, "u1")


def test_labels_fit_the_features_or_are_refused() -> None:
    four = np.array([1, 2, 3, 4], np.int16)
    assert labels.fitted(four, 3, "u1").tolist() == [1, 2, 3]
    assert labels.fitted(four, 6, "u1").tolist() == [1, 2, 3, 4, 4, 4]
    for count in (1, 7):
        with pytest.raises(DataError, match=f"u1: 4 labels for {count} frames"):
            labels.fitted(four, count, "u1")


def written(folder: Path) -> FrameLabels:
    return labels.write(folder, [("u1", np.array([0, 1, 8], np.int16)), ("u2", np.array([-1, 3], np.int16))], KIND)


def test_a_folder_reads_back(tmp_path: Path) -> None:
    made = written(tmp_path / "labels")
    read = FrameLabels(tmp_path / "labels", KIND)
    assert len(read) == 2 and read.of("u1").tolist() == [0, 1, 8] and read.of("u2").tolist() == [-1, 3]
    assert isinstance(read.of("u1").base, np.memmap) or isinstance(read.of("u1"), np.memmap)
    assert read.targets(Utterance("u2", "", 0, 0.0, 1.0, "", "")).tolist() == [-1, 3]
    assert read.content_hash == made.content_hash and read.counts().tolist() == [1, 1, 0, 1, 0, 0, 0, 0, 1]
    with pytest.raises(DataError, match=r"no labels of the utterance 'u3'\. Did you mean u"):
        read.of("u3")


def test_what_was_changed_is_found_out(tmp_path: Path) -> None:
    first = written(tmp_path / "a").content_hash
    other = labels.write(tmp_path / "b", [("u1", np.array([0, 1, 7], np.int16))], KIND)
    assert other.content_hash != first
    (tmp_path / "a" / "labels.npy").write_bytes((tmp_path / "b" / "labels.npy").read_bytes())
    with pytest.raises(StorageError, match="do not belong together"):
        FrameLabels(tmp_path / "a")
    written(tmp_path / "a")
    index = json.loads((tmp_path / "a" / "index.json").read_text())
    index["utterances"].reverse()
    (tmp_path / "a" / "index.json").write_text(json.dumps(index))
    with pytest.raises(StorageError, match="do not belong together"):
        FrameLabels(tmp_path / "a")
    (tmp_path / "b" / "labels.npy").write_bytes(b"nothing")
    with pytest.raises(StorageError, match="cannot be read"):
        FrameLabels(tmp_path / "b")
    with pytest.raises(StorageError, match="no labels of frames here"):
        FrameLabels(tmp_path / "c")


def test_labels_of_another_kind_are_refused(tmp_path: Path) -> None:
    written(tmp_path)
    for kind, message in (
        (KIND._replace(num_pdfs=12), "labels of 9 pdfs, and the topology has 12"),
        (LabelKind.of(Topology(["aa", "sil", "b"]), TIMES), "other phones"),
        (KIND._replace(shift_s=0.02), "every 10 ms, and the features have one every 20 ms"),
    ):
        with pytest.raises(DataError, match=message):
            FrameLabels(tmp_path, kind)


def test_labels_that_are_no_pdfs_and_utterances_twice_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="utterance u1: its labels are from 0 to 9, and the pdfs from 0 to 8"):
        labels.write(tmp_path, [("u1", np.array([0, 9], np.int16))], KIND)
    with pytest.raises(DataError, match="'u1' has labels already"):
        labels.write(tmp_path, [("u1", np.zeros(1, np.int16))] * 2, KIND)
