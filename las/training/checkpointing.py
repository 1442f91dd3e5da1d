"""Where a training stands, and how it gets from a process to the disk and back.

When a training was as good as it got.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch

from las.data.corpora.base import Corpus
from las.nn.model import ListenAttendSpell
from las.runtime import distributed, progress
from las.runtime.errors import StorageError
from las.storage import checkpoint, run_directory
from las.storage.checkpoint import Checkpoint
from las.storage.run_directory import RunDirectory
from las.training import pretraining
from las.training.pretraining import Stage
from las.training.schedules import Schedule
from las.training.step import Trainable

FAILED_SAVES = 3
"""Checkpoints in a row that the disk may refuse before training stops."""


@dataclass
class TrainingState:
    """Where a training stands, as plain values."""

    step: int = 0
    epoch: int = 0
    next_batch: int = 0
    utterances: int | None = None
    """Of how many the batches of this epoch are planned."""
    validations: list[tuple[int, float]] = field(default_factory=list)
    """(step, dev error) pairs of the stage."""
    not_finite: list[int] = field(default_factory=list)
    """The latest steps whose update was left out."""
    rate_scale: float = 1.0
    """Of the learning rate: halved when training went back because too many updates were left out."""
    most: int | None = None
    """Utterances that fit into memory at once, once it ran out."""


class Checkpointer:
    """Saves a training and restores it.

    Args:
        stage: what is trained; a checkpoint of the stage before is what it begins with.
        model, optimiser, schedule: what changes during training, beside the standing.
        corpus, run, seed, manifest_hash: what the training is of; kept with it, and compared when it is continued.
        keep: newest checkpoints kept besides the best.
        allow_drift: what may have changed since the run began (`las.storage.run_directory`).
    """

    def __init__(
        self,
        stage: Stage,
        model: Trainable,
        optimiser: torch.optim.Optimizer,
        schedule: Schedule,
        corpus: Corpus,
        run: RunDirectory,
        seed: int,
        manifest_hash: str,
        keep: int,
        allow_drift: list[str],
    ) -> None:
        self.stage, self.model, self.optimiser, self.schedule = stage, model, optimiser, schedule
        self.corpus, self.run, self.keep = corpus, run, keep
        self.origin = {
            "seed": seed,
            "manifest_hash": manifest_hash,
            **run_directory.origin(corpus.tokens.vocabulary_hash),
        }
        self.allow_drift = allow_drift
        self.folder, self.log = run.directory / "checkpoints", run.directory / "log.txt"
        self.failed, self.refusal = 0, ""

    def save(self, standing: TrainingState) -> None:
        """Write a checkpoint, point to it and remove old ones; the main process does.

        A disk that refuses is named, and the next checkpoint tries again. Raises StorageError the third time in a row.
        """
        if not distributed.is_main():
            return
        optim, groups = checkpoint.pack_optimiser(self.optimiser)
        state = dataclasses.asdict(standing) | {
            "origin": self.origin,
            "stage": self.stage.number,
            "schedule": self.schedule.state_dict(),
            "param_groups": groups,
            "corpus": {
                "tokens": self.corpus.tokens.state(),
                "sample_rate": self.corpus.sample_rate,
                "metric": self.corpus.metric,
            },
        }
        try:
            config = self.stage.config
            saved = checkpoint.save(self.folder, standing.step, self.model.state_dict(), optim, state, config)
            self._point(saved, standing)
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
        """Continue from the newest good checkpoint; None if there has never been one.

        Raises StorageError when none can be read, or when what the training is of has changed.
        """
        found, damaged = checkpoint.newest(self.folder)
        if found is None and damaged:
            for each in damaged:
                progress.say(each.reason, self.log)
            raise StorageError(
                f"{self.folder}: none of its checkpoints can be read, so this run cannot be continued. Train it again "
                f"under another name: name={self.run.config['name']}_2"
            )
        if found is None:
            self.run.forget_after(0)
            return None
        if damaged:
            progress.say(checkpoint.fallback_message(damaged, found), self.log)
        for line in run_directory.require(found.state["origin"], self.origin, self.allow_drift, self.run.directory):
            progress.say(line, self.log)
        standing = self.restore(found)
        if distributed.is_main():
            self._point(found.directory, standing)
            if not damaged:  # else the newest directories are not the newest good ones
                checkpoint.prune(self.folder, self.keep)
        progress.say(
            f"resuming at step {standing.step} (epoch {standing.epoch + 1}, batch {standing.next_batch}), checkpoint "
            "verified",
            self.log,
        )
        return standing

    def _point(self, latest: Path, standing: TrainingState) -> None:
        """Both pointers, whatever they said: a process may have been killed before it came to them.

        The best is that of the validations whose checkpoints are there: the disk may have refused one.
        """
        kept = [each for each in standing.validations if checkpoint.directory(self.folder, each[0]).exists()]
        if kept:
            checkpoint.point(self.folder, "best", checkpoint.directory(self.folder, convergence(kept).best_step))
        checkpoint.point(self.folder, "latest", latest)

    def restore(self, found: Checkpoint) -> TrainingState:
        """Parameters, optimiser, schedule and metrics as they were; what else stood there.

        A checkpoint of an earlier stage gives what `pretraining.carry` takes of its parameters, and no optimiser.
        """
        state: dict[str, Any] = found.state
        validations = [(int(step), float(error)) for step, error in state["validations"]]
        known = {each.name: state[each.name] for each in dataclasses.fields(TrainingState) if each.name in state}
        standing = TrainingState(**known | {"validations": validations})
        self.schedule.load_state_dict(state["schedule"])
        if state.get("stage", 1) == self.stage.number:
            self.model.load_state_dict(found.model)
            checkpoint.unpack_optimiser(self.optimiser, found.optim, state["param_groups"])
        else:
            assert isinstance(self.model, ListenAttendSpell)  # no other model has stages
            before = found.config["model"]["listener"]["hidden_size"]
            carried = pretraining.carry(found.model, self.model, before, self.stage.new_layers)
            progress.say(f"{self.stage.name} takes over from stage {state['stage']}: {carried}", self.log)
            standing.validations = []
        self.run.forget_after(standing.step)
        return standing

    def go_back(self) -> TrainingState | None:
        """What `restore` gives for the newest good checkpoint, if there is one of this stage."""
        found, _ = checkpoint.newest(self.folder)
        same = found is not None and found.state.get("stage", 1) == self.stage.number
        return self.restore(found) if found is not None and same else None


def reached(run: RunDirectory) -> tuple[int, int]:
    """The sub-epochs and steps that are over in the newest good checkpoint of a run."""
    found, _ = checkpoint.newest(run.directory / "checkpoints")
    if found is None:
        return 0, 0
    return int(found.state["schedule"].get("sub_epochs", 0)), int(found.state["step"])


class Convergence(NamedTuple):
    """When a run was as good as it got, in updates. The two definitions differ by the tail of small improvements."""

    best_step: int
    """The step of the best dev error."""
    within_one_percent_step: int
    """The first step whose dev error is within 1 % (relative) of it."""
    best_dev_error: float


def convergence(validations: Sequence[tuple[int, float]]) -> Convergence:
    """Steps to converge from (step, dev error) pairs in order; the earliest of equal errors counts."""
    best_step, best_error = min(validations, key=lambda pair: (pair[1], pair[0]))
    within = next(step for step, error in validations if error <= 1.01 * best_error)
    return Convergence(best_step, within, best_error)
