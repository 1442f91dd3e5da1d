"""The checkpoint that is decoded: by dev error or by dev loss, and never a model that wrote one sentence for all."""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import pytest
from console import Las
from tiny import overrides

from las.cli import train
from las.nn.attention.diagnostics import Alignment
from las.training import chance
from las.training.chance import ChanceLevel
from las.training.checkpointing import DevResult, Selection, TrainingState, summary
from las.training.tasks.base import Validation, Validator

DEAF, LEARNING = DevResult(150, 0.698, 2.58), DevResult(1500, 0.75, 0.84)
"""Two validations of a stored run: every hypothesis alike, and a model that has learned much."""


def test_a_model_that_does_not_listen_yet_is_not_the_best() -> None:
    for criterion in ("dev_error", "dev_loss"):
        assert Selection(criterion, chance_error=0.672).best([DEAF, LEARNING]) == LEARNING
    assert Selection("dev_error").best([DEAF, LEARNING]) == DEAF, "as it was without a chance level"


def test_below_the_chance_level_errors_decide() -> None:
    earlier, later = DevResult(10, 0.30, 0.5), DevResult(20, 0.29, 0.9)
    assert Selection("dev_error", 0.672).best([LEARNING, earlier, later]) == later
    assert Selection("dev_loss", 0.672).best([LEARNING, earlier, later]) == earlier
    assert Selection("dev_error", 0.3).best([LEARNING, earlier]) == earlier, "no better than chance: the loss decides"
    assert Selection("dev_error", 0.672).best([earlier, earlier._replace(step=30)]) == earlier


def test_losses_travel_beside_the_pairs_that_checkpoints_always_had() -> None:
    state = TrainingState(step=1500, validations=[DEAF, LEARNING])
    stored = json.loads(json.dumps(state.to_dict()))
    assert stored["validations"] == [[150, 0.698], [1500, 0.75]] and stored["dev_losses"] == [2.58, 0.84]
    assert TrainingState.from_dict(stored) == state
    del stored["dev_losses"]  # a checkpoint of an earlier release
    before = TrainingState.from_dict(stored)
    assert before.validations == [DevResult(150, 0.698), DevResult(1500, 0.75)]
    assert Selection("dev_error", 0.672).best(before.validations) == DevResult(150, 0.698)
    assert json.loads(json.dumps(before.to_dict()))["dev_losses"] == [None, None]


def scripted(monkeypatch: pytest.MonkeyPatch, *results: tuple[float, float]) -> None:
    """From now on validations have these errors and losses, and the chance level is 67 %."""
    flat = Alignment(1.0, 0.0, 1.0, 0.0)
    answers = iter([Validation(loss, error, 0.9, flat, loss) for error, loss in results])
    monkeypatch.setattr(Validator, "__call__", lambda self, stop: next(answers))
    monkeypatch.setattr(chance, "chance_level", lambda *given: ChanceLevel(0.33, 0.67, ""))


@pytest.mark.parametrize(("criterion", "best"), [("dev_error", 4), ("dev_loss", 2)])
def test_the_checkpoint_that_is_decoded_is_recorded(
    criterion: str, best: int, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, (0.31, 0.5), (0.29, 0.9))
    result = train.train(overrides(corpus, f"trainer.select={criterion}"))
    assert (corpus / "run/checkpoints/best").read_text() == f"step-0000000{best}\n"
    assert (result["select"], result["best_step"], result["chance_level"]["error"]) == (criterion, best, 0.67)
    assert [each["step"] for each in result["choices"].values()] == [4, 2]
    assert json.loads((corpus / "run/result.json").read_text()) == result


def test_patience_and_the_best_pass_over_a_model_that_writes_one_sentence(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, las: Las
) -> None:
    """By errors alone the first is the best, and patience ends the training after the second."""
    scripted(monkeypatch, (0.70, 2.58), (1.2, 1.5), (0.9, 0.84))
    answer = las("train", *overrides(corpus, "trainer.patience=1", "trainer.max_steps=6")).succeeds()
    assert (corpus / "run/checkpoints/best").read_text() == "step-00000006\n"
    words = " ".join(answer.out.split())
    assert "by dev_error at" in words
    assert "ended at trainer.max_steps;" in words
    assert "than the chance" in words
    assert "converged" not in words
    assert "end, PER 90.0" in words


ENDINGS = [
    ((0.5, 0.4, 0.3, 0.2, 0.1), [], "trainer.max_steps; not converged: dev_error"),
    ((0.5, 0.4, 0.3, 0.2, 0.2), [], "trainer.max_steps; converged: dev_error became 0.0 %"),
    ((0.2, 0.3, 0.3), ["trainer.patience=2"], "after 2 validations"),
    ((0.2,), ["trainer.max_steps=2"], "trainer.max_steps; too few validations"),
]


@pytest.mark.parametrize(("errors", "given", "says"), ENDINGS)
def test_the_end_of_a_training_is_the_verdict_of_its_rules(
    errors: Sequence[float], given: list[str], says: str, corpus: Path, monkeypatch: pytest.MonkeyPatch, las: Las
) -> None:
    scripted(monkeypatch, *((error, 1.0) for error in errors))
    words = " ".join(las("train", *overrides(corpus, "trainer.max_steps=10", *given)).out.split())
    assert says in words and ", best at" in words


def test_a_dev_loss_that_is_not_finite_is_broken(corpus: Path, monkeypatch: pytest.MonkeyPatch, las: Las) -> None:
    scripted(monkeypatch, (0.5, math.nan))
    las("train", *overrides(corpus)).fails(4, "2 is nan")
    result = json.loads((corpus / "run/result.json").read_text())
    assert "has diverged" in result["broken"] and result["chance_level"]["error"] == 0.67


def test_a_criterion_that_does_not_exist(corpus: Path, las: Las) -> None:
    answer = las("train", *overrides(corpus, "trainer.select=dev_los"))
    assert answer.code == 2
    assert "dev_loss or dev_error?" in answer.err


CONVERGED = {
    (0.5,): (10, 10),
    (0.5, 0.3, 0.4): (20, 20),
    (0.5, 0.3, 0.3): (20, 20),
    (0.5, 0.301, 0.3): (30, 20),
    (0.5, 0.3031, 0.3): (30, 30),
    (0.0, 0.0): (10, 10),
}
"""Errors of validations every ten steps, the step of the best one, and the first within one per cent of it."""


@pytest.mark.parametrize("errors", CONVERGED)
def test_convergence_is_the_first_best_and_the_first_within_one_percent(errors: Sequence[float]) -> None:
    validations = [DevResult(10 * number, error) for number, error in enumerate(errors, start=1)]
    found = summary(validations, Selection())
    assert (found["steps_to_converge"], found["steps_to_within_one_percent"]) == CONVERGED[errors]
