"""Which training utterances are used."""

import json
from pathlib import Path

import pytest
from console import Las
from hypothesis import given
from hypothesis import strategies as st
from tiny import LABELS, overrides, utterance

from las.data.manifest import Utterance
from las.data.quality import QualityLimits

STAGES = [
    *("model.listener.num_layers=2", "model.listener.time_reduction=[2,1]", "trainer.validate_every=2"),
    "pretraining.stages=[{sub_epochs:1,model:{listener:{num_layers:1,time_reduction:[2]}}}]",
]
"""Two stages: the limit holds for both."""


@pytest.fixture
def two_longer(corpus: Path) -> Path:
    """Two of the eight training utterances have more labels than the others."""
    for index in (6, 7):
        utterance(corpus / "TIMIT/TRAIN/DR1/FTR0", f"SX{index}", 0.8, index, (*LABELS[:-1], "aa", "iy", "h#"))
    return corpus


def test_longer_transcripts_are_left_out_of_the_whole_training_and_counted(two_longer: Path, las: Las) -> None:
    """They are not bad: none of them is in the ledger, and a quarter of the corpus may be of this kind."""
    answer = las("train", *overrides(two_longer, "+limits.longest_tokens=5", *STAGES)).succeeds()
    run = two_longer / "run"
    for said in (answer.out, (run / "log.txt").read_text()):
        assert "2 of 8 utterances" in said and "limits.longest_tokens=5" in said
    assert answer.out.count("6 training utterances") == 2
    assert (run / "bad_utterances.jsonl").read_text() == ""
    assert json.loads((run / "result.json").read_text())["train_utterances"] == 6


def test_a_limit_that_leaves_nothing_says_so(two_longer: Path, las: Las) -> None:
    answer = las("train", *overrides(two_longer, "+limits.longest_tokens=1"))
    assert answer.code == 3 and "8 utterances (100.0" in answer.out
    assert "training utterance remains," in answer.err


def test_a_learning_curve_trains_on_a_part_drawn_at_random(corpus: Path, las: Las) -> None:
    answer = las("train", *overrides(corpus, "+limits.hours=0.0006", *STAGES))  # 2.2 s
    answer.succeeds("limits.hours=0.0006:")
    count = json.loads((corpus / "run" / "result.json").read_text())["train_utterances"]
    assert 2 <= count < 8 and f"{count} of 8 utterances" in answer.out
    las("train", *overrides(corpus, "+limits.hours=0.0")).fails(2, "limits.hours=0.0")


@given(st.lists(st.floats(0.1, 9.0), min_size=1, max_size=30), st.tuples(st.floats(0.1, 60.0), st.floats(0.1, 60.0)))
def test_fewer_hours_are_a_part_of_more(durations: list[float], seconds: tuple[float, float]) -> None:
    listed = [Utterance(f"u{index}", "x.wav", 0, 0.0, duration, "", "") for index, duration in enumerate(durations)]
    fewer, more = (QualityLimits(hours=part / 3600).sample(listed) for part in sorted(seconds))
    assert set(fewer) <= set(more) <= set(listed) and more == [each for each in listed if each in more]
    for drawn, part in ((fewer, min(seconds)), (more, max(seconds))):
        assert sum(each.duration_s for each in drawn) <= part + 1e-9
        assert len(drawn) == len(listed) or sum(each.duration_s for each in drawn) + max(durations) >= part - 1e-9
    assert QualityLimits().sample(listed) == listed
