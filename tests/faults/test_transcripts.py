"""Faulty transcripts: all are counted before step 1, nothing becomes an unknown symbol in silence."""

import json
import re
from pathlib import Path

import pytest
from console import Las
from tiers import rest_slow
from tiny_words import TRAIN, name, overrides, tree

from las.data import quality
from las.data.manifest import Utterance
from las.data.quality import AudioScanCache
from las.data.tokenizers import Characters

FAULTS = {
    "": ("empty transcript", "is empty"),
    "   ": ("empty transcript", "is empty"),
    "GO 5": ("unknown symbols", "'5' in the text 'GO 5'"),
    "GO\0ON": ("control characters", r"'\\x00'"),
    "GO " * 3333 + "G": ("more symbols than states", r"10000 symbols"),
    "CAFE\u0301": ("decomposed Unicode", r"'E\\u0301' should be '\\xc9'"),
    "CAF\u00c9": ("unknown symbols", "'\u00c9'"),
    "ON" * 40: ("more symbols than states", r"80 symbols"),
}
MANY = ["trainer.max_bad_fraction=1.0", "limits.unknown=0.5"]


def ledger(path: Path) -> dict[str, tuple[str, str]]:
    """Kind and reason by utterance."""
    entries = map(json.loads, path.read_text("utf-8").splitlines())
    return {entry["utterance_id"]: (entry["kind"], entry["reason"]) for entry in entries}


def test_every_fault_is_counted_before_step_1_and_left_out(tmp_path: Path, las: Las) -> None:
    tree(tmp_path, [*TRAIN, *FAULTS])
    bad = {name("train", len(TRAIN) + index): fault for index, fault in enumerate(FAULTS.values())}
    checked = las("check", *overrides(tmp_path, *MANY)).fails(3, f"an4: {len(bad)} {len(TRAIN) + len(FAULTS) + 4}")
    las("train", *overrides(tmp_path, *MANY)).succeeds("tokens lack 4")
    for path in (tmp_path / "data/checks/an4", tmp_path / "run"):
        found = ledger(path / "bad_utterances.jsonl")
        assert found.keys() == bad.keys()
        for utterance, (kind, reason) in bad.items():
            assert found[utterance][0] == kind
            assert re.search(reason, found[utterance][1]), found[utterance]
    for kind in {kind for kind, _ in FAULTS.values()}:
        count = sum(kind == other for other, _ in FAULTS.values())
        assert re.search(rf"{kind} +. +{count} ", checked.out)
    assert json.loads((tmp_path / "run/result.json").read_text())["train_utterances"] == len(TRAIN)


def test_unknown_symbols_stop_the_training_and_are_listed_with_counts_and_examples(tmp_path: Path, las: Las) -> None:
    tree(tmp_path, [*TRAIN, "GO 5", "GO 55", "7 ON"])
    count = sum(map(len, TRAIN)) + 4 + 5 + 4
    words = f"4 of {count} symbols ({100 * 4 / count:.2g} '5' 3 (faaa_8, faaa_9), '7' once (faaa_10) limits.unknown"
    las("train", *overrides(tmp_path, "trainer.max_bad_fraction=1.0")).fails(3, words)
    assert len(ledger(tmp_path / "run/bad_utterances.jsonl")) == 3
    assert not (tmp_path / "run/metrics.jsonl").exists()


@pytest.mark.parametrize("split", rest_slow(["dev", "test"], keep=1))
def test_unknown_symbols_of_dev_and_test_stop_or_are_named_and_count_as_errors(
    split: str, tmp_path: Path, las: Las
) -> None:
    tree(tmp_path, **{split: ["GO 5", "YES"]})
    las("train", *overrides(tmp_path)).fails(3, f"'5' once ({name(split, 0)}) {split} limits.unknown=0.001")
    allowed = las("train", *overrides(tmp_path, "limits.unknown=0.2"))
    allowed.succeeds(f"1 of 7 symbols (14.3 %): '5' once ({name(split, 0)})")
    assert (tmp_path / "run/bad_utterances.jsonl").read_text() == ""
    score = json.loads((tmp_path / "run/result.json").read_text())["splits"][split]
    assert (score["words"], score["utterances"]) == (3, 2)


def test_empty_references_are_decoded_and_scored_as_insertions_only(tmp_path: Path, las: Las) -> None:
    tree(tmp_path, dev=["", "YES"], test=["", " "])
    answer = las("train", *overrides(tmp_path, "trainer.max_bad_fraction=0.0", "trainer.attention_pictures=true"))
    answer.succeeds()
    for split, count in (("dev", 1), ("test", 2)):
        assert f"{split}: {count} utterances are decoded" in answer.out
    score = json.loads((tmp_path / "run/result.json").read_text())["splits"]["test"]
    assert (score["utterances"], score["words"], score["substitutions"], score["deletions"]) == (2, 0, 0, 0)
    lines = (tmp_path / "run/hypotheses.test.jsonl").read_text().splitlines()
    assert score["insertions"] == sum(len(json.loads(line)["text"].split()) for line in lines)
    checked = las("check", *overrides(tmp_path)).succeeds_quietly()
    assert re.search(r"empty transcript +. +0 . +1 . +2 ", checked.out)


def test_texts_are_checked_where_the_audio_cannot_be_read(tmp_path: Path) -> None:
    """The audio is named first: there is one reason for each utterance."""
    asked = quality.QualityCriteria(Characters("A"), 16000, 1, quality.QualityLimits(), None)
    absent = Utterance("a", str(tmp_path / "absent.wav"), 0, 0.0, 0.0, "B", "y")
    (problem,) = quality.problems([absent], asked, AudioScanCache(), 1, "files")
    assert (problem.utterance_id, problem.kind) == ("a", "missing")
