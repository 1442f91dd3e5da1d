"""Options of a training: the section `trainer` of the config."""

from collections.abc import Sequence
from dataclasses import dataclass

from las.config import build
from las.runtime import devices
from las.runtime.devices import PRECISIONS
from las.runtime.errors import ArgumentError, ConfigError, suggest
from las.training.selection import require_criterion

AT_LEAST_ONE = (
    *("max_steps", "max_sub_epochs", "batch_size", "accumulate", "validate_every", "sub_epochs"),
    *("patience", "keep_checkpoints", "threads"),
)
"""Options that count something of which there is one at least."""


@dataclass(frozen=True, kw_only=True)
class TrainerOptions:
    """Options of a trainer: the section `trainer` of the config without `max_bad_fraction` and `device`.

    Args:
        max_steps: updates at most.
        max_sub_epochs: sub-epochs at most, stages of pretraining included; None for no limit.
        batch_size: utterances of a batch at most, over all processes.
        max_batch_s: seconds of a batch with padding at most, None for no limit.
        accumulate: batches of one update.
        validate_every: steps of a sub-epoch; or
        sub_epochs: sub-epochs of an epoch. One of the two is None.
        select: the best checkpoint has the least `dev_error` or `dev_loss` (`las.training.selection`).
        patience: validations without a better one, by `select`, before training stops.
        broken_after_epochs: a teacher-forced dev token accuracy no better than by chance (`las.training.chance`) after
            so many epochs ends the training as broken.
        keep_checkpoints: newest checkpoints kept besides the best.
        allow_drift: what may have changed since the run began (`las.storage.run_directory`).
        num_workers: threads that read audio ahead, each with a process for it (`las.data.audio.worker_pool`); None: one
            for every two cores, one to four.
        threads: CPU threads of one operation of torch, None as `devices.threads` says.
        precision: `fp32` or `bf16`.
        tf32: TF32 operands for products of fp32 on a GPU (`devices.allow_tf32`).
        histograms: write histograms of the parameters at each validation.
        attention_pictures: draw the attention of one dev utterance at each validation.

    Raises ArgumentError or ConfigError naming the option whose value makes no sense.
    """

    max_steps: int
    batch_size: int
    max_batch_s: float | None
    accumulate: int
    validate_every: int | None
    sub_epochs: int | None
    select: str
    patience: int
    broken_after_epochs: int
    keep_checkpoints: int
    allow_drift: Sequence[str]
    num_workers: int | None
    threads: int | None
    precision: str
    tf32: bool
    histograms: bool
    attention_pictures: bool
    max_sub_epochs: int | None = None

    def __post_init__(self) -> None:
        for key in AT_LEAST_ONE:
            build.require(key, getattr(self, key), 1)
        for key in ("num_workers", "broken_after_epochs"):
            build.require(key, getattr(self, key), 0)
        if self.max_batch_s is not None and self.max_batch_s <= 0:
            raise ArgumentError(f"max_batch_s={self.max_batch_s} must be above 0, or null for no limit")
        if (self.validate_every is None) == (self.sub_epochs is None):
            raise ConfigError("give trainer.validate_every (steps) or trainer.sub_epochs (of an epoch), the other null")
        if self.precision not in PRECISIONS:
            raise ArgumentError(f"precision={self.precision} does not exist.{suggest(self.precision, PRECISIONS)}")
        require_criterion(self.select)
        devices.check_threads("trainer.threads", self.threads)
