"""The dev loss that newbob follows: plain cross-entropy, or what training minimises."""

import json
from pathlib import Path

import pytest
import tiny
import tiny_frames

from las.cli import main

NEWBOB = ["schedule=newbob_multi_epoch", "schedule.follows=objective"]
TEXT = ["lm.hidden_size=8", "lm.embedding_size=4"]


@pytest.mark.parametrize(
    ("kind", "plain", "other"),
    [
        ("tokens", ["loss.smoothing=0.0"], ["loss.smoothing=0.5"]),
        ("tokens", ["loss=joint_ctc", "loss.smoothing=0.0", "loss.ctc_weight=0.0"], ["loss=joint_ctc"]),
        ("frames", ["loss=frame_cross_entropy"], ["loss=frame_focal"]),
        ("text", ["loss.smoothing=0.0"], ["loss.smoothing=0.5"]),
    ],
)
def test_the_schedule_is_told_what_training_minimises(
    tmp_path: Path, kind: str, plain: list[str], other: list[str]
) -> None:
    """Per token or frame: plain cross-entropy where training minimises that, a larger or smaller one elsewhere."""
    tiny.tree(tmp_path)
    more = {"tokens": [], "frames": tiny_frames.MODEL, "text": TEXT}[kind]
    for name, loss in (("plain", plain), ("other", other)):
        given = tiny.overrides(tmp_path, *NEWBOB, *loss, f"run_dir={tmp_path / name}")
        given = [each for each in given if kind == "tokens" or each not in tiny.MODEL]
        if kind != "tokens":
            given.remove("search=greedy")
        assert main.main(["train_lm" if kind == "text" else "train", *given, *more]) == 0
        told = json.loads((tmp_path / name / "checkpoints/step-00000004/state.json").read_text())["schedule"]["losses"]
        measured = [step["dev_loss"] for step in tiny.steps(tmp_path / name) if step["event"] == "validation"]
        assert len(told) == 2 and (told == pytest.approx(measured)) == (name == "plain")
