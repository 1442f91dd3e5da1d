"""The verb `align`: times of phones from a flat start, in the formats of sclite and Praat, and labels of frames."""

from collections.abc import Callable
from pathlib import Path

import pytest
import tiny_words
from console import Answer

from las.config.build import build, compose
from las.hmm import textgrid, tying
from las.hmm.labels import FrameLabels
from las.hmm.topology import Topology
from las.scoring import ctm

Las = Callable[..., Answer]


def timit(root: Path) -> list[str]:
    return ["corpus=timit", f"corpus.root={root / 'TIMIT'}", "corpus.partial=true", f"data_dir={root / 'data'}"]


def test_phones_of_a_corpus_get_times_and_labels(corpus: Path, las: Las) -> None:
    output, labels = corpus / "out" / "timit.ctm", corpus / "labels"
    answer = las("align", *timit(corpus), f"output={output}", f"labels={labels}")
    assert answer.code == 0, answer.err
    assert "12 utterances written" in answer.out and "boundaries with known times: " in answer.out
    marks = ctm.read(output)
    assert [mark.text for mark in marks[:4]] == ["sil", "aa", "iy", "sil"]
    first = [mark for mark in marks if mark.file == marks[0].file]
    ends = [mark.start_s + mark.duration_s for mark in first]
    assert [mark.start_s for mark in first] == pytest.approx([0.0, *ends[:-1]])
    stored = FrameLabels(labels)
    assert len(stored) == 12 and stored.kind.num_pdfs == 144
    assert not output.with_suffix(".phones.ctm").exists(), "the words are phones"


def test_triphones_leave_their_tying_beside_the_labels(corpus: Path, las: Las) -> None:
    output, labels = corpus / "x.ctm", corpus / "labels"
    phones = build(compose("train", timit(corpus))["corpus"]).tokens.symbols[1:]
    limits = ["triphones=true", "tying.min_count=3", "tying.min_gain=0.5"]
    answer = las("align", *timit(corpus), f"output={output}", f"labels={labels}", *limits)
    assert answer.code == 0, answer.err
    assert "tied states of triphones" in answer.out
    stored, tied = FrameLabels(labels), tying.read(labels / "tying.json", Topology(phones))
    assert stored.kind.num_pdfs == tied.num_pdfs > 144 and stored.kind.topology == tied.content_hash
    answer = las("align", *timit(corpus), f"output={output}", "triphones=true", "tying.min_count=-1")
    assert answer.code == 2 and "tying.min_count=-1 must be at least 0" in answer.err


def test_words_come_with_their_phones(corpus: Path, las: Las) -> None:
    dictionary = corpus / "phones.dic"
    dictionary.write_text("sil SIL\naa AH AA\naa(2) AA\niy IY\n")
    answer = las("align", *timit(corpus), "split=test", f"lexicon={dictionary}", f"output={corpus / 'x.TextGrid'}")
    assert answer.code == 0, answer.err
    assert "phones.dic: 3 words, 4 phones, SIL among them" in answer.out
    files = sorted((corpus / "x.TextGrid").iterdir())
    assert len(files) == 2
    tiers = textgrid.read(files[0])
    assert [each.symbol for each in tiers["words"]] == ["sil", "aa", "iy", "sil"]
    assert {each.symbol for each in tiers["phones"]} <= {"SIL", "AH", "AA", "IY"}


def test_words_without_a_pronunciation_are_listed(corpus: Path, las: Las) -> None:
    dictionary = corpus / "phones.dic"
    dictionary.write_text("sil SIL\nax AH\niy IY\n")
    command = ["align", *timit(corpus), f"lexicon={dictionary}", f"output={corpus / 'x.ctm'}"]
    answer = las(*command)
    assert answer.code == 3
    assert "lacks 1 words of 12 utterances" in answer.err and "partial=true" in answer.err
    assert "aa (12 times, first in utterance ftr0_sx0). Nearest: ax, " in answer.err
    answer = las(*command, "partial=true")
    assert answer.code == 3 and "no utterance of a split remains" in answer.err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("output=x.txt", r"must end in .ctm or .TextGrid"),
        ("split=dve", "no split 'dve'"),
        ("partial=1", "partial"),
        ("lexicon=absent.dic", "absent.dic: cannot be read"),
    ],
)
def test_wrong_values_are_named(corpus: Path, las: Las, change: str, message: str) -> None:
    answer = las("align", *timit(corpus), f"output={corpus / 'x.ctm'}", change)
    assert answer.code in (2, 3) and message in answer.err
    assert not (corpus / "x.ctm").exists()


def test_an4_brings_its_dictionary_or_needs_one(tmp_path: Path, las: Las) -> None:
    root = tiny_words.tree(tmp_path)
    command = ["align", *tiny_words.overrides(root)[:4], f"data_dir={root / 'data'}", f"output={root / 'x.ctm'}"]
    answer = las(*command)
    assert answer.code == 2 and "an4 has no pronouncing dictionary of its own: lexicon=words.dic" in answer.err
    (root / "an4" / "etc" / "an4.dic").write_text("YES Y EH S\nNO N OW\nGO G OW\nON AA N\nSTOP S T AA P\nIT IH T\n")
    answer = las(*command)
    assert answer.code == 0, answer.err
    assert "an4.dic: 6 words, 11 phones, SIL among them" in answer.out
    words = [mark.text for mark in ctm.read(root / "x.ctm") if mark.file == "faaa_2"]
    assert words == ["GO", "ON"]
    phones = [mark.text for mark in ctm.read(root / "x.phones.ctm") if mark.file == "faaa_2"]
    assert [phone for phone in phones if phone != "SIL"] == ["G", "OW", "AA", "N"]
