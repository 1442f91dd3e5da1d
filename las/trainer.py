"""The training loop: reads top to bottom from the first batch to the best checkpoint.

The order of the data is a function of (manifest hash, seed, epoch) and every random state is in the checkpoint, so
that a run that was stopped continues as if it had not been.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from las import batches, checkpoint, devices, evaluation, manifest, progress, randomness, report
from las.augment import Augment
from las.corpora.base import Corpus
from las.errors import ConfigError, NumericalError, StorageError
from las.evaluation import Search
from las.loss import LabelSmoothedCrossEntropy
from las.manifest import Utterance
from las.model import ListenAttendSpell
from las.order import Buckets, Size, sequential
from las.run import Run
from las.schedule import Schedule
from las.scoring import error_rates


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


class Trainer:
    """Trains a model until it stops getting better.

    Args:
        model, loss, optim, schedule, augment, search: finished parts; `optim` makes the optimiser from the parameters.
        corpus: for tokens, sample rate and the scored form of texts.
        train, dev: utterances; train without those that cannot be used.
        run: the run folder.
        seed: of the data order (the caller has seeded the model's parameters).
        max_steps: updates at most.
        batch_size: utterances per update.
        validate_every: steps between validations; each ends in a checkpoint.
        patience: validations without a better dev error before training stops.
        clip_norm, clip_value: gradient clipping by the norm of the whole gradient and by entry, None for none.
        keep_checkpoints: newest checkpoints kept besides the best.
        num_workers: threads that read audio ahead.
        threads: CPU threads of one operation of torch. Steps of a recurrence are too small to share: with more than
            one they wait for each other, and for anything else that runs on the machine.
        device: cpu, cuda, or auto.
        histograms, attention_pictures: whether validations leave them.
    """

    def __init__(
        self,
        model: ListenAttendSpell,
        loss: LabelSmoothedCrossEntropy,
        optim: Callable[[Any], torch.optim.Optimizer],
        schedule: Schedule,
        augment: Augment,
        search: Search,
        corpus: Corpus,
        train: Sequence[Utterance],
        dev: Sequence[Utterance],
        run: Run,
        seed: int,
        *,
        max_steps: int,
        batch_size: int,
        validate_every: int,
        patience: int,
        clip_norm: float | None,
        clip_value: float | None,
        keep_checkpoints: int,
        num_workers: int,
        threads: int,
        device: str,
        histograms: bool,
        attention_pictures: bool,
    ) -> None:
        whole = {"max_steps": max_steps, "batch_size": batch_size, "validate_every": validate_every}
        whole |= {"patience": patience, "keep_checkpoints": keep_checkpoints}
        whole |= {"num_workers": num_workers, "threads": threads}
        for key, value in whole.items():
            least = 0 if key == "num_workers" else 1
            if value < least:
                raise ConfigError(f"trainer.{key}={value} must be at least {least}")
        torch.set_num_threads(threads)
        self.model = model.to(devices.pick(device))
        self.loss = loss
        self.optimiser = optim(model.parameters())
        self.base_rates = [group["lr"] for group in self.optimiser.param_groups]
        self.schedule, self.augment = schedule, augment
        self.search = search
        self.corpus = corpus
        self.train, self.dev = train, dev
        self.run, self.seed = run, seed
        self.max_steps, self.batch_size = max_steps, batch_size
        self.order, self.size = Buckets(), Size(batch_size)
        self.validate_every, self.patience = validate_every, patience
        self.clip_norm, self.clip_value = clip_norm, clip_value
        self.keep_checkpoints = keep_checkpoints
        self.histograms = histograms
        self.attention_pictures = attention_pictures and report.available()
        self.train_loader = batches.Loader(train, corpus.tokens, corpus.sample_rate, num_workers, augment=augment)
        spelled = batches.spellable(dev, corpus.tokens)
        self.dev_loader = batches.Loader(spelled, corpus.tokens, corpus.sample_rate, num_workers)
        self.manifest_hash = manifest.content_hash(train)
        self.log = run.directory / "log.txt"
        self.folder = run.directory / "checkpoints"
        self.step = self.epoch = self.next_batch = 0
        self.validations: list[tuple[int, float]] = []

    def fit(self) -> Convergence:
        """Train from where the run folder stands to the end. Raises NumericalError when the loss is not finite."""
        from torch.utils.tensorboard import SummaryWriter

        self._resume_or_prepare()
        self.board = SummaryWriter(str(self.run.directory / "tensorboard"), purge_step=self.step or None)
        try:
            with progress.TrainingProgress(self.max_steps, self.log, self.step) as self.progress:
                while not self._finished():
                    self._epoch()
        finally:
            self.board.close()
        return convergence(self.validations)

    def _finished(self) -> bool:
        best_step = convergence(self.validations).best_step if self.validations else 0
        since_best = sum(step > best_step for step, _ in self.validations)
        return self.step >= self.max_steps or (bool(self.validations) and since_best >= self.patience)

    def _epoch(self) -> None:
        """The rest of the current epoch, or up to the validation that ends the training."""
        order = self.order.plan(self.train, self.manifest_hash, self.seed, self.epoch, self.size)
        key_of = functools.partial(batches.key, self.seed, self.epoch)
        for index, batch in self.train_loader.batches(order, self.next_batch, key_of):
            loss, norm = self._update(batch.to(self.model.device))
            self.next_batch = index + 1
            self.progress.update(self.epoch + 1, self.step, loss, len(batch.ids))
            rate = self.optimiser.param_groups[0]["lr"]
            self.run.record(event="train", step=self.step, loss=loss, gradient_norm=norm, learning_rate=rate)
            self.board.add_scalar("train/loss", loss, self.step)
            self.board.add_scalar("train/gradient_norm", norm, self.step)
            self.board.add_scalar("train/learning_rate", rate, self.step)
            if self.step % self.validate_every == 0 or self.step == self.max_steps:
                self._validate(loss)
                if self._finished():
                    return
        self.epoch, self.next_batch = self.epoch + 1, 0

    def _update(self, batch: batches.Batch) -> tuple[float, float]:
        """One step of the optimiser on one batch; its mean loss per token and the gradient's norm before clipping."""
        self.step += 1
        factor = self.schedule.factor(self.step)
        for group, rate in zip(self.optimiser.param_groups, self.base_rates, strict=True):
            group["lr"] = rate * factor
        self.model.train()
        self.optimiser.zero_grad(set_to_none=True)
        change = functools.partial(self.augment.features, keys=batch.keys)
        spelling = self.model(batch.waveforms, batch.num_samples, batch.targets, change)
        sums = self.loss(spelling.logits, batch.targets, batch.num_tokens)
        loss = sums.loss / sums.tokens
        loss.backward()
        if self.clip_value is not None:
            nn.utils.clip_grad_value_(self.model.parameters(), self.clip_value)
        limit = math.inf if self.clip_norm is None else self.clip_norm
        norm = float(nn.utils.clip_grad_norm_(self.model.parameters(), limit))
        value = float(loss.detach())
        if not (math.isfinite(value) and math.isfinite(norm)):
            raise NumericalError(
                f"step {self.step}: the loss is {value} and the gradient's norm {norm}, on the utterances "
                f"{', '.join(batch.ids)}. The model was not updated; the last checkpoint in {self.folder} is good. "
                f"Try a lower optim.lr or a longer schedule.warmup_steps under another name=..."
            )
        self.optimiser.step()
        return value, norm

    def _validate(self, train_loss: float) -> None:
        """Dev loss and decoded dev error, what they mean for the schedule, and a checkpoint."""
        order = sequential(self.dev, self.size)
        found = evaluation.evaluate(self.model, self.loss, self.search, self.dev_loader.batches(order))
        texts = evaluation.texts(found.decoded, self.corpus.tokens)
        score = self.corpus.score(self.corpus.splits[1], self.dev, texts)
        error = score.total.rate
        self.schedule.validated(found.cross_entropy)
        improved = not self.validations or error < min(before for _, before in self.validations)
        self.validations.append((self.step, error))
        name = error_rates.SHORT_NAMES[self.corpus.metric]
        self.progress.dev = f"dev {name} {100 * error:.1f} %"
        self.progress.say(
            f"{self.progress.line(self.epoch + 1, self.step, train_loss)} | dev loss {found.cross_entropy:.3f}"
            f"{' | best so far' if improved else ''}"
        )
        self.run.record(
            event="validation",
            step=self.step,
            dev_loss=found.cross_entropy,
            dev_error=error,
            token_accuracy=found.token_accuracy,
        )
        self.board.add_scalar("dev/loss", found.cross_entropy, self.step)
        self.board.add_scalar(f"dev/{self.corpus.metric}", error, self.step)
        self._pictures()
        self._save(improved)

    def _pictures(self) -> None:
        if self.histograms:
            for name, parameter in self.model.named_parameters():
                self.board.add_histogram(name, parameter.detach().cpu(), self.step)
        if not self.attention_pictures or not self.dev:
            return
        first = min(range(len(self.dev)), key=lambda index: self.dev[index].id)
        ((_, batch),) = self.dev_loader.batches([[first]])
        weights = evaluation.attention_weights(self.model, batch)
        symbols = [*(self.corpus.tokens.symbols[i] for i in batch.targets[0].tolist()), "(end)"]
        path = self.run.directory / "attention" / f"step{self.step:08d}.png"
        report.attention_picture(weights, symbols, self.model.state_ms, path, f"{batch.ids[0]}, step {self.step}")
        self.board.add_image("attention", report.pixels(path), self.step, dataformats="HWC")

    def _save(self, improved: bool) -> None:
        optim, groups = checkpoint.pack_optimiser(self.optimiser)
        state = {
            "step": self.step,
            "epoch": self.epoch,
            "next_batch": self.next_batch,
            "seed": self.seed,
            "manifest_hash": self.manifest_hash,
            "validations": self.validations,
            "schedule": self.schedule.state_dict(),
            "param_groups": groups,
            "random": randomness.states(),
            "corpus": {
                "tokens": self.corpus.tokens.state(),
                "sample_rate": self.corpus.sample_rate,
                "metric": self.corpus.metric,
            },
        }
        directory = checkpoint.save(self.folder, self.step, self.model.state_dict(), optim, state, self.run.config)
        if improved:
            checkpoint.point(self.folder, "best", directory)
        checkpoint.point(self.folder, "latest", directory)
        checkpoint.prune(self.folder, self.keep_checkpoints)

    def _resume_or_prepare(self) -> None:
        """Continue from the newest good checkpoint, or estimate the feature statistics of a fresh start."""
        found, complaints = checkpoint.newest(self.folder)
        for complaint in complaints:
            progress.say(complaint, self.log)
        if found is None and complaints:
            raise StorageError(
                f"{self.folder}: none of its checkpoints can be read, so this run cannot be continued. Train it again "
                f"under another name: name={self.run.config['name']}_2"
            )
        if found is None:
            self._fit_features()
            self.run.forget_after(0)
            return
        state = found.state
        if state["manifest_hash"] != self.manifest_hash:
            raise StorageError(
                f"{self.run.directory}: the training utterances are not those this run began with (manifest "
                f"{state['manifest_hash'][:12]} then, {self.manifest_hash[:12]} now). Restore the corpus, or start a "
                f"run of its own: name={self.run.config['name']}_2"
            )
        self.model.load_state_dict(found.model)
        checkpoint.unpack_optimiser(self.optimiser, found.optim, state["param_groups"])
        self.schedule.load_state_dict(state["schedule"])
        self.step, self.epoch, self.next_batch = state["step"], state["epoch"], state["next_batch"]
        self.validations = [(int(step), float(error)) for step, error in state["validations"]]
        randomness.restore(state["random"])
        best = checkpoint.directory(self.folder, convergence(self.validations).best_step)
        if best.exists():  # a process killed between writing a checkpoint and pointing to it
            checkpoint.point(self.folder, "best", best)
        self.run.forget_after(self.step)
        progress.say(
            f"resuming at step {self.step} (epoch {self.epoch + 1}, batch {self.next_batch}), checkpoint verified",
            self.log,
        )

    def _fit_features(self, num_utterances: int = 500) -> None:
        """Global mean and variance from evenly spaced training utterances, so that they do not depend on the seed."""
        if self.model.features.normalisation != "global":
            return
        every = max(1, len(self.train) // num_utterances)
        chosen = sequential(self.train[::every], self.size)
        loader = batches.Loader(self.train[::every], self.corpus.tokens, self.corpus.sample_rate)
        self.model.features.fit((batch.waveforms, batch.num_samples) for _, batch in loader.batches(chosen))
