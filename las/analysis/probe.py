"""The subject of an analysis: a model, its next update, and example utterances; also restored from a checkpoint."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from las.analysis.objective import Objective, minus, norm
from las.analysis.state_guard import unchanged
from las.config.build import Config, build
from las.data import manifest
from las.data.corpora.base import Corpus
from las.data.loader import Batch, Loader, drop_unknown_symbols
from las.nn import scheduled
from las.nn.losses import LabelSmoothedCrossEntropy
from las.nn.model import ListenAttendSpell
from las.nn.normalisation import RunningMoments
from las.runtime import devices, progress
from las.runtime.errors import ConfigError, NumericalError, StorageError
from las.storage import checkpoint
from las.storage.checkpoint import Checkpoint
from las.training import data_preparation, setup
from las.training.data_preparation import Splits
from las.training.setup import TrainingParts
from las.training.step import TrainingStep

DRAWS = ("frozen", "off")
"""Treatment of dropout, noise and sampling in a probe: drawn once and equal in every evaluation, or switched off."""


class Probe(NamedTuple):
    """The state of a training before update number `step`."""

    updates: TrainingStep
    step: int
    batches: Sequence[Batch]
    """The batches of that update, on the model's device."""
    examples: Batch
    """Example utterances, on the model's device."""
    symbols: Sequence[str]
    """The symbols of the tokenizer."""
    draws: str
    """The name of a choice in `DRAWS`."""

    @property
    def model(self) -> ListenAttendSpell:
        """The model of the training. Raises ConfigError for a model without listener and speller."""
        model = self.updates.model
        if not isinstance(model, ListenAttendSpell):
            raise ConfigError(f"a {type(model).__name__} has no listener with a speller to analyse")
        return model

    def objective(self, batches: Sequence[Batch] | None = None) -> Objective:
        """Mean teacher-forced cross-entropy per target token of batches, without label smoothing.

        The batches are those of the update unless others are given.

        Batch norm takes the statistics of the batch. SpecAugment's masks are left out.
        """
        chosen = self.batches if batches is None else batches
        return Objective(self.model.named_parameters(), lambda: self._loss(chosen))

    def _loss(self, batches: Sequence[Batch]) -> Tensor:
        self.model.train(self.draws == "frozen")
        for module in self.model.modules():
            if isinstance(module, RunningMoments):
                module.train()
        devices.seed_update(self.updates.seed, self.step, 0)
        plain = LabelSmoothedCrossEntropy()
        sums = [
            plain(self.model(batch.waveforms, batch.num_samples, batch.targets).logits, batch.targets, batch.num_tokens)
            for batch in batches
        ]
        return torch.stack([loss.loss for loss in sums]).sum() / sum(int(loss.tokens) for loss in sums)


class UpdateResult(NamedTuple):
    """The result of an update: the trained parameters after it, the length of their change, the learning rate."""

    point: list[Tensor]
    distance: float
    learning_rate: float


def real_update(subject: Probe) -> UpdateResult:
    """Compute the training's next update, clipping and optimiser included, and undo it.

    Raises NumericalError when its loss or gradient is not finite.
    """
    loss_function, optimiser = subject.objective(), subject.updates.optimiser
    original = loss_function.point()
    with unchanged(subject.model, optimiser):
        update = subject.updates(subject.batches, subject.step)
        if not update.finite:
            raise NumericalError(
                f"update {subject.step} is not finite (loss {update.loss}, norm of the gradient {update.norm}): there "
                "is nothing to measure. Choose another checkpoint"
            )
        updated = loss_function.point()
    return UpdateResult(updated, norm(minus(updated, original)), float(optimiser.param_groups[0]["lr"]))


def not_finite(analysis: str) -> NumericalError:
    """Return the error of an analysis whose numbers are not finite, which JSON has no words for."""
    return NumericalError(
        f"what={analysis}: a result is not finite, as the model's states or gradients overflow or are all zero. "
        "Choose other initial values or gains, or leave this analysis out"
    )


def subject(config: Config) -> tuple[Probe, Path]:
    """Return the probe of a checkpoint, and the directory for the results.

    The update is the next one of the training, if its corpus is the same and no utterance of it was left out.

    Args:
        config: the keys of `configs/analyze.yaml`; the keys of the training come from the checkpoint, or from here if
            an old checkpoint lacks them.

    Raises StorageError if there is no readable checkpoint, or its parts do not fit together, ConfigError for a bundle.
    """
    stored, complaints = checkpoint.find(Path(config["checkpoint"]), config["strict"])
    for complaint in complaints:
        progress.say(complaint)
    if "corpus" not in stored.config:
        raise ConfigError(
            f"{config['checkpoint']} is a bundle, which has neither corpus nor optimiser: give the run folder"
        )
    trained = config | stored.config
    trained["trainer"] = config["trainer"] | stored.config.get("trainer", {}) | {"device": config["device"]}
    corpus: Corpus = build(trained["corpus"], where="corpus")
    parts = setup.build_parts(trained, corpus)
    updates = _updates(parts, stored)
    splits = data_preparation.prepared(corpus, config["data_dir"])
    train = splits[corpus.splits[0]]
    plan = parts.order.plan(train, manifest.content_hash(train), parts.seed, stored.state["epoch"], parts.batch_size)
    start, count = stored.state["next_batch"], parts.options.accumulate
    chosen = plan[start : start + count] or plan[:count]
    loader = Loader(drop_unknown_symbols(train, corpus.tokens), corpus.tokens, corpus.sample_rate, 0)
    prepared = Probe(
        updates,
        stored.state["step"] + 1,
        [batch.to(parts.device) for _, batch in loader.batches(chosen)],
        examples(corpus, splits, config["num_utterances"]).to(parts.device),
        corpus.tokens.symbols,
        config["draws"],
    )
    return prepared, checkpoint.run_folder(stored.directory) / "analysis" / stored.directory.name


def _updates(parts: TrainingParts, stored: Checkpoint) -> TrainingStep:
    """Return the steps of a training, with parameters, optimiser and learning rate from a checkpoint."""
    state, optimiser = stored.state, parts.optim(parts.model.to(parts.device).parameters())
    rates = [group["lr"] for group in optimiser.param_groups]
    try:
        parts.model.load_state_dict(stored.model)
        checkpoint.unpack_optimiser(optimiser, stored.optim, state["param_groups"])
        parts.schedule.load_state_dict(state["schedule"])
        factor = state["rate_scale"] * parts.schedule.factor(state["step"] + 1)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise StorageError(f"{stored.directory}: its parts do not fit together ({error!r})") from error
    for group, rate in zip(optimiser.param_groups, rates, strict=True):
        group["lr"] = rate * factor
    scheduled.update_scheduled_values((parts.model, parts.loss), state["step"] + 1, parts.schedule.sub_epochs + 1)
    return parts.training_step(optimiser)


def examples(corpus: Corpus, splits: Splits, count: int) -> Batch:
    """Return a batch of the first `count` utterances of the development split, sorted by id."""
    dev = drop_unknown_symbols(
        sorted(splits[corpus.splits[1]], key=lambda utterance: utterance.id)[:count], corpus.tokens
    )
    if not dev:
        raise ConfigError(f"{corpus.name}: its {corpus.splits[1]} split has no utterance to analyse")
    loader = Loader(dev, corpus.tokens, corpus.sample_rate, 0)
    ((_, batch),) = loader.batches([[*range(len(dev))]])
    return batch
