"""Training: that a stop changes nothing, and what happens when things go wrong."""

import json
import os
import re
import shutil
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from console import Las
from interrupted_trainings import require_same, stopped_after
from tiers import rest_slow
from tiny import damage, overrides, steps, tree
from torch import Tensor

from las.cli import train
from las.data.loader import Batch
from las.runtime import signals
from las.storage import checkpoint
from las.training.step import StepResult, TrainingStep
from las.training.trainer import Trainer, Update


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tiny corpus and the run that nobody disturbed, in `run`."""
    root = tree(tmp_path_factory.mktemp("whole"))
    train.train(overrides(root))
    return root


def test_the_pointer_to_the_best_is_mended_on_resume(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the process had been killed between writing the checkpoint and pointing to it."""
    stopped_after(monkeypatch, corpus, 3)
    (corpus / "run/checkpoints/best").unlink()
    stopped_after(monkeypatch, corpus, 3)
    assert (corpus / "run/checkpoints/best").read_text() == "step-00000002\n"


@pytest.mark.parametrize("how", rest_slow(["flip", "cut", "missing"], keep=1))
def test_a_damaged_checkpoint_falls_back_to_the_one_before_and_says_so(how: str, whole: Path, las: Las) -> None:
    run = shutil.copytree(whole / "run", whole / how)
    (run / "result.json").unlink()
    damage(run / "checkpoints/step-00000004/model.safetensors", how)
    answer = las("train", *overrides(whole, f"run_dir={run}")).succeeds()
    used = r"step-00000002 is used in its place, 2 steps \(0:\d\d\) older"
    assert "step-00000004" in answer.out and re.search(used, " ".join(answer.out.split()))
    assert "resuming at step" in answer.out
    assert re.search(used, " ".join((run / "log.txt").read_text().split()))
    require_same(run, whole / "run")


def test_when_all_checkpoints_are_damaged_nothing_is_thrown_away(whole: Path, las: Las) -> None:
    run = shutil.copytree(whole / "run", whole / "all")
    (run / "result.json").unlink()
    for directory in (run / "checkpoints").glob("step-*"):
        damage(directory / "optim.safetensors", "flip")
    answer = las("train", *overrides(whole, f"run_dir={run}"))
    assert answer.code == 5
    assert "of its checkpoints" in answer.err and "name=baseline_2" in answer.err
    assert answer.out.count("optim.safetensors: damaged") == 2 and "is used" not in answer.out
    assert steps(run) == steps(whole / "run")


def poisoned(monkeypatch: pytest.MonkeyPatch, value: float, at: Callable[[int], bool]) -> None:
    """From now on the loss of the steps for which `at` holds is this value."""
    part = TrainingStep._part

    def faulty(self: TrainingStep, batch: Batch, divisor: float) -> Tensor:
        found = part(self, batch, divisor)
        if not at(self.asked):
            return found
        next(self.model.parameters()).grad.fill_(value)
        return torch.tensor(value)

    start = TrainingStep.start

    def noting(self: TrainingStep, given: Sequence[Batch], step: int) -> Callable[[], StepResult]:
        self.asked = step
        return start(self, given, step)

    monkeypatch.setattr(TrainingStep, "start", noting)
    monkeypatch.setattr(TrainingStep, "_part", faulty)


LONG = ["trainer.max_steps=40", "trainer.validate_every=5", "trainer.patience=40", "trainer.broken_after_epochs=100"]


def test_a_training_that_is_never_finite_is_broken_which_is_a_result(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, las: Las
) -> None:
    poisoned(monkeypatch, float("inf"), lambda step: step > 6)
    answer = las("train", *overrides(corpus, *LONG))
    assert answer.code == 4
    for words in ("10 of the last 100 updates were not finite", "the loss is inf", "lower optim.lr", "name="):
        assert words in answer.err
    assert answer.out.count("back to step") == 1
    result = json.loads((corpus / "run/result.json").read_text())
    assert "last 100 updates" in result["broken"] and result["splits"] == {}
    again = las("train", *overrides(corpus, *LONG))
    assert again.code == 0 and "is finished: broken" in again.out


@pytest.fixture
def reading_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Updates leave out what is not finite by themselves, and are read after the next one, as on a GPU."""
    monkeypatch.setattr(TrainingStep, "reads_later", True)


@pytest.mark.usefixtures("reading_later")
def test_updates_that_are_read_later_are_the_same(whole: Path, corpus: Path) -> None:
    train.train(overrides(corpus))
    require_same(corpus / "run", whole / "run")


@pytest.mark.parametrize("last", [3, 8])
def test_an_update_that_is_not_finite_is_left_out_whenever_it_is_read(
    last: int, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = ["trainer.max_steps=8", f"trainer.validate_every={last}", "trainer.patience=40"]
    poisoned(monkeypatch, float("nan"), lambda step: step in (2, 3, 5))
    train.train(overrides(corpus, *more))
    monkeypatch.setattr(TrainingStep, "reads_later", True)
    train.train(overrides(corpus, *more, f"run_dir={corpus}/later"))
    require_same(corpus / "run", corpus / "later", step=8)
    assert [line["step"] for line in steps(corpus / "later") if line["event"] == "left out"] == [2, 3, 5]


def test_a_training_that_reads_later_goes_back_and_ends_as_well(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, las: Las
) -> None:
    poisoned(monkeypatch, float("inf"), lambda step: step > 6)
    at_once = las("train", *overrides(corpus, *LONG))
    monkeypatch.setattr(TrainingStep, "reads_later", True)
    later = las("train", *overrides(corpus, *LONG, f"run_dir={corpus}/later"))
    assert later.code == at_once.code == 4 and later.out.count("back to step 15") == 1
    assert steps(corpus / "later") == steps(corpus / "run")


@pytest.mark.usefixtures("reading_later")
def test_a_stop_loses_no_update_that_was_not_read(whole: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = Trainer._start_update
    for last in (1, 3):

        def signalled(self: Trainer, batch: Sequence[Batch], ids: list[str], last: int = last) -> Update:
            update = start(self, batch, ids)
            if self.state.step == last:
                os.kill(os.getpid(), signal.SIGTERM)
            return update

        with monkeypatch.context() as patched:
            patched.setattr(Trainer, "_start_update", signalled)
            with pytest.raises(signals.Interrupted, match=f"at step {last}, which is saved"):
                train.train(overrides(corpus))
    train.train(overrides(corpus))
    require_same(corpus / "run", whole / "run")


def test_a_training_that_learns_nothing_is_broken(corpus: Path, las: Las) -> None:
    more = ["trainer.broken_after_epochs=1", "optim.lr=1e-12", "trainer.max_steps=20", "trainer.patience=20"]
    answer = las("train", *overrides(corpus, *more))
    assert answer.code == 4
    assert "after 1 epochs" in answer.err and "not learning" in answer.err and "attention" in answer.err
    assert "is not learning" in json.loads((corpus / "run/result.json").read_text())["broken"]


@pytest.mark.pictures
def test_what_a_validation_leaves(corpus: Path) -> None:
    pictures = ["trainer.histograms=true", "trainer.attention_pictures=true", "trainer.max_steps=2"]
    train.train([*overrides(corpus), *pictures])
    run = corpus / "run"
    assert (run / "attention/step00000002.png").stat().st_size > 5000
    assert (run / "curves.png").stat().st_size > 5000
    (events,) = (run / "tensorboard").iterdir()
    content = events.read_bytes()
    for tag in (b"train/loss", b"train/gradient_norm", b"train/learning_rate", b"dev/loss", b"dev/phone_error_rate"):
        assert tag in content
    assert b"speller.output.weight" in content and b"attention" in content
    (validation,) = (line for line in steps(run) if line["event"] == "validation")
    assert validation.keys() == {"event", "step", "dev_loss", "dev_error", "metric", "token_accuracy", "alignment"}


LEARNING = ["optim.lr=0.02", "trainer.batch_size=8", "trainer.validate_every=30", "trainer.broken_after_epochs=100"]


@pytest.mark.parametrize("loss", ["cross_entropy", "joint_ctc"])
def test_training_lowers_the_loss(loss: str, tmp_path: Path) -> None:
    train.train(overrides(tree(tmp_path), f"loss={loss}", "trainer.max_steps=30", *LEARNING))
    losses = [line["loss"] for line in steps(tmp_path / "run") if line["event"] == "train"]
    assert losses[-1] < 0.6 * losses[0]
    assert "0.02: about 0.004" in (tmp_path / "run" / "log.txt").read_text()
    found, _ = checkpoint.find(tmp_path / "run")
    assert ("ctc.output.weight" in found.model) == (loss == "joint_ctc")


def test_sub_epochs_are_parts_of_an_epoch(corpus: Path) -> None:
    """Of eight batches, two of them an update: four updates an epoch."""
    parts = ["trainer.validate_every=null", "trainer.sub_epochs=2", "trainer.accumulate=2", "trainer.batch_size=1"]
    train.train(overrides(corpus, *parts, "trainer.max_steps=6"))
    lines = steps(corpus / "run")
    assert [line["step"] for line in lines if line["event"] == "train"] == [1, 2, 3, 4, 5, 6]
    assert [line["step"] for line in lines if line["event"] == "validation"] == [2, 4, 6]


def test_the_time_left_knows_the_last_sub_epoch(corpus: Path, las: Las) -> None:
    parts = ["trainer.validate_every=null", "trainer.sub_epochs=2", "+trainer.max_sub_epochs=6"]
    answer = las("train", *overrides(corpus, *parts, "trainer.batch_size=4", "trainer.max_steps=100000")).succeeds()
    lines = [line for line in answer.out.splitlines() if "| step " in line]
    assert len(lines) == 6 and "at most 0:00" in lines[-1] and not any(":00:" in line for line in lines)


def test_one_way_to_cut_an_epoch_is_asked_for(corpus: Path, las: Las) -> None:
    las("train", *overrides(corpus, "trainer.sub_epochs=2")).fails(2, "trainer.validate_every (steps) or")
