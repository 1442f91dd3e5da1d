"""The training loop.

The order of the data is a function of (manifest hash, seed, epoch) and every draw one of (seed, step, process), so that
a run that was stopped continues as if it had not been. An epoch is cut into sub-epochs, each of which ends in a
validation and a checkpoint.
"""

import functools
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from las.data import loader
from las.data.corpora.base import Corpus
from las.data.manifest import Utterance
from las.nn import scheduled
from las.runtime import devices, distributed, progress, signals
from las.runtime.errors import NumericalError, first_of
from las.storage import run_directory
from las.storage.run_directory import RunDirectory
from las.training import data_preparation, schedules, warm_start
from las.training.chance import ChanceLevel
from las.training.checkpointing import Checkpointer, DevResult, Selection, TrainingState
from las.training.pretraining import Stage
from las.training.setup import TrainingParts
from las.training.step import StepResult
from las.training.tasks.base import TrainingTargets, Validation, Validator

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

NOT_FINITE_WINDOW, NOT_FINITE_LIMIT = 100, 10
"""Training goes back when NOT_FINITE_LIMIT of NOT_FINITE_WINDOW updates were left out because they are not finite."""


class TrainingData(NamedTuple):
    """Utterances of one stage of a training."""

    corpus: Corpus
    """Gives tokens, sample rate and the scored form of texts."""
    train: Sequence[Utterance]
    """Without those that cannot be used, or not in this stage."""
    manifest_hash: str
    """Hash of all training utterances, of every stage: their order comes from it."""
    targets: TrainingTargets
    """Targets of training and dev utterances: of a tokenizer, or labels of frames."""


class Update(NamedTuple):
    """An update that was started."""

    step: int
    epoch: int
    rate: float
    """The learning rate."""
    ids: list[str]
    """Of its utterances."""
    result: Callable[[], StepResult]
    """Waits for its loss and the norm of its gradient."""


class Trainer:
    """Trains a model until it stops getting better, or its stage is over.

    Args:
        parts: finished parts, the model on its device.
        stage: the whole training, or a stage of pretraining.
        data: the utterances to train on.
        run: the run directory.
        validator: validates the model on the dev utterances.
        chance: scores of guessing by the texts of the training utterances.
    """

    def __init__(
        self,
        parts: TrainingParts,
        stage: Stage,
        data: TrainingData,
        run: RunDirectory,
        validator: Validator,
        chance: ChanceLevel,
    ) -> None:
        self.parts, self.options, self.stage, self.data = parts, parts.options, stage, data
        self.run, self.log, self.validator, self.chance = run, run.directory / "log.txt", validator, chance
        self.model, self.schedule, self.corpus = parts.model, parts.schedule, data.corpus
        self.state = TrainingState(utterances=len(data.train))
        self.optimiser = parts.optim(parts.model.parameters())
        self.base_rates = [group["lr"] for group in self.optimiser.param_groups]
        self.training_step = parts.training_step(self.optimiser)
        self.started: deque[Update] = deque()
        """Updates whose results were not read."""
        source, workers = data.targets.source, devices.reading_workers(self.options.num_workers)
        on_gpu = parts.model.device.type == "cuda"
        self.loader = loader.Loader(
            data.train, source, self.corpus.sample_rate, workers, augment=parts.augment, pin_memory=on_gpu
        )
        self.selection = Selection(self.options.select, chance.error)
        self.checkpointer = self._checkpointer()
        self.signals = signals.Signals()
        self.progress = progress.TrainingProgress(self.options.max_steps, self.log)
        self.board: SummaryWriter | None = None

    def _checkpointer(self) -> Checkpointer:
        data, tokens = self.data, self.corpus.tokens
        recognition = {
            "tokens": tokens.state(),
            "sample_rate": self.corpus.sample_rate,
            "metric": self.validator.metric,
            **data.targets.state,
        }
        origin = {
            "seed": self.parts.seed,
            "manifest_hash": data.manifest_hash,
            **run_directory.origin(tokens.vocabulary_hash),
            **run_directory.own_packages(self.run.config),
            **data.targets.origin,
        }
        changed, drift = (self.model, self.optimiser, self.schedule), list(self.options.allow_drift)
        keep = self.options.keep_checkpoints
        return Checkpointer(self.stage, *changed, recognition, self.run, origin, keep, drift, self.selection)

    def fit(self) -> None:
        """Train from the newest checkpoint of the run directory, if there is one, to the end of the stage.

        Raises NumericalError when the training is broken, Interrupted when a signal asked to stop, StorageError when
        the disk has refused every checkpoint.
        """
        from torch.utils.tensorboard import SummaryWriter

        self._enter(self.checkpointer.resume())
        if self.run.extension:
            progress.say(schedules.describe_extension(self.run.extension, self._rate, self.state.step), self.log)
        if not self.state.step:
            self._set_initial_values()
        distributed.broadcast_parameters(self.model)
        self.progress.first_step = self.state.step
        if distributed.is_main():
            self.board = SummaryWriter(self.run.directory / "tensorboard", purge_step=self.state.step + 1)
        try:
            with devices.garbage_frozen(), self.signals, self.progress:
                self._make_up_validation()
                while not self.ending():
                    self._epoch()
        finally:
            if self.board is not None:
                self.board.close()
        self.checkpointer.require_saved()

    def _set_initial_values(self) -> None:
        """Take over parameters from a trained model, if the training is to, and fit the statistics of the features."""
        start = self.parts.warm_start
        if start.source is not None:
            warm_start.show(start, start.apply(self.model, self.corpus.tokens, self.data.targets.state), self.run)
        if start.statistics == "corpus" and self.model.features is not None:
            data_preparation.fit_features(self.model.features, self.data.train, self.corpus, self.parts.batch_size)
        self.parts.task.fit(self.model, self.corpus, self.data.train, self.data.targets.source)

    def ending(self) -> str:
        """Return the rule that ends the training where it stands, in words; empty if none does."""
        validations = self.state.validations
        since_best = len(validations) - 1 - validations.index(self.selection.best(validations)) if validations else 0
        if since_best >= self.options.patience:
            return f"ended after {since_best} validations without a better one (trainer.patience)"
        if self.state.step >= self.options.max_steps:
            return "ended at trainer.max_steps"
        return "ended at the last sub-epoch" if self.schedule.sub_epochs >= self._last_sub_epoch else ""

    @property
    def _last_sub_epoch(self) -> float:
        return float(min(self.stage.until, self.options.max_sub_epochs or self.stage.until))

    def _last_step(self, num_batches: int) -> int:
        """Return the step that training ends at, at the latest, where epochs have `num_batches`."""
        length = self.options.validate_every
        if length is None:
            assert self.options.sub_epochs is not None
            length = math.ceil(num_batches / self.options.accumulate / self.options.sub_epochs)
        remaining = (self._last_sub_epoch - self.schedule.sub_epochs) * length
        return int(min(self.options.max_steps, self.state.step + remaining))

    def _epoch(self) -> None:
        """Train for the rest of the current epoch, or up to where training ends or goes back."""
        seed, size = self.parts.seed, self.parts.batch_size
        plan = self.parts.order.plan(self.data.train, self.data.manifest_hash, seed, self.state.epoch, size)
        self.progress.expect(self._last_step(len(plan)))
        share = [distributed.share(batch) for batch in plan]
        key_of = functools.partial(loader.augmentation_seed, seed, self.state.epoch)
        waiting: list[loader.Batch] = []
        for index, batch in self.loader.batches(share, self.state.next_batch, key_of):
            waiting.append(batch.to(self.model.device))
            if len(waiting) < self.options.accumulate and index + 1 < len(plan):
                continue
            ids = [self.data.train[number].id for each in plan[self.state.next_batch : index + 1] for number in each]
            update, waiting = self._start_update(waiting, ids), []
            ends = self._ends_sub_epoch(self.state.next_batch, index + 1, len(plan))
            self.state.next_batch = index + 1
            stops = ends or self.state.step == self.options.max_steps
            # Where a GPU computes, the result of an update is read once the next one was started.
            if self._read_updates(1 if self.training_step.reads_later and not stops else 0):
                return
            if stops:
                self.state.early_end = not ends
                self._validate(update.result().loss)
            self._answer_signals()
            if self.ending():
                return
        self.state.epoch, self.state.next_batch = self.state.epoch + 1, 0

    def _ends_sub_epoch(self, before: int, after: int, total: int) -> bool:
        """Tell whether an update that took the batches from `before` to `after` of `total` ends a sub-epoch."""
        if self.options.validate_every is not None:
            return self.state.step % self.options.validate_every == 0
        sub_epochs = self.options.sub_epochs
        assert sub_epochs is not None
        return before * sub_epochs // total < after * sub_epochs // total

    def _factor(self, step: int) -> float:
        return self.state.rate_scale * self.schedule.factor(step)

    def _rate(self, step: int) -> float:
        """Learning rate at a step, by the schedule as it stands now."""
        return self.base_rates[0] * self._factor(step)

    def _start_update(self, waiting: list[loader.Batch], ids: list[str]) -> Update:
        self.state.step += 1
        for group, rate in zip(self.optimiser.param_groups, self.base_rates, strict=True):
            group["lr"] = rate * self._factor(self.state.step)
        self.parts.warm_start.set_trainable(self.model, self.state.step, self.log)
        scheduled.update_scheduled_values((self.model, self.parts.loss), self.state.step, self.schedule.sub_epochs + 1)
        rate, result = self.optimiser.param_groups[0]["lr"], self.training_step.start(waiting, self.state.step)
        self.started.append(Update(self.state.step, self.state.epoch, rate, ids, result))
        return self.started[-1]

    def _read_updates(self, left: int) -> bool:
        """Read and record the results of all updates but the last `left`; return True if the training went back."""
        while len(self.started) > left:
            update = self.started.popleft()
            result = update.result()
            if not result.finite and self._goes_back(update, result):
                self.started.clear()
                return True
            self._record(update, result)
        return False

    def _record(self, update: Update, result: StepResult) -> None:
        """Write an update to the progress bar, metrics.jsonl and TensorBoard."""
        self.progress.update(update.epoch + 1, update.step, result.loss, len(update.ids))
        if not result.finite:
            return
        values = {"loss": result.loss, "gradient_norm": result.norm, "learning_rate": update.rate}
        self.run.record(event="train", step=update.step, **values)
        self._plot("train", values, update.step)

    def _plot(self, group: str, values: Mapping[str, float], step: int) -> None:
        if self.board is not None:
            for name, value in values.items():
                self.board.add_scalar(f"{group}/{name}", value, step)

    def _goes_back(self, update: Update, result: StepResult) -> bool:
        """Record an update that was left out. After too many of them, go back once, with half the learning rate."""
        reason = f"the loss is {result.loss} and the gradient's norm {result.norm}"
        self.progress.say(f"step {update.step}: {reason}, on {first_of(update.ids, 20)}. This update was left out")
        self.run.record(event="left out", step=update.step, reason=reason, utterances=update.ids)
        recent = [step for step in self.state.not_finite if step > update.step - NOT_FINITE_WINDOW]
        self.state.not_finite = [*recent, update.step]
        if len(self.state.not_finite) < NOT_FINITE_LIMIT:
            return False
        before = self.checkpointer.go_back() if self.state.rate_scale == 1.0 else None
        if before is None:
            raise NumericalError(
                f"{len(self.state.not_finite)} of the last {NOT_FINITE_WINDOW} updates were not finite; in the last "
                f"one {reason}. The parameters in {self.checkpointer.folder} are finite. Try a lower optim.lr or a "
                "longer warm-up under another name=..."
            )
        self._enter(before)
        self.state.rate_scale, self.state.not_finite = 0.5, []
        self.progress.say(
            f"{NOT_FINITE_LIMIT} of {NOT_FINITE_WINDOW} updates were not finite: back to step {self.state.step}, with "
            "half the learning rate"
        )
        return True

    def _answer_signals(self) -> None:
        """Save and stop if any process received a signal."""
        if not any(distributed.any_of(self.signals.received is not None)):
            return
        self._read_updates(0)
        code = max(distributed.gather(self.signals.exit_code if self.signals.received else 0))
        self._save()
        again = signals.requeue() if code == signals.REQUEUE and distributed.is_main() else ""
        saved = f"stopped by a signal at step {self.state.step}, which is saved: the same command continues from there"
        raise signals.Interrupted(f"{saved}. {again}" if again else saved, code)

    def _make_up_validation(self) -> None:
        """Repeat a validation that a signal broke off, unless it was to be the last of a run that is now longer."""
        loss, self.state.unvalidated = self.state.unvalidated, None
        if loss is not None and not (self.state.early_end and self.state.step < self.options.max_steps):
            self._validate(loss)
            self._answer_signals()

    def _validate(self, train_loss: float) -> None:
        """Validate, tell the schedule, log the result and save a checkpoint, unless a signal breaks it off."""
        validation, state = self.validator(self.signals), self.state
        if validation is None:
            state.unvalidated = train_loss
            return
        if not math.isfinite(validation.loss):
            raise NumericalError(
                f"the dev loss at step {state.step} is {validation.loss}: the training has diverged. Try a lower "
                "optim.lr or a longer schedule.warmup_steps under another name=..."
            )
        self.schedule.validated(validation.objective)
        state.validations.append(DevResult(state.step, validation.error, validation.loss))
        improved = self.selection.best(state.validations) is state.validations[-1]
        self.progress.dev = f"dev {self.validator.format_error(validation.error)}"
        self.progress.say(
            f"{self.progress.line(state.epoch + 1, state.step, train_loss)} | dev loss {validation.loss:.3f}"
            f"{' | best so far' if improved else ''}"
        )
        self.progress.say(f"  {self.validator.describe(validation)}")
        self.run.record(
            event="validation",
            step=state.step,
            metric=self.validator.metric,
            dev_loss=validation.loss,
            dev_error=validation.error,
            token_accuracy=validation.token_accuracy,
            alignment=validation.alignment and validation.alignment._asdict(),
        )
        self._plot("dev", {"loss": validation.loss, self.validator.metric: validation.error}, state.step)
        self._plot("attention", validation.alignment._asdict() if validation.alignment else {}, state.step)
        if self.board is not None:
            options = self.options
            self.validator.log_images(self.board, self.run, state.step, options.histograms, options.attention_pictures)
        self._save()
        self._require_learning(validation)

    def _require_learning(self, validation: Validation) -> None:
        by_chance = self.chance.token_accuracy
        if self.state.epoch >= self.options.broken_after_epochs and validation.token_accuracy <= by_chance:
            raise NumericalError(
                f"after {self.state.epoch} epochs {100 * validation.token_accuracy:.1f} % of the dev tokens are right, "
                f"the true ones before them fed, and {100 * by_chance:.1f} % are by chance: the model is not "
                f"learning. {self.validator.describe(validation)}. Try a lower optim.lr or a longer "
                "schedule.warmup_steps under another name=..."
            )

    def _save(self) -> None:
        self.state.micro_batch_size = self.training_step.micro_batch_size
        self.checkpointer.save(self.state)
        distributed.wait()  # else another process could end, and torchrun with it, while the main one writes

    def _enter(self, state: TrainingState | None) -> None:
        """Continue from a state that was read; None leaves the training where it stands."""
        distributed.require_same("checkpoint", state and state.step)
        if state is None:
            return
        self.state, self.training_step.micro_batch_size = state, state.micro_batch_size
        num_utterances = len(self.data.train)
        if state.utterances not in (None, num_utterances):  # other ones than in the stage before: a new epoch
            state.epoch, state.next_batch = state.epoch + 1, 0
        state.utterances = num_utterances
