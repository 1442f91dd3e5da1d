"""Files and arguments that do not fit are named: what is wrong, and where."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from refusals import refused

from las.data.loader import Batch
from las.data.manifest import Interval
from las.decoding.hybrid.word_graph import WordGraphSearch
from las.hmm import decision_tree, decoding_graph, imported, labels, lexicon, textgrid, tying
from las.hmm.fst import Arcs, Fst, Grammar, from_kaldi, library
from las.hmm.gmm import GaussianModel
from las.hmm.graph import alignment_graph
from las.hmm.labels import FrameLabels, LabelKind
from las.hmm.lexicon import Lexicon, Pronunciation
from las.hmm.segments import FrameTimes
from las.hmm.topology import Topology, Triphone
from las.nn.features import MFCC
from las.runtime.errors import ArgumentError, ConfigError, DataError, LasError, StorageError

TIMES = FrameTimes(0.01, 0.025)
TOPOLOGY = Topology(["SIL", "A", "B"], ["SIL"])
KIND = LabelKind.of(TOPOLOGY, TIMES)
WORDS = {"u": [Pronunciation(("A",))], "v": [Pronunciation(("B",))]}
SHORT_GRID = 'File type = "ooTextFile"\nObject class = "TextGrid"\n0\n1\n<exists>\n1\n"{}"\n"phones"\n0\n1\n1\n0\n{}'


def file(folder: Path, text: str | bytes, name: str = "x.txt") -> Path:
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode("latin-1"))
    return folder / name


def grammar(words: tuple[str, ...] = ("u", "v"), final: float = 0.0) -> Grammar:
    """All sequences of words, or with an infinite cost of the end none."""
    source, label = np.zeros(len(words), np.int64), 1 + np.arange(len(words))
    costs = np.ones(len(words), np.float32)
    return Grammar(words, Fst(0, np.array([final], np.float32), Arcs(source, label, label, costs, source)))


def graph(entries: dict[str, list[Pronunciation]], given: Grammar, silence: str = "SIL") -> None:
    decoding_graph.build(Lexicon(entries, silence), TOPOLOGY, given)


def tied_states(folder: Path, topology: Topology, **changes: object) -> None:
    """Write a tying of TOPOLOGY without trees, change its file, and read it for another topology."""
    trees = {
        phone: [(decision_tree.Leaf(3 * place + state),) for state in range(3)] for place, phone in enumerate("SAB")
    }
    named = {phone: trees[phone[0]] for phone in TOPOLOGY.phones}
    tying.TiedStates(TOPOLOGY, named).write(folder / "tying.json")
    content = json.loads((folder / "tying.json").read_text()) | changes
    kept = {key: value for key, value in content.items() if value is not None}
    (folder / "tying.json").write_text(json.dumps(kept))
    tying.read(folder / "tying.json", topology).in_context(Triphone("A", "B", "Q"), "u7")


def stored_labels(folder: Path, kind: LabelKind = KIND, name: str = "u1", damage: str = "") -> None:
    """Write labels, spoil one of their files, and read those of an utterance as labels of a kind."""
    labels.write(folder / "labels", [("u1", np.array([0, 1, 8], np.int16)), ("u2", np.array([-1], np.int16))], KIND)
    if damage == "labels.npy":
        file(folder / "labels", b"nothing", damage)
    elif damage == "another":
        labels.write(folder / "other", [("u1", np.array([0, 1, 7], np.int16))], KIND)
        (folder / "other" / "labels.npy").replace(folder / "labels" / "labels.npy")
    elif damage:
        index = json.loads((folder / "labels" / damage).read_text())
        index["utterances"].reverse()
        (folder / "labels" / damage).write_text(json.dumps(index))
    FrameLabels(folder / "labels", kind).of(name)


def times_of(end_s: float, num_frames: int, phone: str = "A") -> None:
    labels.of_times([Interval(0.0, end_s, phone)], num_frames, TOPOLOGY, TIMES, "u1")


def ctm(folder: Path, text: str) -> None:
    imported.phones(file(folder, text, "x.ctm"))


def grid(folder: Path, tier: str) -> None:
    said = {tier: [Interval(0.0, 1.0, "A")], "words": [Interval(0.0, 1.0, "u")]}
    file(folder, textgrid.text(said, 1.0), "u1.TextGrid")
    imported.phones(folder)


def hdf(folder: Path, **parts: object) -> None:
    h5py = pytest.importorskip("h5py")
    whole = {"inputs": np.zeros(3, np.int32), "seqLengths": np.array([[3, 0]]), "seqTags": ["a/u1"]}
    with h5py.File(folder / "x.hdf", "w") as written:
        for name, value in (whole | parts).items():
            if value is not None:
                written.create_dataset(name, data=value)
    imported.pdfs(folder / "x.hdf")


def gaussians(num_components: int = 1) -> None:
    model = GaussianModel(8000, 3, features=MFCC, num_components=num_components)
    tokens, one = np.zeros((1, 1)), np.ones(1)
    model.num_targets(Batch(["a"], tokens, one, tokens, one))


CASES: list[tuple[Callable[[Path], object], type[LasError], str]] = [
    # dictionaries
    (lambda at: lexicon.read(file(at, "A AH\nB\n")), DataError, "x.txt:2 B"),
    (lambda at: lexicon.read(file(at, "A AH\nA(2) AH\n")), DataError, "x.txt:2 A AH above"),
    (lambda at: lexicon.read(file(at, "a 1.5 ah\nb 1 b iy\n")), DataError, "x.txt:1 1.5 probability"),
    (lambda at: lexicon.read(file(at, "a nan ah\nb 1 b iy\n")), DataError, "x.txt:1 nan probability"),
    (lambda at: lexicon.read(file(at, ";;; nothing\n")), DataError, "x.txt words"),
    # graphs of a text
    (lambda at: alignment_graph(["u", "C"], Lexicon(WORDS), TOPOLOGY, "u7"), DataError, "u7 'C' pronunciation"),
    (lambda at: alignment_graph(["u"], Lexicon({"u": [Pronunciation(("AH",))]}), TOPOLOGY, "u7"), DataError, "u7 'AH'"),
    (lambda at: alignment_graph([], Lexicon(WORDS, None), TOPOLOGY, "u7"), DataError, "u7 empty"),
    # graphs of all sentences
    (lambda at: graph({"u": [*WORDS["u"], Pronunciation(("A",), 0.5)]}, grammar(("u",))), DataError, "'u' A 2"),
    (lambda at: graph({"u": [Pronunciation(("AH",))]}, grammar(("u",))), DataError, "'u' 'AH' mean"),
    (lambda at: graph({"u": [Pronunciation(())]}, grammar(("u",))), DataError, "'u' phones"),
    (lambda at: graph(WORDS, grammar(), "PAU"), DataError, "silence 'PAU'"),
    (lambda at: graph(WORDS, grammar(("u", "w"))), DataError, "'w' pronunciation"),
    (lambda at: graph(WORDS, grammar(final=np.inf)), DataError, "empty"),
    # tied states
    (lambda at: tied_states(at, Topology([*TOPOLOGY.phones, "AA"], ["SIL"])), DataError, "tying.json 'AA' mean"),
    (lambda at: tied_states(at, Topology(["SIL", "A"], ["SIL"])), DataError, "tying.json 'B' mean"),
    (lambda at: tied_states(at, Topology(["A", "B", "SIL"], ["SIL"])), DataError, "tying.json phones order"),
    (lambda at: tied_states(at, Topology(TOPOLOGY.phones)), DataError, "silence 'SIL'"),
    (lambda at: tied_states(at, TOPOLOGY, phones=["SIL", "A", "X"]), StorageError, "tying.json changed"),
    (lambda at: tied_states(at, TOPOLOGY, format=2), StorageError, "tying.json format 2"),
    (lambda at: tied_states(at, TOPOLOGY, trees=None), StorageError, "tying.json lacks trees"),
    (lambda at: tied_states(at, TOPOLOGY), DataError, "u7 'Q'"),
    (lambda at: decision_tree.questions_of_sets([["A"], ["B", "AA"]], "AB"), DataError, "question 2 'AA' mean A"),
    # labels of frames
    (lambda at: stored_labels(at, KIND._replace(num_pdfs=12)), DataError, "labels 9 12"),
    (lambda at: stored_labels(at, LabelKind.of(Topology("BCD"), TIMES)), DataError, "labels other phones"),
    (lambda at: stored_labels(at, KIND._replace(shift_s=0.02)), DataError, "10 ms, 20 ms"),
    (lambda at: stored_labels(at, name="u3"), DataError, "labels 'u3' mean"),
    (lambda at: stored_labels(at, damage="another"), StorageError, "labels labels.npy"),
    (lambda at: stored_labels(at, damage="index.json"), StorageError, "labels index.json"),
    (lambda at: stored_labels(at, damage="labels.npy"), StorageError, "labels.npy read"),
    (lambda at: FrameLabels(at / "none"), StorageError, "none index.json"),
    (lambda at: labels.write(at, [("u1", np.array([0, 9], np.int16))], KIND), DataError, "u1 9 8"),
    (lambda at: labels.write(at, [("u1", np.zeros(1, np.int16))] * 2, KIND), DataError, "'u1' already"),
    (lambda at: times_of(0.2, 15), DataError, "u1 18 15 2"),
    (lambda at: times_of(0.2, 21), DataError, "u1 18 21"),
    (lambda at: times_of(0.2, 18, "zz"), DataError, "u1 'zz' mean"),
    (lambda at: labels.fitted(np.zeros(4, np.int16), 1, "u1"), DataError, "u1 4 1"),
    (lambda at: labels.fitted(np.zeros(4, np.int16), 7, "u1"), DataError, "u1 4 7"),
    # alignments of other systems
    (lambda at: imported.pdfs(file(at, "u1 1 2\nu1 3\n")), DataError, "x.txt:2 u1 above"),
    (lambda at: imported.pdfs(file(at, "u1 1 2\nu2 3 x\n")), DataError, "x.txt:2 pdfs"),
    (lambda at: imported.pdfs(file(at, "u1\n")), DataError, "x.txt:1"),
    (lambda at: imported.pdfs(file(at, "u1 1 40000\n")), DataError, "u1 32,767"),
    (lambda at: imported.pdf_map(file(at, "0 SIL 0\n1 SIL\n"), TOPOLOGY), DataError, "x.txt:2 pdf phone state"),
    (lambda at: imported.pdf_map(file(at, "0 SIL 3\n"), TOPOLOGY), DataError, "x.txt:1 state 3"),
    (lambda at: imported.pdf_map(file(at, "0 SIL 0\n0 SIL 1\n"), TOPOLOGY), DataError, "x.txt:2 pdf 0"),
    (lambda at: imported.pdf_map(file(at, "0 SILL 0\n"), TOPOLOGY), DataError, "x.txt:1 'SILL' mean SIL"),
    (lambda at: ctm(at, "u1 1 0 0.1 B\nu1 1 0.08 0.1 A\n"), DataError, "u1 A 0.08 B 0.1"),
    (lambda at: ctm(at, "u1 1 0 x A\n"), DataError, "x.ctm:1 'x'"),
    (lambda at: grid(at, "segments"), DataError, "u1.TextGrid phones segments words"),
    (lambda at: hdf(at, seqTags=None), DataError, "x.hdf seqTags"),
    (lambda at: hdf(at, inputs=np.zeros((3, 40), np.float32)), DataError, "x.hdf classes"),
    (lambda at: hdf(at, inputs=np.zeros(5, np.int32)), DataError, "x.hdf 3 5"),
    (lambda at: imported.pdfs(file(at, "no", "x.hdf")), DataError, "x.hdf HDF"),
    (lambda at: textgrid.read(file(at, "SIL 0 1")), DataError, "x.txt TextGrid"),
    (lambda at: textgrid.read(file(at, SHORT_GRID.format("TextTier", '1 "A"'))), DataError, "x.txt 'phones' TextTier"),
    (lambda at: textgrid.read(file(at, SHORT_GRID.format("IntervalTier", "1"))), DataError, "x.txt early"),
    # models and libraries
    (lambda at: gaussians(), ConfigError, "las align gaussians=FOLDER"),
    (lambda at: gaussians(0), ArgumentError, "num_components=0"),
]


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("call", "error", "says"), CASES, ids=[f"{number}: {case[2]}" for number, case in enumerate(CASES)]
)
def test_what_does_not_fit_is_named(
    call: Callable[[Path], object], error: type[LasError], says: str, tmp_path: Path
) -> None:
    refused("|".join(says.split()), call, tmp_path, kind=error)


@pytest.mark.parametrize(("name", "extra"), [("h5py", "hdf"), ("kaldifst", "hmm"), ("kaldi_decoder", "hmm")])
def test_missing_libraries_are_named(name: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=rf"{name}.*las-asr\[{extra}\]"):
        imported.pdfs(Path("x.hdf")) if extra == "hdf" else WordGraphSearch().prepare(Lexicon(WORDS), TOPOLOGY)


def test_another_format_of_a_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("las.hmm.fst._TYPES", b"another")
    with pytest.raises(ConfigError, match=r"kaldifst==1\.8\.3"):
        from_kaldi(library("kaldifst").StdVectorFst())
