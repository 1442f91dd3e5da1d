"""The state of a training, saved and restored, and the selection of its best checkpoint."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch

from las.nn.model import SpeechModel, Trainable
from las.runtime import distributed, progress
from las.runtime.errors import StorageError
from las.storage import checkpoint, run_directory, run_records
from las.storage.checkpoint import Checkpoint
from las.storage.run_directory import RunDirectory
from las.training import pretraining
from las.training.pretraining import Stage
from las.training.schedules import Schedule

FAILED_SAVES = 3
"""Checkpoints in a row that the disk may refuse before training stops."""
STORED_NAMES = {"micro_batch_size": "most"}
"""Fields of TrainingState that checkpoints store under another name, which stays as it was in the first release."""

CRITERIA = ("dev_error", "dev_loss")
"""Criteria that the best checkpoint has least of."""


class DevResult(NamedTuple):
    """A validation of the stage that is trained."""

    step: int
    error: float
    """Error rate of the decoded hypotheses, a fraction; the perplexity of a language model."""
    loss: float = math.inf
    """Cross-entropy per token; infinite in checkpoints of releases that did not keep it."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values for result.json; a loss that is not known is None."""
        return {
            "step": self.step,
            "dev_error": self.error,
            "dev_loss": None if math.isinf(self.loss) else self.loss,
        }


class Selection(NamedTuple):
    """A rule that selects the best of several validations.

    A model that does not listen yet may decode one short sentence for every utterance, and have fewer errors so than
    while it learns to listen. So errors of `chance_error` and more (`las.training.chance`) are not compared: until a
    validation is below it, the dev loss decides by either criterion.
    """

    criterion: str = CRITERIA[0]
    """The name of a criterion in `CRITERIA`."""
    chance_error: float = math.inf

    def best(self, validations: Sequence[DevResult]) -> DevResult:
        """Return the validation that is selected; the earliest of equally good ones."""
        return min(validations, key=self._rank)

    def _rank(self, each: DevResult) -> tuple[int | float, ...]:
        if self.criterion == "dev_error" and each.error < self.chance_error:
            return 0, each.error, each.step
        return 1, each.loss, each.error, each.step


@dataclass
class TrainingState:
    """Progress of a training, as plain values."""

    step: int = 0
    epoch: int = 0
    next_batch: int = 0
    utterances: int | None = None
    """Number of utterances that the batches of this epoch are planned from."""
    validations: list[DevResult] = field(default_factory=list)
    """Validations of the stage. Checkpoints store pairs of step and dev error, and the dev losses apart."""
    not_finite: list[int] = field(default_factory=list)
    """The latest steps whose update was left out."""
    rate_scale: float = 1.0
    """Factor of the learning rate: halved when training went back because too many updates were left out."""
    micro_batch_size: int | None = None
    """Utterances that fit into memory at once; None while memory has never run out."""
    early_end: bool = False
    """The last validation came within a sub-epoch, at the end of training; checkpoints store it only if so."""
    unvalidated: float | None = None
    """Training loss of the last update, whose validation a signal broke off; checkpoints store it only if so."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values under the names that checkpoints have."""
        values = {STORED_NAMES.get(name, name): value for name, value in vars(self).items()}
        losses = [None if math.isinf(each.loss) else each.loss for each in self.validations]
        for name, is_usual in (("early_end", not self.early_end), ("unvalidated", self.unvalidated is None)):
            if is_usual:
                del values[name]
        return values | {"validations": [each[:2] for each in self.validations], "dev_losses": losses}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "TrainingState":
        """Inverse of `to_dict`. What a checkpoint of an earlier release lacks keeps its default."""
        names = {each.name: STORED_NAMES.get(each.name, each.name) for each in dataclasses.fields(cls)}
        values = {name: stored[key] for name, key in names.items() if key in stored}
        losses = stored.get("dev_losses", [None] * len(stored["validations"]))
        validations = [
            DevResult(int(step), float(error), math.inf if loss is None else float(loss))
            for (step, error), loss in zip(stored["validations"], losses, strict=True)
        ]
        return cls(**values | {"validations": validations})


class Checkpointer:
    """Saves a training and restores it.

    Args:
        stage: the stage that is trained; a training begins it with a checkpoint of the stage before.
        model, optimiser, schedule: what updates change, saved with the state.
        recognition: what a recogniser needs besides the model: tokens, sample rate, metric, dictionary; saved with it.
        run: the run directory.
        origin: seed, hashes and versions; saved, and compared when the training is continued.
        keep: newest checkpoints kept besides the best.
        allow_drift: names in `origin` that may differ (`las.storage.run_directory`).
        selection: the rule by which a checkpoint is the best.
    """

    def __init__(
        self,
        stage: Stage,
        model: Trainable,
        optimiser: torch.optim.Optimizer,
        schedule: Schedule,
        recognition: Mapping[str, Any],
        run: RunDirectory,
        origin: dict[str, Any],
        keep: int,
        allow_drift: list[str],
        selection: Selection,
    ) -> None:
        self.stage, self.model, self.optimiser, self.schedule = stage, model, optimiser, schedule
        self.recognition, self.run, self.origin, self.keep = recognition, run, origin, keep
        self.allow_drift, self.selection = allow_drift, selection
        self.folder, self.log = run.directory / "checkpoints", run.directory / "log.txt"
        self.failed, self.refusal = 0, ""

    def save(self, state: TrainingState) -> None:
        """Write a checkpoint, point to it and remove old ones; the main process does.

        A disk that refuses is named, and the next checkpoint tries again. Raises StorageError the third time in a row.
        """
        if not distributed.is_main():
            return
        optim, groups = checkpoint.pack_optimiser(self.optimiser)
        stored = state.to_dict() | {
            "origin": self.origin,
            "stage": self.stage.number,
            "schedule": self.schedule.state_dict(),
            "param_groups": groups,
            "corpus": self.recognition,
        }
        try:
            config = self.stage.config
            saved = checkpoint.save(self.folder, state.step, self.model.state_dict(), optim, stored, config)
            self._point(saved, state)
            checkpoint.prune(self.folder, self.keep)
        except (StorageError, OSError) as error:
            self.failed, self.refusal = self.failed + 1, str(error)
            if self.failed == FAILED_SAVES:
                raise StorageError(f"{error} {self.run.disk_full_advice}") from error
            progress.say(f"{error} Training goes on, and the next checkpoint will be tried as well.", self.log)
            return
        self.failed = 0

    def require_saved(self) -> None:
        """Raise StorageError when the disk has refused every checkpoint of a training that has ended."""
        if self.refusal and not any(self.folder.glob("step-*")):
            raise StorageError(
                f"{self.folder}: training has ended and none of its checkpoints could be written, so its parameters "
                f"are lost: {self.refusal} {self.run.disk_full_advice}"
            )

    def resume(self) -> TrainingState | None:
        """Restore the newest good checkpoint and return its state; None if there has never been one.

        Raises StorageError when none can be read, or when something in `origin` has changed that may not.
        """
        newest, damaged = checkpoint.newest(self.folder)
        if newest is None and damaged:
            for each in damaged:
                progress.say(each.reason, self.log)
            raise StorageError(
                f"{self.folder}: none of its checkpoints can be read, so this run cannot be continued. Train it again "
                f"under another name: name={self.run.config['name']}_2"
            )
        if newest is None:
            self.run.forget_after(0)
            return None
        if damaged:
            progress.say(checkpoint.fallback_message(damaged, newest), self.log)
        for line in run_directory.require(newest.state["origin"], self.origin, self.allow_drift, self.run.directory):
            progress.say(line, self.log)
        state = self.restore(newest)
        if distributed.is_main():
            self._point(newest.directory, state)
            if not damaged:  # else the newest directories are not the newest good ones
                checkpoint.prune(self.folder, self.keep)
        progress.say(
            f"resuming at step {state.step} (epoch {state.epoch + 1}, batch {state.next_batch}), checkpoint verified",
            self.log,
        )
        return state

    def _point(self, latest: Path, state: TrainingState) -> None:
        """Rewrite `best` and `latest`; a killed process may have left them stale.

        `best` is the best validation whose checkpoint is there: the disk may have refused one.
        """
        kept = [each for each in state.validations if checkpoint.directory(self.folder, each.step).exists()]
        if kept:
            checkpoint.point(self.folder, "best", checkpoint.directory(self.folder, self.selection.best(kept).step))
        checkpoint.point(self.folder, "latest", latest)

    def restore(self, saved: Checkpoint) -> TrainingState:
        """Load parameters, optimiser, schedule and metrics as a checkpoint has them; return its state.

        From a checkpoint of an earlier stage only parameters are taken (`pretraining.transfer_parameters`).
        """
        stored: dict[str, Any] = saved.state
        state = TrainingState.from_dict(stored)
        self.schedule.load_state_dict(stored["schedule"])
        if stored.get("stage", 1) == self.stage.number:
            self.model.load_state_dict(saved.model)
            checkpoint.unpack_optimiser(self.optimiser, saved.optim, stored["param_groups"])
        else:
            assert isinstance(self.model, SpeechModel)  # no other model has stages
            before = saved.config["model"]["listener"]["hidden_size"]
            transfer = pretraining.transfer_parameters(saved.model, self.model, before, self.stage.new_layers)
            progress.say(f"{self.stage.name} takes over from stage {stored['stage']}: {transfer}", self.log)
            state.validations = []
        self.run.forget_after(state.step)
        return state

    def go_back(self) -> TrainingState | None:
        """Restore the newest good checkpoint and return its state; None if there is none of this stage."""
        newest, _ = checkpoint.newest(self.folder)
        same = newest is not None and newest.state.get("stage", 1) == self.stage.number
        return self.restore(newest) if newest is not None and same else None


def reached(run: RunDirectory) -> tuple[int, int]:
    """Count the sub-epochs and the steps that are over in the newest good checkpoint of a run."""
    newest, _ = checkpoint.newest(run.directory / "checkpoints")
    if newest is None:
        return 0, 0
    return int(newest.state["schedule"].get("sub_epochs", 0)), int(newest.state["step"])


def prepare_extension(run: RunDirectory) -> None:
    """Make the checkpoints of a run fit to be continued for longer than it was planned.

    The checkpoint of an end within a sub-epoch moves to `finished/`, so that the sub-epoch is repeated: its validation
    ended it early, for the schedule too, which a training that was planned longer does not.

    Raises StorageError, before anything is changed, when torch or las are others than those the run began with.
    """
    folder = run.directory / "checkpoints"
    newest, _ = checkpoint.newest(folder)
    if newest is None:
        return
    recorded, allowed = newest.state["origin"], run.config["trainer"]["allow_drift"]
    current = run_directory.origin(recorded["vocabulary"]) | run_directory.own_packages(run.config)
    run_directory.require(recorded, recorded | current, allowed, run.directory)
    if not _ended_early(newest):
        return
    step = int(newest.state["step"])
    place = run.finished(step) / newest.directory.name
    place.parent.mkdir(parents=True, exist_ok=True)
    newest.directory.rename(place)
    before, _ = checkpoint.newest(folder)
    if before is None:
        place.rename(newest.directory)
        progress.say(f"the validation at step {step}, within a sub-epoch, stays: there is no earlier checkpoint")


def _ended_early(saved: Checkpoint) -> bool:
    """Return whether the last step of a checkpoint was validated only because it was to be the last one."""
    step, validations = saved.state["step"], saved.state["validations"]
    if not validations or validations[-1][0] != step:
        return False
    every = saved.config["trainer"].get("validate_every")
    return bool(saved.state.get("early_end") or (every is not None and step % every))


def convergence_verdict(validations: Sequence[DevResult], criterion: str) -> str:
    """Say how much better a training still became at its end, by the rule that tables of recipes go by."""
    values = [each.error if criterion == "dev_error" else each.loss for each in validations]
    gain = run_records.late_gain([each.step for each in validations], values)
    if gain is None or not math.isfinite(gain):  # checkpoints of earlier releases lack losses
        return "too few validations to tell whether it has converged"
    what = f"{criterion} became {100 * gain:.1f} % better over the last fifth of the steps"
    return f"converged: {what}" if gain < run_records.STILL else f"not converged: {what}"


def summary(validations: Sequence[DevResult], selection: Selection) -> dict[str, Any]:
    """Entries of result.json about the validations: steps to converge, the choice of each criterion, the end.

    A run has converged at the step of the best dev error, the earliest of equal ones, or at the first step whose dev
    error is within 1 % (relative) of it; the two differ by the tail of small improvements.
    """
    least = min(validations, key=lambda each: (each.error, each.step))
    choices = {each: selection._replace(criterion=each).best(validations) for each in CRITERIA}
    return {
        "steps_to_converge": least.step,
        "steps_to_within_one_percent": next(each.step for each in validations if each.error <= 1.01 * least.error),
        "select": selection.criterion,
        "best_step": choices[selection.criterion].step,
        "choices": {name: choice.to_dict() for name, choice in choices.items()},
        "last": validations[-1].to_dict(),
    }
