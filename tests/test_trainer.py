"""Training: what convergence means, that a stop changes nothing, and what happens when things go wrong."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from conftest import Answer
from tiny import damage, overrides, steps, tree

from las import checkpoint, commands
from las.trainer import Trainer, convergence


@pytest.mark.parametrize(
    ("validations", "best_step", "within"),
    [
        ([(10, 0.5)], 10, 10),
        ([(10, 0.5), (20, 0.3), (30, 0.4)], 20, 20),
        ([(10, 0.5), (20, 0.3), (30, 0.3)], 20, 20),
        ([(10, 0.5), (20, 0.301), (30, 0.3)], 30, 20),
        ([(10, 0.5), (20, 0.3031), (30, 0.3)], 30, 30),
        ([(10, 0.0), (20, 0.0)], 10, 10),
    ],
)
def test_convergence_is_the_first_best_and_the_first_within_one_percent(
    validations: list[tuple[int, float]], best_step: int, within: int
) -> None:
    assert convergence(validations) == (best_step, within, min(error for _, error in validations))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tiny corpus and the run that nobody disturbed, in `run`."""
    root = tree(tmp_path_factory.mktemp("whole"))
    commands.train(overrides(root))
    return root


def stopped_after(monkeypatch: pytest.MonkeyPatch, root: Path, step: int, *more: str) -> None:
    """A training that is interrupted when the update of a step is done."""
    update = Trainer._update

    def stopping(self: Trainer, batch):
        outcome = update(self, batch)
        if self.step == step:
            raise KeyboardInterrupt
        return outcome

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "_update", stopping)
        with pytest.raises(KeyboardInterrupt):
            commands.train(overrides(root, *more))


def require_same(run: Path, other: Path) -> None:
    """Two runs left the same bits: model, optimiser, state, and the same lines of metrics."""
    one, two = (checkpoint.load(checkpoint.directory(folder / "checkpoints", 4)) for folder in (run, other))
    for tensors, others in ((one.model, two.model), (one.optim, two.optim)):
        assert tensors.keys() == others.keys()
        assert all(torch.equal(tensors[name], others[name]) for name in tensors)
    for state in (one.state, two.state):
        del state["random"]["python"]  # the shape checker of these tests draws from Python's generator
    assert [key for key in one.state if one.state[key] != two.state[key]] == []
    assert steps(run) == steps(other)
    assert [line["step"] for line in steps(run)] == [1, 2, 2, 3, 4, 4]
    for split in ("dev", "test"):
        assert (run / f"hypotheses.{split}.jsonl").read_text() == (other / f"hypotheses.{split}.jsonl").read_text()


@pytest.mark.parametrize("step", [1, 2, 3])
def test_stopping_and_starting_again_changes_no_bit(
    step: int, whole: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stopped before the first checkpoint, before a validation, and after one; noise and dropout are on."""
    run = whole / f"stopped{step}"
    stopped_after(monkeypatch, whole, step, f"run_dir={run}")
    torch.manual_seed(step)  # whatever the other process did with its generators
    commands.train(overrides(whole, f"run_dir={run}"))
    assert ("resuming at step 2 (epoch 1, batch 2), checkpoint verified" in capsys.readouterr().out) == (step == 3)
    require_same(run, whole / "run")


@pytest.mark.slow
def test_a_killed_process_is_continued_by_another(corpus: Path) -> None:
    script = (
        "import os, sys; from las import cli; from las.trainer import Trainer; update = Trainer._update\n"
        "def dying(self, batch):\n"
        "    outcome = update(self, batch)\n"
        "    return os._exit(9) if self.step == 3 else outcome\n"
        "Trainer._update = dying if sys.argv[1] == 'die' else update\n"
        "sys.exit(cli.main(['train', *sys.argv[2:]]))"
    )
    twin = f"run_dir={corpus / 'twin'}"
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    for mode, more, code in (("die", [], 9), ("live", [], 0), ("live", [twin], 0)):
        command = [sys.executable, "-c", script, mode, *overrides(corpus, *more)]
        assert subprocess.run(command, capture_output=True, env=environment).returncode == code
    require_same(corpus / "run", corpus / "twin")


def test_the_pointer_to_the_best_is_mended_on_resume(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the process had been killed between writing the checkpoint and pointing to it."""
    stopped_after(monkeypatch, corpus, 3)
    (corpus / "run/checkpoints/best").unlink()
    stopped_after(monkeypatch, corpus, 3)
    assert (corpus / "run/checkpoints/best").read_text() == "step-00000002\n"


@pytest.mark.parametrize("how", ["flip", "cut", "missing"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before_and_says_so(
    how: str, whole: Path, las: Callable[..., Answer]
) -> None:
    run = shutil.copytree(whole / "run", whole / how)
    (run / "result.json").unlink()
    damage(run / "checkpoints/step-00000004/model.safetensors", how)
    answer = las("train", *overrides(whole, f"run_dir={run}"))
    assert answer.code == 0
    assert "step-00000004" in answer.out and "falling back to the one before" in answer.out
    assert "resuming at step 2" in answer.out
    assert "falling back to the one before" in (run / "log.txt").read_text()
    require_same(run, whole / "run")


def test_when_all_checkpoints_are_damaged_nothing_is_thrown_away(whole: Path, las: Callable[..., Answer]) -> None:
    run = shutil.copytree(whole / "run", whole / "all")
    (run / "result.json").unlink()
    for directory in (run / "checkpoints").glob("step-*"):
        damage(directory / "optim.safetensors", "flip")
    answer = las("train", *overrides(whole, f"run_dir={run}"))
    assert answer.code == 5
    assert "none of its checkpoints can be read" in answer.err and "name=baseline_2" in answer.err
    assert answer.out.count("falling back") == 2
    assert steps(run) == steps(whole / "run")


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_stops_and_loses_nothing(
    poison: float, corpus: Path, monkeypatch: pytest.MonkeyPatch, las: Callable[..., Answer]
) -> None:
    update = Trainer._update
    before: dict[str, torch.Tensor] = {}

    def poisoned(self: Trainer, batch):
        if self.step == 2:
            with torch.no_grad():
                self.model.speller.output.weight[0, 0] = poison
            before.update({name: tensor.clone() for name, tensor in self.model.state_dict().items()})
            before["batch"], before["model"] = batch.ids, self.model
        return update(self, batch)

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "_update", poisoned)
        answer = las("train", *overrides(corpus))
    assert answer.code == 4
    for words in ("step 3: the loss is", "was not updated", str(corpus / "run/checkpoints"), "lower optim.lr", "name="):
        assert words in answer.err
    ids, model = before.pop("batch"), before.pop("model")
    assert ids and all(name in answer.err for name in ids)
    assert all(
        torch.equal(tensor.nan_to_num(), before[name].nan_to_num()) for name, tensor in model.state_dict().items()
    )
    newest, complaints = checkpoint.newest(corpus / "run/checkpoints")
    assert newest is not None and newest.state["step"] == 2 and complaints == []
    assert all(torch.isfinite(tensor).all() for tensor in newest.model.values())
    assert las("train", *overrides(corpus)).code == 0
    assert [line["step"] for line in steps(corpus / "run")] == [1, 2, 2, 3, 4, 4]


def test_other_training_utterances_are_not_continued_with(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, las: Callable[..., Answer]
) -> None:
    stopped_after(monkeypatch, corpus, 3)
    for path in (corpus / "TIMIT/TRAIN/DR1/FTR0").glob("SX7.*"):
        path.unlink()
    answer = las("train", *overrides(corpus))
    assert answer.code == 5
    assert "not those this run began with" in answer.err and "name=baseline_2" in answer.err


def test_patience_ends_a_training_that_gets_no_better(corpus: Path) -> None:
    result = commands.train(overrides(corpus, "trainer.patience=1", "trainer.max_steps=20", "optim.lr=0.0"))
    assert (result["steps"], result["steps_to_converge"]) == (4, 2)  # nothing moves: the second validation is no better


def test_clipping_by_value_and_norm_and_a_schedule(corpus: Path) -> None:
    clips = ["trainer.clip_norm=1.0e-3", "trainer.clip_value=1.0e-4", "optim=sgd", "optim.momentum=0", "optim.lr=1.0"]
    more = ["optim.nesterov=false", "schedule.warmup_steps=2", "trainer.max_steps=2", *clips]
    commands.train(overrides(corpus, *more))
    lines = [line for line in steps(corpus / "run") if line["event"] == "train"]
    assert [line["learning_rate"] for line in lines] == [0.5, 1.0]
    # The norm is that of the gradient clipped by value, before it is clipped by norm.
    parameters = json.loads((corpus / "run/result.json").read_text())["parameters"]
    assert all(0 < line["gradient_norm"] <= 1e-4 * parameters**0.5 for line in lines)


def test_what_a_validation_leaves(corpus: Path) -> None:
    pictures = ["trainer.histograms=true", "trainer.attention_pictures=true", "trainer.max_steps=2"]
    commands.train([*overrides(corpus), *pictures])
    run = corpus / "run"
    assert (run / "attention/step00000002.png").stat().st_size > 5000
    assert (run / "curves.png").stat().st_size > 5000
    (events,) = (run / "tensorboard").iterdir()
    content = events.read_bytes()
    for tag in (b"train/loss", b"train/gradient_norm", b"train/learning_rate", b"dev/loss", b"dev/phone_error_rate"):
        assert tag in content
    assert b"speller.output.weight" in content and b"attention" in content
    (validation,) = (line for line in steps(run) if line["event"] == "validation")
    assert validation.keys() == {"event", "step", "dev_loss", "dev_error", "token_accuracy"}


def test_feature_statistics_come_from_training_and_travel_in_the_checkpoint(trained: Path) -> None:
    found, _ = checkpoint.find(trained / "run")
    assert found.model["features.mean"].abs().max() > 0.1
    assert (found.model["features.deviation"] > 0).all()
    assert found.state["corpus"]["sample_rate"] == 16000
    assert len(found.state["corpus"]["tokens"]["symbols"]) == 48


def test_training_lowers_the_loss(tmp_path: Path) -> None:
    more = ["trainer.max_steps=30", "trainer.validate_every=30", "optim.lr=0.02", "trainer.batch_size=8"]
    commands.train(overrides(tree(tmp_path), *more))
    losses = [line["loss"] for line in steps(tmp_path / "run") if line["event"] == "train"]
    assert losses[-1] < 0.6 * losses[0]
