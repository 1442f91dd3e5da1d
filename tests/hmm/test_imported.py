"""Alignments of other systems: every format written from known times gives the labels of these times."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from las.data.manifest import Interval, Utterance
from las.hmm import imported, labels, textgrid
from las.hmm.labels import LabelKind
from las.hmm.segments import FrameTimes
from las.hmm.topology import Topology
from las.runtime.errors import ConfigError, DataError
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


@pytest.mark.parametrize("written", [as_ctm, as_textgrids])
def test_times_give_the_labels_of_known_times(tmp_path: Path, written: object) -> None:
    for name, intervals in (("all", SAID), ("gaps", SAID[1:])):  # a gap is silence
        path = written(tmp_path / f"{name}.ctm", intervals)  # type: ignore[operator]
        source = imported.of_times(path, TOPOLOGY, TIMES)
        found = source.of(UTTERANCE, FRAMES)
        assert found is not None and found.tolist() == EXPECTED
        assert source.kind == LabelKind.of(TOPOLOGY, TIMES)
        assert source.of(replace(UTTERANCE, id="u2"), FRAMES) is None
        with pytest.raises(DataError, match=r"utterance an/u 1: 18 labels for 9 frames, .* another frame shift"):
            source.of(UTTERANCE, 9)


def test_times_without_a_silence_leave_gaps_without_a_label(tmp_path: Path) -> None:
    path = as_ctm(tmp_path / "x.ctm", SAID[1:])
    found = imported.of_times(path, Topology(["SIL", "AA", "B"]), TIMES).of(UTTERANCE, FRAMES)
    assert found is not None and found.tolist() == [labels.NO_LABEL] * 6 + EXPECTED[6:]


def test_phones_without_states_are_named(tmp_path: Path) -> None:
    path = as_ctm(tmp_path / "x.ctm", [*SAID[:2], Interval(0.0925, 0.2, "AA1")])
    with pytest.raises(DataError, match=r"x\.ctm: utterance an/u 1: the phone 'AA1' has no states\. Did you mean AA"):
        imported.of_times(path, TOPOLOGY, TIMES).of(UTTERANCE, FRAMES)


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
    with pytest.raises(DataError, match="18 labels for 36 frames"):
        tied.of(UTTERANCE, 36)
    (tmp_path / "map").write_text("\n".join(lines[:-1]))
    short = imported.of_mapped_pdfs(as_kaldi(path, [100, 108]), tmp_path / "map", TOPOLOGY, TIMES)
    with pytest.raises(DataError, match=r"ali\.txt: utterance an/u 1: the map has no line for the pdf 108"):
        short.of(UTTERANCE, 2)


@pytest.mark.parametrize(("name", "width"), [("inputs", 1), ("inputs", 2), ("targets/data/classes", 1)])
def test_hdf_files_of_returnn(tmp_path: Path, name: str, width: int) -> None:
    path = as_hdf(tmp_path / "ali.hdf", EXPECTED, name, width)
    found = imported.pdfs(path)
    assert found["u 1"].tolist() == EXPECTED and found["other"].tolist() == [1, 2, 3]
    source = imported.of_tied_pdfs(path, None, TIMES).of(UTTERANCE, FRAMES)
    assert source is not None and source.tolist() == EXPECTED


def test_hdf_files_say_what_reads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ConfigError, match=r"ali\.hdf: HDF files are read by h5py: pip install 'las-asr\[hdf\]'"):
        imported.pdfs(tmp_path / "ali.hdf")


def test_hdf_files_that_are_no_alignments(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    (tmp_path / "text.hdf").write_text("no")
    with pytest.raises(DataError, match="cannot be read as HDF"):
        imported.pdfs(tmp_path / "text.hdf")
    for name, damage, says in (
        ("seqTags", None, "lacks seqTags"),
        ("inputs", np.zeros((21, 40), np.float32), "no classes of frames"),
        ("inputs", np.zeros(5, np.int32), "21 frames, and inputs has 5"),
    ):
        path = as_hdf(tmp_path / "ali.hdf", EXPECTED)
        with h5py.File(path, "r+") as file:
            del file[name]
            if damage is not None:
                file.create_dataset(name, data=damage)
        with pytest.raises(DataError, match=says):
            imported.pdfs(path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("u1 1 2\nu1 3\n", r"ali\.txt:2: the utterance u1 is in a line above"),
        ("u1 1 2\nu2 3 x\n", r"ali\.txt:2: a line is an utterance id and the pdfs"),
        ("u1\n", r"ali\.txt:1: a line is"),
        ("u1 1 40000\n", r"utterance u1: a pdf must be from 0 to 32,767"),
    ],
)
def test_malformed_lines_of_pdfs_are_named(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "ali.txt").write_text(text)
    with pytest.raises(DataError, match=says):
        imported.pdfs(tmp_path / "ali.txt")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0 SIL 0\n1 SIL\n", r"map:2: a line is a pdf, its phone and the state"),
        ("0 SIL 3\n", r"map:1: the state 3 must be 0, 1 or 2"),
        ("0 SIL 0\n0 SIL 1\n", r"map:2: the pdf 0 is in a line above"),
        ("0 SILL 0\n", r"map:1: the phone 'SILL' has no states\. Did you mean SIL"),
    ],
)
def test_malformed_lines_of_a_map_are_named(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "map").write_text(text)
    with pytest.raises(DataError, match=says):
        imported.pdf_map(tmp_path / "map", TOPOLOGY)


def test_phones_that_overlap_and_tiers_that_are_not_clear_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"utterance an/u_1: AA begins at 0.08 s, before B ends \(0.0925 s\)"):
        imported.phones(as_ctm(tmp_path / "x.ctm", [*SAID[:2], Interval(0.08, 0.2, "AA")]))
    (tmp_path / "y.ctm").write_text("u1 1 0 x A\n")
    with pytest.raises(DataError, match=r"y\.ctm:1: the duration 'x'"):
        imported.phones(tmp_path / "y.ctm")
    with pytest.raises(DataError, match=r"one tier must be named phones; there are words, segments"):
        imported.phones(as_textgrids(tmp_path / "grids", SAID, "segments"))
    assert imported.phones(as_textgrids(tmp_path / "mfa", SAID, "anne - phones"))
