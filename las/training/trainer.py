"""The training loop: reads top to bottom from the first batch to the best checkpoint.

The order of the data is a function of (manifest hash, seed, epoch) and every draw one of (seed, step, process), so that
a run that was stopped continues as if it had not been. An epoch is cut into sub-epochs, each of which ends in a
validation and a checkpoint.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from las.data import loader
from las.data.augmentation import Augment
from las.data.corpora.base import Corpus
from las.data.manifest import Utterance
from las.data.sampler import Order, Size
from las.decoding.evaluation import Search
from las.nn import scheduled
from las.nn.losses import LabelSmoothedCrossEntropy
from las.nn.model import ListenAttendSpell
from las.runtime import config, devices, distributed, progress, signals
from las.runtime.errors import ConfigError, NumericalError, suggest
from las.storage.run_directory import Run
from las.training import data_preparation
from las.training.checkpointing import Convergence, Keeper, Standing, convergence
from las.training.gradients import Gradients
from las.training.pretraining import Stage
from las.training.schedules import Schedule
from las.training.step import PRECISIONS, Trainable, Update, Updates
from las.training.validation import AnyValidator, Validation, Validator
from las.training.weight_noise import WeightNoise

NOT_FINITE_WINDOW, NOT_FINITE_MOST = 100, 10
"""So many updates of so many steps may be left out because they are not finite before training goes back."""
BROKEN_ERROR = 0.9
"""Of the dev tokens, with the true ones before them fed: above it nothing was learned."""
AT_LEAST_ONE = (
    *("max_steps", "batch_size", "accumulate", "validate_every", "sub_epochs"),
    *("patience", "keep_checkpoints", "threads"),
)
"""Settings that count something of which there is one at least."""


class Parts(NamedTuple):
    """What a training is made of; `optim` makes the optimiser from the parameters."""

    model: Trainable
    loss: LabelSmoothedCrossEntropy
    optim: Callable[[Any], torch.optim.Optimizer]
    schedule: Schedule
    gradients: Gradients
    weight_noise: WeightNoise
    augment: Augment
    order: Order
    search: Search
    validator: Callable[..., AnyValidator] = Validator


def require_settings(options: Mapping[str, Any]) -> None:
    """Raise ConfigError for settings of a trainer, by key, without sense: before anything is read there is none yet."""
    for key in AT_LEAST_ONE:
        config.require(f"trainer.{key}", options[key], 1)
    for key in ("num_workers", "broken_after_epochs"):
        config.require(f"trainer.{key}", options[key], 0)
    if options["max_batch_s"] is not None and options["max_batch_s"] <= 0:
        raise ConfigError(f"trainer.max_batch_s={options['max_batch_s']} must be above 0, or null for no limit")
    if (options["validate_every"] is None) == (options["sub_epochs"] is None):
        raise ConfigError("give trainer.validate_every (steps) or trainer.sub_epochs (of an epoch), the other null")
    if options["precision"] not in PRECISIONS:
        suggested = suggest(options["precision"], PRECISIONS)
        raise ConfigError(f"trainer.precision={options['precision']} does not exist.{suggested}")
    devices.check_threads("trainer.threads", options["threads"])


class Trainer:
    """Trains a model until it stops getting better, or its stage is over.

    Args:
        parts: finished, the model on its device.
        stage: what is trained: all of it, or a part of pretraining.
        corpus: for tokens, sample rate and the scored form of texts.
        train, dev: utterances; train without those that cannot be used, or not in this stage.
        manifest_hash: of all training utterances: their order comes from it.
        run: the run folder.
        seed: of the data order and of all draws (the caller has seeded the model's parameters).
        max_steps: updates at most.
        batch_size: utterances of a batch at most, over all processes.
        max_batch_s: seconds of a batch with padding at most, None for no limit.
        accumulate: batches of one update.
        validate_every: steps of a sub-epoch; or
        sub_epochs: sub-epochs of an epoch. One of the two is None.
        patience: validations without a better dev error before training stops.
        broken_after_epochs: a dev token error above 90 % after so many epochs ends the training as broken.
        keep_checkpoints: newest checkpoints kept besides the best.
        allow_drift: what may have changed since the run began (`las.storage.run_directory`).
        num_workers: threads that read audio ahead, each with a process for it (`las.data.audio.worker_pool`).
        threads: CPU threads of one operation of torch, None as `devices.threads` says.
        precision: `fp32` or `bf16`.
        histograms, attention_pictures: whether validations leave them.
    """

    def __init__(
        self,
        parts: Parts,
        stage: Stage,
        corpus: Corpus,
        train: Sequence[Utterance],
        dev: Sequence[Utterance],
        manifest_hash: str,
        run: Run,
        seed: int,
        *,
        max_steps: int,
        batch_size: int,
        max_batch_s: float | None,
        accumulate: int,
        validate_every: int | None,
        sub_epochs: int | None,
        patience: int,
        broken_after_epochs: int,
        keep_checkpoints: int,
        allow_drift: Sequence[str],
        num_workers: int,
        threads: int | None,
        precision: str,
        histograms: bool,
        attention_pictures: bool,
    ) -> None:
        torch.set_num_threads(devices.threads(threads))
        self.parts, self.stage, self.model, self.schedule = parts, stage, parts.model, parts.schedule
        self.optimiser = parts.optim(parts.model.parameters())
        self.base_rates = [group["lr"] for group in self.optimiser.param_groups]
        self.updates = Updates(
            parts.model, parts.loss, self.optimiser, parts.gradients, parts.weight_noise, parts.augment, seed, precision
        )
        self.corpus, self.train, self.dev, self.run, self.seed = corpus, train, dev, run, seed
        self.size, self.accumulate, self.max_steps = Size(batch_size, max_batch_s), accumulate, max_steps
        self.validate_every, self.sub_epochs = validate_every, sub_epochs
        self.patience, self.broken_after_epochs = patience, broken_after_epochs
        self.loader = loader.Loader(train, corpus.tokens, corpus.sample_rate, num_workers, augment=parts.augment)
        self.validator = parts.validator(parts.model, parts.loss, parts.search, corpus, dev, self.size, num_workers)
        self.histograms, self.attention_pictures = histograms, attention_pictures
        self.manifest_hash, self.log = manifest_hash, run.directory / "log.txt"
        self.at, changing = Standing(utterances=len(train)), (stage, parts.model, self.optimiser, parts.schedule)
        self.keeper = Keeper(*changing, corpus, run, seed, manifest_hash, keep_checkpoints, list(allow_drift))

    def fit(self) -> Convergence:
        """Train from where the run folder stands to the end of the stage.

        Raises NumericalError when the training is broken, Interrupted when a signal asked to stop, StorageError when
        the disk has refused every checkpoint.
        """
        from torch.utils.tensorboard import SummaryWriter

        self._enter(self.keeper.resume())
        if not self.at.step and isinstance(self.model, ListenAttendSpell):
            data_preparation.fit_features(self.model.features, self.train, self.corpus, self.size)
        distributed.share(self.model)
        place = str(self.run.directory / "tensorboard")
        self.board = SummaryWriter(place, purge_step=self.at.step + 1) if distributed.is_main() else None
        try:
            with (
                signals.Signals() as self.signals,
                progress.TrainingProgress(self.max_steps, self.log, self.at.step) as self.progress,
            ):
                while not self._finished():
                    self._epoch()
        finally:
            if self.board is not None:
                self.board.close()
        self.keeper.require_saved()
        return convergence(self.at.validations)

    def _finished(self) -> bool:
        best_step = convergence(self.at.validations).best_step if self.at.validations else 0
        since_best = sum(step > best_step for step, _ in self.at.validations)
        ended = self.at.step >= self.max_steps or self.schedule.sub_epochs >= self.stage.until
        return ended or (bool(self.at.validations) and since_best >= self.patience)

    def _epoch(self) -> None:
        """The rest of the current epoch, or up to where training ends or goes back."""
        plan = self.parts.order.plan(self.train, self.manifest_hash, self.seed, self.at.epoch, self.size)
        share = [batch[distributed.rank() :: distributed.world_size()] for batch in plan]
        key_of = functools.partial(loader.key, self.seed, self.at.epoch)
        waiting: list[loader.Batch] = []
        for index, batch in self.loader.batches(share, self.at.next_batch, key_of):
            waiting.append(batch.to(self.model.device))
            if len(waiting) < self.accumulate and index + 1 < len(plan):
                continue
            ids = [self.train[at].id for each in plan[self.at.next_batch : index + 1] for at in each]
            update, waiting = self._update(waiting), []
            ends = self._ends_sub_epoch(self.at.next_batch, index + 1, len(plan))
            self.at.next_batch = index + 1
            if not update.finite and self._goes_back(update, ids):
                return
            self._note(update, len(ids))
            if ends or self.at.step == self.max_steps:
                self._validate(update.loss)
            self._answer_signals()
            if self._finished():
                return
        self.at.epoch, self.at.next_batch = self.at.epoch + 1, 0

    def _ends_sub_epoch(self, before: int, after: int, total: int) -> bool:
        """Whether an update that took the batches from `before` to `after` of `total` ends a sub-epoch."""
        if self.validate_every is not None:
            return self.at.step % self.validate_every == 0
        assert self.sub_epochs is not None
        return before * self.sub_epochs // total < after * self.sub_epochs // total

    def _update(self, waiting: list[loader.Batch]) -> Update:
        self.at.step += 1
        factor = self.at.rate_scale * self.schedule.factor(self.at.step)
        for group, rate in zip(self.optimiser.param_groups, self.base_rates, strict=True):
            group["lr"] = rate * factor
        scheduled.move((self.model, self.parts.loss), self.at.step, self.schedule.sub_epochs + 1)
        return self.updates(waiting, self.at.step)

    def _note(self, update: Update, num_utterances: int) -> None:
        self.progress.update(self.at.epoch + 1, self.at.step, update.loss, num_utterances)
        if not update.finite:
            return
        rate = self.optimiser.param_groups[0]["lr"]
        values = {"loss": update.loss, "gradient_norm": update.norm, "learning_rate": rate}
        self.run.record(event="train", step=self.at.step, **values)
        self._plot("train", values)

    def _plot(self, group: str, values: Mapping[str, float]) -> None:
        if self.board is not None:
            for name, value in values.items():
                self.board.add_scalar(f"{group}/{name}", value, self.at.step)

    def _goes_back(self, update: Update, ids: Sequence[str]) -> bool:
        """After an update that was left out. With too many of them training goes back once, with half the rate."""
        what = f"the loss is {update.loss} and the gradient's norm {update.norm}"
        listed = ", ".join(ids[:20]) + (f" and {len(ids) - 20} others" if len(ids) > 20 else "")
        self.progress.say(f"step {self.at.step}: {what}, on {listed}. This update was left out")
        self.run.record(event="left out", step=self.at.step, reason=what, utterances=list(ids))
        recent = [step for step in self.at.not_finite if step > self.at.step - NOT_FINITE_WINDOW]
        self.at.not_finite = [*recent, self.at.step]
        if len(self.at.not_finite) < NOT_FINITE_MOST:
            return False
        before = self.keeper.go_back() if self.at.rate_scale == 1.0 else None
        if before is None:
            raise NumericalError(
                f"{len(self.at.not_finite)} of the last {NOT_FINITE_WINDOW} updates were not finite; in the last one "
                f"{what}. The parameters in {self.keeper.folder} are finite. Try a lower optim.lr or a longer warm-up "
                f"under another name=..."
            )
        self._enter(before)
        self.at.rate_scale, self.at.not_finite = 0.5, []
        self.progress.say(
            f"{NOT_FINITE_MOST} of {NOT_FINITE_WINDOW} updates were not finite: back to step {self.at.step}, with half "
            "the learning rate"
        )
        return True

    def _answer_signals(self) -> None:
        """Save and stop if any process received a signal."""
        if not any(distributed.any_of(self.signals.received is not None)):
            return
        code = max(distributed.gather(self.signals.exit_code if self.signals.received else 0))
        self._save()
        again = signals.requeue() if code == signals.REQUEUE and distributed.is_main() else ""
        saved = f"stopped by a signal at step {self.at.step}, which is saved: the same command continues from there"
        raise signals.Interrupted(f"{saved}. {again}" if again else saved, code)

    def _validate(self, train_loss: float) -> None:
        """Dev loss and decoded dev error, what they mean for the schedule, and a checkpoint."""
        found = self.validator()
        self.schedule.validated(found.loss)
        improved = not self.at.validations or found.error < min(before for _, before in self.at.validations)
        self.at.validations.append((self.at.step, found.error))
        self.progress.dev = f"dev {self.validator.shown(found)}"
        self.progress.say(
            f"{self.progress.line(self.at.epoch + 1, self.at.step, train_loss)} | dev loss {found.loss:.3f}"
            f"{' | best so far' if improved else ''}"
        )
        self.progress.say(f"  {self.validator.remark(found)}")
        self.run.record(
            event="validation",
            step=self.at.step,
            dev_loss=found.loss,
            dev_error=found.error,
            token_accuracy=found.token_accuracy,
            alignment=found.alignment and found.alignment._asdict(),
        )
        self._plot("dev", {"loss": found.loss, self.corpus.metric: found.error})
        self._plot("attention", found.alignment._asdict() if found.alignment else {})
        if self.board is not None:
            self.validator.pictures(self.board, self.run, self.at.step, self.histograms, self.attention_pictures)
        self._save()
        self._require_learning(found)

    def _require_learning(self, found: Validation) -> None:
        if self.at.epoch >= self.broken_after_epochs and 1.0 - found.token_accuracy > BROKEN_ERROR:
            raise NumericalError(
                f"after {self.at.epoch} epochs {100 * (1 - found.token_accuracy):.0f} % of the dev tokens are wrong "
                f"although the true ones before them are fed: this training is broken. {self.validator.remark(found)}"
            )

    def _save(self) -> None:
        self.at.most = self.updates.most
        self.keeper.save(self.at)
        distributed.wait()  # else another process could end, and torchrun with it, while the main one writes

    def _enter(self, standing: Standing | None) -> None:
        distributed.require_same("checkpoint", standing and standing.step)
        if standing is None:
            return
        self.at, self.updates.most = standing, standing.most
        if standing.utterances not in (None, len(self.train)):  # other ones than in the stage before: a new epoch
            self.at.epoch, self.at.next_batch = standing.epoch + 1, 0
        self.at.utterances = len(self.train)
