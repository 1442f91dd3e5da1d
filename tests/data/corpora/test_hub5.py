"""Hub5'00 and Hub5'01 as test sets: segments, plain references, times of words, and scores that equal hubscr's."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import nist
import pytest
import telephone
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from las.data.corpora import hub5, isip_transcripts
from las.data.corpora.hub5 import TestSet
from las.data.corpora.switchboard import Switchboard
from las.data.manifest import Utterance
from las.data.tokenizers import Characters
from las.scoring import ctm, stm
from las.scoring.hub5 import without_noises

REFERENCE = """;; LABEL "O" "Overall" "Overall"
sw_4390 A sw_4390_A 0.50 2.25 <O,en,F,en-F> I'VE ((SEEN)) <B_ASIDE> IT <E_ASIDE>
sw_4390 A sw_4390_A 2.25 4.00 <O,en,F,en-F> IGNORE_TIME_SEGMENT_IN_SCORING
sw_4390 B sw_4390_B 2.00 3.50 <O,en,M,en-M> (%HESITATION) (TH-) THE { TEAPOT / KETTLE } I B M'S
en_4156 A en_4156_A 357.64 359.64 <O,en,F,en-F>  HE IS A POLICE OFFICER
en_4156 B en_4156_B 1.00 2.00 <O,en,M,en-M> UH-HUH
"""
GOLD = Path(__file__).parents[2] / "gold" / "hub5_corpus.json"


def evaluation(root: Path, name: str = "hub5_00", **settings: Any) -> TestSet:
    own = {"rules": root, "fillers": "removed", "partial": False} | settings
    return TestSet(name, root, root, **own)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return telephone.hub5(tmp_path / "hub5", REFERENCE, seconds=360.0)


def test_segments_of_the_stm_become_utterances(tree: Path) -> None:
    """With names of files and folders in any case."""
    listed = evaluation(tree).utterances()
    assert [(each.id, each.channel, each.speaker, each.text) for each in listed] == [
        ("en_4156-A_035764-035964", 0, "en_4156-A", "he is a police officer"),
        ("en_4156-B_000100-000200", 1, "en_4156-B", "uh-huh"),
        ("sw_4390-A_000050-000225", 0, "sw_4390-A", "i've seen it"),
        ("sw_4390-B_000200-000350", 1, "sw_4390-B", "uh th- the teapot i b m's"),
    ]
    assert (listed[0].start_s, listed[0].duration_s) == (357.64, 2.0)
    assert listed[0].audio == str(tree / "english" / "en_4156.sph")
    for path in sorted(tree.rglob("*"), reverse=True):
        path.rename(path.with_name(path.name.upper()))
    assert [each.id for each in evaluation(tree).utterances()] == [each.id for each in listed]


@pytest.mark.parametrize(
    ("reference", "plain"),
    [
        ("{ GONNA / GOING TO } (%HESITATION) I. B. M.", "gonna uh i b m"),
        ("{ @ / THE { BIG / LARGE } ONE } HOUSE (WHICH)", "house which"),
        ("%BCACK WELL (%BCNACK) [NOISE] (FRAG-)", "uh-huh well huh-uh frag-"),
        ("<B_ASIDE> OKAY <E_ASIDE>", "okay"),
        ("", ""),
    ],
)
def test_plain_references(reference: str, plain: str) -> None:
    assert hub5.plain(reference) == plain


@given(
    st.lists(st.sampled_from(["uh-huh", "a", "teapot", "[noise]"]), max_size=60),
    st.integers(0, 36000),
    st.integers(2, 2000),
)
def test_words_are_timed_so_that_they_are_scored_in_their_segment(words: list[str], start: int, length: int) -> None:
    segment = stm.Segment("sw_1", "A", "sw_1_A", start / 100, (start + length) / 100, ("O",), "X")
    timed = hub5.timed(" ".join(words), segment)
    assert [word.text for word in timed] == [word for word in words if word != "[noise]"]
    assert all(segment.start_s <= word.start_s and word.start_s + word.duration_s < segment.end_s for word in timed)


def hypotheses(utterances: list[Utterance], seed: int) -> dict[str, str]:
    """Texts with words left out, said twice, exchanged, or strange; of some utterances none."""
    draw = random.Random(seed)
    texts = {}
    for each in utterances:
        words = []
        for word in each.text.split():
            words += draw.choice([[word]] * 6 + [[], [word, word], ["teapot"], ["uh"], ["uh-huh"], ["i've"], ["th-"]])
        if draw.random() < 0.9:
            texts[each.id] = " ".join(words)
    return texts


def counts(score: Any) -> dict[str, list[int]]:
    """Kinds of errors of every part, as hubscr prints them."""
    rates = {"total": score.total} | score.subsets
    return {
        part: [each.correct, each.substitutions, each.deletions, each.insertions, each.utterances]
        for part, each in rates.items()
    }


def long_reference(seed: int = 5, count: int = 60) -> str:
    """Segments of two halves with every kind of markup."""
    draw = random.Random(seed)
    words = ["THE", "TEAPOT", "SEEN", "I'VE", "(%HESITATION)", "(WH-)", "UH-HUH", "{ A / THE }", "T", "V", "ISN'T"]
    lines = []
    for index in range(count):
        name, side = ("sw_4390", "en_4156")[index % 2], "AB"[index // 2 % 2]
        text = " ".join(draw.choices(words, k=draw.randint(1, 9)))
        lines.append(f"{name} {side} {name}_{side} {index}.00 {index}.90 <O,en,F,en-F> {text}\n")
    return "".join(lines)


@pytest.mark.parametrize("fillers", ["kept", "removed"])
def test_scores_are_those_of_hubscr(tmp_path: Path, fillers: str) -> None:
    """Those that it gave once, and where it is there, those that it gives."""
    made = evaluation(telephone.hub5(tmp_path / "hub5", long_reference(), seconds=61.0), fillers=fillers)
    utterances = made.utterances()
    texts = hypotheses(utterances, 7)
    assert counts(made.score(utterances, texts)) == (gold := json.loads(GOLD.read_text())[fillers])
    words = [w for name, each in made.references.items() for w in hub5.timed(texts.get(name, ""), each.segment)]
    words = without_noises(words) if fillers == "removed" else words
    for part, start in (("total", ""), ("SWB", "sw"), ("CH", "en")):
        folder = tmp_path / part
        folder.mkdir()
        shutil.copy(tmp_path / "hub5" / "reference" / "en20000405_hub5.glm", folder / "test.glm")
        nist.write_stm(folder / "r.stm", [each for each in made.segments if each.file.startswith(start)])
        hypothesis = sorted(each for each in words if each.file.startswith(start))
        (folder / "h.ctm").write_text(ctm.text(hypothesis), "utf-8")
        options = ["-V", "-l", "english", "-h", "hub5", "-g", "test.glm", "-r", "r.stm", "h.ctm"]
        nist.run("hubscr.pl", *options, folder=folder)
        segments, _, *row = map(int, nist.summary((folder / "h.ctm.filt.raw").read_text())["sum"][:6])
        assert [*row, segments] == gold[part]


def test_missing_calls_are_named_and_may_be_left_out(tree: Path) -> None:
    (tree / "english" / "en_4156.sph").unlink()
    refused("1 calls|en_4156|corpus.partial=true|LDC2002S09", evaluation(tree).utterances)
    partial = evaluation(tree, partial=True)
    assert [each.audio for each in partial.utterances()] == [str(tree / "english" / "sw_4390.sph")] * 2
    assert partial.score(partial.utterances(), {}).total.utterances == 2
    (tree / "english" / "sw_4390.sph").unlink()
    refused("no call", evaluation(tree, partial=True).utterances)


def test_two_segments_with_the_same_times_have_two_names(tmp_path: Path) -> None:
    made = evaluation(telephone.hub5(tmp_path / "hub5", 2 * "sw_1 A sw_1_A 1.00 2.00 <O> YES\n"))
    assert [each.id for each in made.utterances()] == ["sw_1-A_000100-000200", "sw_1-A_000100-000200."]


def test_a_segment_without_words_is_decoded_and_scored(tmp_path: Path) -> None:
    root = telephone.hub5(tmp_path / "hub5", "sw_1 A sw_1_A 1.00 2.00 <O,en>\n" + REFERENCE, seconds=360.0)
    made = evaluation(root)
    utterances = made.utterances()
    silent = next(each for each in utterances if each.id.startswith("sw_1-A"))
    assert silent.text == ""
    score = made.score(utterances, {each.id: each.text or "so" for each in utterances})
    assert (score.total.errors, score.total.insertions, score.total.utterances) == (1, 1, 5)


def test_the_mapping_rules_are_those_asked_for(tree: Path, tmp_path: Path) -> None:
    rules, other = tree / "reference" / "en20000405_hub5.glm", tmp_path / "other.glm"
    provenance = evaluation(tree).provenance()
    assert provenance["glm"] == "las_generated.glm" and len(provenance["glm_sha256"]) == 64
    other.write_text(telephone.GLM.replace("las_generated", "other"))
    assert evaluation(tree, rules=other).provenance()["glm"] == "other.glm"
    shutil.copy(rules, tree / "en20010117_hub5.glm")
    refused("expected one|en20010117_hub5.glm|corpus.glm", evaluation(tree).provenance)
    (tree / "en20010117_hub5.glm").unlink()
    rules.unlink()
    refused("no file|en20000405_hub5.glm", evaluation(tree).provenance)


def test_hub5_01_uses_the_rules_of_hub5_00(tree: Path, tmp_path: Path) -> None:
    year = telephone.hub5(tmp_path / "hub5_01", REFERENCE.replace("sw_4390", "sw4653"), year="01", seconds=360.0)
    (year / "reference" / "en20000405_hub5.glm").unlink()
    made = Switchboard("swb", "/nowhere", Characters(isip_transcripts.ALPHABET), hub5_00=str(tree), hub5_01=str(year))
    assert made.splits == ("train", "dev", "hub5_00", "hub5_01")
    assert made.provenance("hub5_01") == made.provenance("hub5_00")
    utterances = made.utterances("hub5_01")
    assert made.score("hub5_01", utterances, {each.id: each.text for each in utterances}).total.errors == 0


def test_notes_tell_whether_the_test_is_the_published_one(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    total, parts = hub5.KNOWN["hub5_00"]["total"], (hub5.KNOWN["hub5_00"][part] for part in ("SWB", "CH"))
    assert total == (4459, 42989) == tuple(map(sum, zip(*parts, strict=True)))
    counted, warning = evaluation(tree).notes()
    assert "total 16 words in 4 segments" in counted and "las_generated.glm" in counted
    assert "total 42,989 words in 4,459 segments" in warning
    for known, num_notes in (
        ({"total": (4, 16), "SWB": (2, 10), "CH": (2, 6)}, 1),
        ({"total": (4, 17)}, 2),
        ({"total": (5, 16)}, 2),
    ):
        monkeypatch.setattr(hub5, "KNOWN", {"hub5_00": known})
        assert len(evaluation(tree).notes()) == num_notes
    path = tree / "reference" / "hub5e00.english.000405.stm"
    path.write_text(path.read_text().replace("I B M'S", "I. B. (M.'S) MR."))
    assert any("3 words of" in note for note in evaluation(tree).notes())
