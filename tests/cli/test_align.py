"""The verb `align`: from a flat start, by a trained model, and from the alignments of other systems."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny
import tiny_frames
import tiny_words
from console import Las

from las.cli.train import train
from las.config.build import build, compose
from las.data.manifest import Interval
from las.hmm import labels, textgrid, tying
from las.hmm.labels import FrameLabels
from las.hmm.segments import FrameTimes
from las.hmm.topology import Topology
from las.scoring import ctm, phones

TOPOLOGY = Topology(phones.phone_set(48))
TIMES = FrameTimes(0.01, 0.025)
TRIPHONES = ["triphones=true", "tying.min_count=3", "tying.min_gain=0.5"]


def test_phones_of_a_corpus_get_times_and_labels(corpus: Path, las: Las) -> None:
    output, folder = corpus / "out" / "timit.ctm", corpus / "labels"
    las("align", *tiny.corpus(corpus), f"output={output}", f"labels={folder}").succeeds("12 boundaries")
    marks = ctm.read(output)
    assert [mark.text for mark in marks[:4]] == ["sil", "aa", "iy", "sil"]
    first = [mark for mark in marks if mark.file == marks[0].file]
    ends = [mark.start_s + mark.duration_s for mark in first]
    assert [mark.start_s for mark in first] == pytest.approx([0.0, *ends[:-1]])
    stored = FrameLabels(folder)
    assert len(stored) == 12 and stored.kind.num_pdfs == 144
    assert not output.with_suffix(".phones.ctm").exists(), "the words are phones"


def test_triphones_leave_their_tying_beside_the_labels(corpus: Path, las: Las) -> None:
    output, folder = corpus / "x.ctm", corpus / "labels"
    symbols = build(compose("train", tiny.corpus(corpus))["corpus"]).tokens.symbols[1:]
    las("align", *tiny.corpus(corpus), f"output={output}", f"labels={folder}", *TRIPHONES).succeeds("tied")
    stored, tied = FrameLabels(folder), tying.read(folder / "tying.json", Topology(symbols))
    assert stored.kind.num_pdfs == tied.num_pdfs > 144 and stored.kind.topology == tied.content_hash


def test_words_come_with_their_phones(corpus: Path, las: Las) -> None:
    dictionary = corpus / "phones.dic"
    dictionary.write_text("sil SIL\naa AH AA\naa(2) AA\niy IY\n")
    output = corpus / "x.TextGrid"
    las("align", *tiny.corpus(corpus), "split=test", f"lexicon={dictionary}", f"output={output}").succeeds(
        "phones.dic:"
    )
    files = sorted(output.iterdir())
    assert len(files) == 2
    tiers = textgrid.read(files[0])
    assert [each.symbol for each in tiers["words"]] == ["sil", "aa", "iy", "sil"]
    assert {each.symbol for each in tiers["phones"]} <= {"SIL", "AH", "AA", "IY"}


def test_words_without_a_pronunciation_are_listed(corpus: Path, las: Las) -> None:
    dictionary = corpus / "phones.dic"
    dictionary.write_text("sil SIL\nax AH\niy IY\n")
    command = ["align", *tiny.corpus(corpus), f"lexicon={dictionary}", f"output={corpus / 'x.ctm'}"]
    las(*command).fails(3, "aa partial=true ftr0_sx0")
    las(*command, "partial=true").fails(3, "remains")


def test_an4_brings_its_dictionary_or_needs_one(tmp_path: Path, las: Las) -> None:
    root = tiny_words.spoken(tmp_path)
    command = ["align", *tiny_words.corpus(root), f"output={root / 'x.ctm'}"]
    las(*command).succeeds("an4.dic:")
    words = [mark.text for mark in ctm.read(root / "x.ctm") if mark.file == "faaa_2"]
    assert words == ["GO", "ON"]
    spoken = [mark.text for mark in ctm.read(root / "x.phones.ctm") if mark.file == "faaa_2"]
    assert [phone for phone in spoken if phone != "SIL"] in (["G", "OW", "AA", "N"], ["G", "OW", "AO", "N"])
    (root / "an4" / "etc" / "an4.dic").unlink()
    las(*command).fails(2, "an4 lexicon=words.dic")


@pytest.fixture(scope="module")
def acoustic_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a corpus on which a tiny acoustic model was trained, in `run`."""
    root = tiny.tree(tmp_path_factory.mktemp("acoustic_model"))
    train(tiny_frames.overrides(root))
    return root


def test_a_trained_network_aligns_its_corpus_again(acoustic_model: Path, las: Las) -> None:
    """The labels are those of a training, and mixtures can be trained on them."""
    root = acoustic_model
    where = [f"data_dir={root / 'data'}", f"labels={root / 'again'}", f"gaussians={root / 'mixtures'}"]
    answer = las("align", f"checkpoint={root / 'run'}", f"output={root / 'again.ctm'}", *where)
    answer.succeeds("12 boundaries Gaussians")
    assert answer.err == ""
    again = tiny_frames.overrides(root, f"labels={root / 'again'}", f"run_dir={root / 'run_again'}")
    las("train", *again).succeeds()
    las("decode", f"checkpoint={root / 'mixtures'}", f"data_dir={root / 'data'}", "split=test").succeeds("PER")


def recordings(root: Path, texts: dict[str, str]) -> list[str]:
    """A corpus of one's own in `root/mine`: overrides that name it."""
    (root / "mine").mkdir()
    for name, text in texts.items():
        tiny.sound(root / "mine" / f"{name}.wav", 0.8, len(name))
        (root / "mine" / f"{name}.txt").write_text(text)
    own = ["corpus=files", "corpus.name=mine", f"corpus.train={root / 'mine'}", "corpus.dev_share=0.34"]
    return [*own, "corpus.test_share=0.34", f"data_dir={root / 'data'}"]


def test_other_recordings_are_aligned_by_phones(acoustic_model: Path, tmp_path: Path, las: Las) -> None:
    own = recordings(tmp_path, {"a": "sil aa iy sil", "bb": "sil iy sil", "ccc": "sil aa sil"})
    command = ["align", f"checkpoint={acoustic_model / 'run'}", *own, f"output={tmp_path / 'mine.ctm'}"]
    assert "realignment" not in las(*command).out, "nothing is trained"
    spoken: dict[str, list[str]] = {}
    for mark in ctm.read(tmp_path / "mine.ctm"):
        spoken.setdefault(mark.file, []).append(mark.text)
    assert sorted(spoken.values()) == [["sil", "aa", "iy", "sil"], ["sil", "aa", "sil"], ["sil", "iy", "sil"]]
    las(*command, "corpus.sample_rate=8000").fails(2, "corpus.sample_rate=16000")


@pytest.mark.slow
def test_other_recordings_are_aligned_by_words(tmp_path: Path, las: Las) -> None:
    """By the tied states of the model; words of a dictionary that its phones cannot say are named."""
    pytest.importorskip("kaldi_decoder")
    root = tiny_words.spoken(tmp_path)
    words = tiny_words.corpus(root)
    las("align", *words, f"output={root / 'x.ctm'}", *TRIPHONES, f"labels={root / 'tied'}").succeeds()
    model = [*tiny_frames.MODEL, *tiny_frames.SHORT, "search=word_graph", "search@validation_search=word_graph"]
    plain = ["schedule=constant", "augment=none", f"labels={root / 'tied'}", f"run_dir={root / 'run'}"]
    las("train", *words, *model, *plain).succeeds()

    own = recordings(root, {"a": "NO YES", "bb": "STAY", "ccc": "BOY"})
    where = ["align", f"checkpoint={root / 'run'}", f"output={root / 'mine.ctm'}", *own]
    las(*where).fails(3, "BOY STAY")
    more = root / "more.dic"
    more.write_text(f"{tiny_words.DICTIONARY}STAY S T EH\nBOY B OY\n")
    answer = las(*where, f"lexicon={more}").fails(3, "BOY")
    assert "phones B, OY" in answer.out
    (root / "mine" / "ccc.txt").write_text("STAY NO")
    las(*where, f"lexicon={more}", f"labels={root / 'labels'}").succeeds()
    said = [mark.text for mark in ctm.read(root / "mine.phones.ctm") if mark.text != "SIL"]
    assert sorted(said) == sorted(["N", "OW", "Y", "EH", "S", "S", "T", "EH", "S", "T", "EH", "N", "OW"])
    assert (root / "labels" / "tying.json").read_text() == (root / "tied" / "tying.json").read_text()
    assert len(FrameLabels(root / "labels")) == 3
    (root / "tied" / "tying.json").unlink()  # without it the states of the labels are unknown
    las("train", *words, *model, *plain, f"run_dir={root / 'without'}").fails(3, f"{root / 'tied'}")


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


def importing(root: Path, path: Path) -> list[str]:
    return ["align", *tiny.corpus(root), f"import={path}", f"labels={root / 'labels'}"]


@pytest.mark.parametrize("kind", ["ctm", "TextGrid", "txt"])
def test_imported_labels_are_those_of_the_known_times(corpus: Path, las: Las, kind: str) -> None:
    more = [f"pdf_map={corpus / 'pdfs.txt'}"] if kind == "txt" else []
    answer = las(*importing(corpus, write(corpus, kind)), *more).succeeds("12")
    assert "realignment" not in answer.out
    stored = FrameLabels(corpus / "labels", labels.LabelKind.of(TOPOLOGY, TIMES))
    assert len(stored) == 12
    for name, said in known(corpus):
        assert stored.of(name).tolist() == expected(said), name


def test_imported_tied_states_of_one_split(corpus: Path, las: Las) -> None:
    command = importing(corpus, write(corpus, "txt"))
    las(*command, "split=test", "num_pdfs=9001").succeeds("10")
    stored = FrameLabels(corpus / "labels")
    assert len(stored) == 2 and stored.kind.num_pdfs == 9001 and stored.kind.topology == labels.TIED
    las(*command, "+features.frame_shift_ms=20.0").fails(3, "ftr0_sx0: 28 14")


def test_utterances_without_an_alignment_are_named_and_left_out_on_request(corpus: Path, las: Las) -> None:
    path = write(corpus, "ctm")
    whole = path.read_text()
    path.write_text("".join(line for line in whole.splitlines(True) if not line.startswith("ftr0_sx3 ")))
    command = importing(corpus, path)
    las(*command).fails(3, "12 ftr0_sx3 partial=true")
    assert not (corpus / "labels").exists()
    las(*command, "partial=true").succeeds("ftr0_sx3:")
    assert len(FrameLabels(corpus / "labels")) == 11
    path.write_text(whole.replace("ftr0_", "mtr9_").replace("fadg0_", "x_").replace("mdab0_", "y_"))
    las(*command).fails(3, "ftr0_sx0 another mtr9_sx0")


@pytest.mark.parametrize(
    ("start", "change", "code", "words"),
    [
        ("flat", "output=x.txt", 2, ".ctm .TextGrid"),
        ("flat", "split=dve", 2, "dve"),
        ("flat", "partial=1", 2, "partial"),
        ("flat", "lexicon=absent.dic", 3, "absent.dic:"),
        ("flat", "tying.min_count=-1", 2, "tying.min_count=-1"),
        ("import", "num_pdfs=90", 2, "num_pdfs"),
        ("import", "import=absent.ctm", 2, "import=absent.ctm:"),
        ("import", "labels=null", 2, "labels=FOLDER"),
        ("import", "pdf_map=7", 2, "pdf_map=7"),
        ("network", "triphones=true", 2, "triphones=true checkpoint="),
        ("network", "lexicon=words.dic", 2, "lexicon=words.dic:"),
        ("network", "prior_scale=-1.0", 2, "prior_scale=-1.0"),
        ("network", "corpus.root=x", 2, "corpus= corpus.root="),
        ("network", "features=mfcc40", 2, "features=mfcc40:"),
    ],
)
def test_what_does_not_fit_is_named(
    start: str, change: str, code: int, words: str, corpus: Path, acoustic_model: Path, las: Las
) -> None:
    command = {
        "flat": ["align", *tiny.corpus(corpus)],
        "import": importing(corpus, write(corpus, "ctm")),
        "network": ["align", f"checkpoint={acoustic_model / 'run'}"],
    }[start]
    las(*command, *([] if start == "import" else [f"output={corpus / 'x.ctm'}"]), change).fails(code, words)
    assert not (corpus / "x.ctm").exists() and not (corpus / "labels").exists()
