"""Which training utterances are used."""

import json
from pathlib import Path

import pytest
from console import Las
from tiny import LABELS, overrides, utterance

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
    answer = las("train", *overrides(two_longer, "+limits.longest_tokens=5", *STAGES))
    assert answer.code == 0, answer.err
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
