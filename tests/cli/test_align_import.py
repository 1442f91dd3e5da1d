"""`align import=...`: labels of a corpus from the alignments of other systems, and what is refused."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from console import Answer

from las.data.manifest import Interval
from las.hmm import labels, textgrid
from las.hmm.frame_times import FrameTimes
from las.hmm.labels import FrameLabels
from las.hmm.topology import Topology
from las.scoring import ctm, phones

Las = Callable[..., Answer]
TOPOLOGY = Topology(phones.phone_set(48))
TIMES = FrameTimes(0.01, 0.025)


def timit(root: Path) -> list[str]:
    return ["corpus=timit", f"corpus.root={root / 'TIMIT'}", "corpus.partial=true", f"data_dir={root / 'data'}"]


def known(root: Path) -> Iterator[tuple[str, list[Interval]]]:
    """The times of the phones of every utterance, from the files of the corpus."""
    for path in sorted((root / "TIMIT").rglob("*.PHN")):
        lines = [line.split() for line in path.read_text().splitlines()]
        said = [Interval(int(a) / 16000, int(b) / 16000, {"h#": "sil"}.get(name, name)) for a, b, name in lines]
        yield f"{path.parent.name}_{path.stem}".lower(), said


def expected(intervals: list[Interval]) -> list[int]:
    num_frames = 1 + (round(16000 * intervals[-1].end_s) - 400) // 160
    return labels.of_times(intervals, num_frames, TOPOLOGY, TIMES, "test").tolist()


def write(root: Path, kind: str) -> Path:
    """All alignments of the corpus in a format."""
    path = root / f"ali.{kind}"
    everything = list(known(root))
    if kind == "ctm":
        marks = [
            ctm.CTMWord(name, "1", each.start_s, each.end_s - each.start_s, each.symbol)
            for name, said in everything
            for each in said
        ]
        path.write_text(ctm.text(marks))
    elif kind == "TextGrid":
        path.mkdir()
        for name, said in everything:
            (path / textgrid.file_name(name)).write_text(textgrid.text({"phones": said}, said[-1].end_s))
    else:
        lines = [f"{name} {' '.join(str(10 + label) for label in expected(said))}\n" for name, said in everything]
        path.write_text("".join(lines))
        pdfs = [f"{10 + 3 * n + s} {phone} {s}\n" for n, phone in enumerate(TOPOLOGY.phones) for s in range(3)]
        (root / "pdfs.txt").write_text("".join(pdfs))
    return path


@pytest.mark.parametrize("kind", ["ctm", "TextGrid", "txt"])
def test_labels_are_those_of_the_known_times(corpus: Path, las: Las, kind: str) -> None:
    more = [f"pdf_map={corpus / 'pdfs.txt'}"] if kind == "txt" else []
    path, folder = write(corpus, kind), corpus / "labels"
    answer = las("align", *timit(corpus), f"import={path}", f"labels={folder}", *more)
    assert answer.code == 0, answer.err
    assert f"of 12 utterances written to {folder}" in answer.out.replace("\n", "") and "realignment" not in answer.out
    stored = FrameLabels(folder, labels.LabelKind.of(TOPOLOGY, TIMES))
    assert len(stored) == 12
    for name, said in known(corpus):
        assert stored.of(name).tolist() == expected(said), name


def test_tied_states_of_one_split(corpus: Path, las: Las) -> None:
    path, folder = write(corpus, "txt"), corpus / "labels"
    answer = las("align", *timit(corpus), f"import={path}", f"labels={folder}", "split=test", "num_pdfs=9001")
    assert answer.code == 0, answer.err
    assert "10 alignments are of other utterances" in answer.out
    stored = FrameLabels(folder)
    assert len(stored) == 2 and stored.kind.num_pdfs == 9001 and stored.kind.topology == labels.TIED
    answer = las("align", *timit(corpus), f"import={path}", f"labels={folder}", "+features.frame_shift_ms=20.0")
    assert answer.code == 3 and "ftr0_sx0: 28 labels for 14 frames" in answer.err and "frame shift" in answer.err


def test_utterances_without_an_alignment_are_named_and_left_out_on_request(corpus: Path, las: Las) -> None:
    path = write(corpus, "ctm")
    path.write_text("".join(line for line in path.read_text().splitlines(True) if not line.startswith("ftr0_sx3 ")))
    command = ["align", *timit(corpus), f"import={path}", f"labels={corpus / 'labels'}"]
    answer = las(*command)
    assert answer.code == 3 and "1 of 12 utterances have no alignment: ftr0_sx3. Leave them out: " in answer.err
    assert not (corpus / "labels").exists()
    answer = las(*command, "partial=true")
    assert answer.code == 0 and "ftr0_sx3: they are left out" in answer.out
    assert len(FrameLabels(corpus / "labels")) == 11


@pytest.mark.parametrize(
    ("change", "code", "says"),
    [
        (["num_pdfs=90"], 2, "leave out num_pdfs"),
        (["import=absent.ctm"], 2, "import=absent.ctm: there is no such file"),
        (["labels=null"], 2, "add labels=FOLDER"),
        (["pdf_map=7"], 2, "pdf_map=7"),
    ],
)
def test_what_does_not_fit_is_named(corpus: Path, las: Las, change: list[str], code: int, says: str) -> None:
    path = write(corpus, "ctm")
    answer = las("align", *timit(corpus), f"import={path}", f"labels={corpus / 'labels'}", *change)
    assert answer.code == code and says in answer.err, answer.err


def test_an_alignment_of_another_corpus_is_refused(corpus: Path, las: Las) -> None:
    path = write(corpus, "ctm")
    path.write_text(path.read_text().replace("ftr0_", "mtr9_").replace("fadg0_", "x_").replace("mdab0_", "y_"))
    answer = las("align", *timit(corpus), f"import={path}", f"labels={corpus / 'labels'}")
    assert answer.code == 3 and "an alignment of another corpus: it has no utterance ftr0_sx0" in answer.err
    assert "Did you mean mtr9_sx0" in answer.err
