"""Alignments of other systems: any format written from known times gives the labels of these times, and reads back."""

import functools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from las.data.manifest import Interval, Utterance
from las.hmm import imported, labels, textgrid
from las.hmm.labels import LabelKind
from las.hmm.segments import FrameTimes
from las.hmm.topology import Topology
from las.runtime.errors import DataError
from las.scoring import ctm

TIMES = FrameTimes(0.01, 0.025)
TOPOLOGY = Topology(["SIL", "AA", "B"], ["SIL"])
SAID = [Interval(0.0, 0.0725, "SIL"), Interval(0.0725, 0.0925, "B"), Interval(0.0925, 0.2, "AA")]
UTTERANCE = Utterance("an/u 1", "", 0, 0.0, 0.2, "", "")
FRAMES = 18
EXPECTED = [0, 0, 1, 1, 2, 2, 6, 8, 3, 3, 3, 3, 4, 4, 4, 5, 5, 5]


def as_ctm(path: Path, intervals: list[Interval]) -> Path:
    marks = [ctm.CTMWord("an/u_1", "1", one.start_s, one.end_s - one.start_s, one.symbol) for one in intervals]
    path.write_text(ctm.text(marks))
    return path


def as_textgrids(path: Path, intervals: list[Interval], tier: str = "phones") -> Path:
    (path / "speaker").mkdir(parents=True)
    tiers = {"words": [Interval(0.0, 0.2, "ba")], tier: intervals}
    (path / "speaker" / textgrid.file_name("an/u 1")).write_text(textgrid.text(tiers, 0.2))
    return path


def as_kaldi(path: Path, pdfs: list[int]) -> Path:
    path.write_text(f"other 1 2 3\nan/u_1 {' '.join(map(str, pdfs))} \n")
    return path


def as_hdf(path: Path, pdfs: list[int], name: str = "inputs", width: int = 1) -> Path:
    """As RETURNN's SimpleHDFWriter lays it out: of inputs, or of targets beside inputs that are features."""
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        rows = np.array([1, 2, 3, *pdfs], np.int32)
        file.create_dataset(name, data=rows if width == 1 else rows[:, None])
        if name != "inputs":
            file.create_dataset("inputs", data=np.zeros((2 * len(rows), 4), np.float32))
        lengths = np.array([[6, 3], [2 * len(pdfs), len(pdfs)]] if name != "inputs" else [[3, 0], [len(pdfs), 0]])
        file.create_dataset("seqLengths", data=lengths.astype(np.int32))
        file.create_dataset("seqTags", data=["corpus/recording/other", "corpus/an/u 1"], dtype=h5py.string_dtype())
    return path


@pytest.mark.parametrize("written", [as_ctm, as_textgrids, functools.partial(as_textgrids, tier="anne - phones")])
def test_times_give_the_labels_of_known_times(tmp_path: Path, written: object) -> None:
    for name, intervals in (("all", SAID), ("gaps", SAID[1:])):  # a gap is silence
        path = written(tmp_path / f"{name}.ctm", intervals)  # type: ignore[operator]
        source = imported.of_times(path, TOPOLOGY, TIMES)
        found = source.of(UTTERANCE, FRAMES)
        assert found is not None and found.tolist() == EXPECTED
        assert source.kind == LabelKind.of(TOPOLOGY, TIMES)
        assert source.of(replace(UTTERANCE, id="u2"), FRAMES) is None
        with pytest.raises(DataError, match="utterance an/u 1"):
            source.of(UTTERANCE, 9)


def test_times_without_a_silence_leave_gaps_without_a_label(tmp_path: Path) -> None:
    path = as_ctm(tmp_path / "x.ctm", SAID[1:])
    found = imported.of_times(path, Topology(["SIL", "AA", "B"]), TIMES).of(UTTERANCE, FRAMES)
    assert found is not None and found.tolist() == [labels.NO_LABEL] * 6 + EXPECTED[6:]


def test_pdfs_are_mapped_or_taken_as_they_are(tmp_path: Path) -> None:
    shifted = [100 + pdf for pdf in EXPECTED]
    phones = enumerate(TOPOLOGY.phones)
    lines = [f"{100 + 3 * number + state} {phone} {state}" for number, phone in phones for state in range(3)]
    (tmp_path / "map").write_text("\n".join(lines))
    path = as_kaldi(tmp_path / "ali.txt", shifted)
    source = imported.of_mapped_pdfs(path, tmp_path / "map", TOPOLOGY, TIMES)
    found = source.of(UTTERANCE, FRAMES)
    assert found is not None and found.tolist() == EXPECTED and source.kind == LabelKind.of(TOPOLOGY, TIMES)
    tied = imported.of_tied_pdfs(path, None, TIMES)
    found = tied.of(UTTERANCE, FRAMES + 2)
    assert found is not None and found.tolist() == [*shifted, 105, 105]
    assert tied.kind == LabelKind("tied", 109, 0.01)
    assert imported.of_tied_pdfs(path, 9001, TIMES).kind.num_pdfs == 9001
    (tmp_path / "map").write_text("\n".join(lines[:-1]))
    short = imported.of_mapped_pdfs(as_kaldi(path, [100, 108]), tmp_path / "map", TOPOLOGY, TIMES)
    with pytest.raises(DataError, match=r"ali\.txt: utterance an/u 1: .* 108"):
        short.of(UTTERANCE, 2)


@pytest.mark.parametrize(("name", "width"), [("inputs", 1), ("inputs", 2), ("targets/data/classes", 1)])
def test_hdf_files_of_returnn(tmp_path: Path, name: str, width: int) -> None:
    path = as_hdf(tmp_path / "ali.hdf", EXPECTED, name, width)
    found = imported.pdfs(path)
    assert found["u 1"].tolist() == EXPECTED and found["other"].tolist() == [1, 2, 3]
    source = imported.of_tied_pdfs(path, None, TIMES).of(UTTERANCE, FRAMES)
    assert source is not None and source.tolist() == EXPECTED


TIERS = {
    "words": [Interval(0.25, 0.5, 'say "ah"'), Interval(0.5, 0.75, "été 3")],
    "phones": [Interval(0.0, 0.25, "SIL"), Interval(0.25, 1.0, "AH0")],
}
SHORT = """File type = "ooTextFile"
Object class = "TextGrid"

0
1
<exists>
1
"IntervalTier"
"phones"
0
1
2
0
0.25
"SIL"
0.25
1
"AH"
"""


def test_tiers_read_back(tmp_path: Path) -> None:
    path = tmp_path / "u1.TextGrid"
    path.write_text(textgrid.text(TIERS, 1.0), "utf-8")
    assert textgrid.read(path) == TIERS


def test_intervals_cover_the_recording() -> None:
    written = textgrid.text({"words": TIERS["words"]}, 1.0)
    assert "intervals: size = 4" in written  # silence before and after the two words
    assert written.count('text = ""') == 2 and 'text = "say ""ah"""' in written
    bounds = [float(line.split("=")[1]) for line in written.splitlines() if line.strip().startswith("xm")][4:]
    assert bounds[0] == 0 and bounds[-1] == 1 and bounds[1:-1:2] == bounds[2:-1:2]
    assert "intervals: size = 1" in textgrid.text({"words": []}, 1.0)


def test_the_short_format_is_read(tmp_path: Path) -> None:
    path = tmp_path / "short.TextGrid"
    path.write_text(SHORT)
    assert textgrid.read(path) == {"phones": [Interval(0.0, 0.25, "SIL"), Interval(0.25, 1.0, "AH")]}
