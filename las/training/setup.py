"""Parts and options of a training, built and checked from its config."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from las.config.build import Config, build, check_value, checked, parameters, require, resolve
from las.data.augmentation.augmentation import Augmentation
from las.data.corpora.base import Corpus
from las.data.loader import BatchSampler, BatchSize
from las.data.quality import QualityLimits
from las.data.tokenizers import Tokenizer
from las.decoding.base import Search, is_of_frames, require_search
from las.nn.acoustic_model import FrameModel
from las.nn.initialisation import InitialisationProtocol
from las.nn.losses import FrameLoss, TrainingLoss
from las.nn.model import SpeechModel, Trainable
from las.runtime import devices
from las.runtime.errors import ArgumentError, ConfigError, require_known
from las.runtime.precision import PRECISIONS
from las.training import optimization, pretraining, warm_start
from las.training.checkpointing import CRITERIA
from las.training.optimization import GradientTransform, WeightNoise
from las.training.pretraining import Stage
from las.training.schedules import Schedule
from las.training.step import TrainingStep
from las.training.tasks.base import Task, TrainingTargets
from las.training.tasks.frames import FrameTask
from las.training.tasks.text import TextTask
from las.training.tasks.tokens import TokenTask
from las.training.warm_start import WarmStart

BUILT = ("loss", "optim", "schedule", "gradients", "weight_noise", "augment", "order", "validation_search", "search")
"""Sections of the config from which the parts of these names are built."""


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
        select: the best checkpoint has the least `dev_error` or `dev_loss` (`las.training.checkpointing`).
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
        counts = ("max_steps", "max_sub_epochs", "batch_size", "accumulate", "validate_every", "sub_epochs")
        for key in (*counts, "patience", "keep_checkpoints", "threads"):
            require(key, getattr(self, key), 1)
        for key in ("num_workers", "broken_after_epochs"):
            require(key, getattr(self, key), 0)
        if self.max_batch_s is not None and self.max_batch_s <= 0:
            raise ArgumentError(f"max_batch_s={self.max_batch_s} must be above 0, or null for no limit")
        if (self.validate_every is None) == (self.sub_epochs is None):
            raise ConfigError("give trainer.validate_every (steps) or trainer.sub_epochs (of an epoch), the other null")
        require_known("precision", self.precision, PRECISIONS)
        require_known("select", self.select, CRITERIA)
        devices.check_threads("trainer.threads", self.threads)


class TrainingParts(NamedTuple):
    """Parts and options of a training; `optim` makes the optimiser from the parameters."""

    model: Trainable
    loss: TrainingLoss
    optim: Callable[[Any], torch.optim.Optimizer]
    schedule: Schedule
    gradients: GradientTransform
    weight_noise: WeightNoise
    augment: Augmentation
    order: BatchSampler
    validation_search: Search
    search: Search
    warm_start: WarmStart
    task: Task
    options: TrainerOptions
    limits: QualityLimits
    seed: int
    device: torch.device
    max_bad_fraction: float

    @property
    def speech_model(self) -> SpeechModel:
        """The speech model; raises for a language model."""
        assert isinstance(self.model, SpeechModel)
        return self.model

    @property
    def batch_size(self) -> BatchSize:
        """Size of batches."""
        return BatchSize(self.options.batch_size, self.options.max_batch_s)

    def bind_searches(
        self, tokens: Tokenizer, targets: TrainingTargets | None = None, cache: Path | None = None
    ) -> None:
        """Prepare both searches for the tokens, or for the dictionary whose phones the model knows."""
        searches = (self.validation_search, self.search)
        self.task.bind(searches, self.model, tokens, targets or TrainingTargets(tokens), cache)

    def training_step(self, optimiser: torch.optim.Optimizer) -> TrainingStep:
        """Make the step that updates the model by an optimiser of its parameters."""
        parts = (self.model, self.loss, optimiser, self.gradients, self.weight_noise, self.augment)
        return TrainingStep(*parts, self.seed, self.options.precision)


def build_parts(config: Config, corpus: Corpus, *place: int | str, where: str = "model") -> TrainingParts:
    """Build all parts of a training before anything is written: a mistake in the config leaves nothing behind.

    The parameters that the model begins with are drawn from the seed and `place`; `where` is the key that the user
    knows the model's section by. Raises ConfigError naming the key.
    """
    options = dict(config["trainer"])
    max_bad_fraction, device = options.pop("max_bad_fraction"), devices.pick(options.pop("device"))
    check_value("trainer.max_bad_fraction", max_bad_fraction, float)
    check_value("seed", config["seed"], int)
    if not 0 <= max_bad_fraction <= 1:
        raise ConfigError(f"trainer.max_bad_fraction={max_bad_fraction} must be from 0 to 1, for example 0.005")
    trainer_options: TrainerOptions = checked(TrainerOptions, options, "trainer")()
    model = draw_model(config, corpus, *place, where=where)
    parts = TrainingParts(
        model=model,
        warm_start=warm_start.from_config(config),
        task=task_of(type(model)),
        options=trainer_options,
        limits=build(config["limits"], where="limits"),
        seed=config["seed"],
        device=device,
        max_bad_fraction=max_bad_fraction,
        **{key: build(config[key], where=key) for key in BUILT},
    )
    parts.loss.bind(corpus)
    require_fitting(model, parts.loss, (parts.validation_search, parts.search))
    if any(parameter.requires_grad for parameter in parts.loss.parameters()):
        raise ConfigError(
            f"loss: a {type(parts.loss).__name__} has parameters, which no optimiser trains: they belong into the model"
        )
    parts.task.check(parts.augment, config)
    optimization.check_settings(config["optim"])
    parts.optim(model.parameters())  # raises now what it refuses
    return parts


def require_fitting(model: Trainable, loss: TrainingLoss, searches: Sequence[Search]) -> None:
    """Raise ConfigError unless loss and searches are for what the model predicts."""
    of_frames = isinstance(model, FrameModel)
    if is_of_frames(loss, FrameLoss) != of_frames:
        own, other = ("frames", "tokens") if of_frames else ("tokens", "frames")
        option = "loss=frame_focal" if of_frames else "loss=cross_entropy"
        raise ConfigError(f"loss: this model predicts {own}, and the loss is of {other}: choose {option}")
    for search in searches:
        require_search(search, model)


def draw_model(config: Config, corpus: Corpus, *place: int | str, where: str = "model") -> Trainable:
    """Build a model and draw its parameters from the seed and `place`."""
    initialise: InitialisationProtocol = build(config["init"], where="init")
    devices.seed(config["seed"], *place)
    model = build_model(config, corpus, where)
    initialise(model)
    return model


def task_of(kind: type) -> Task:
    """Return the task of a class of models."""
    if issubclass(kind, FrameModel):
        return FrameTask()
    return TokenTask() if issubclass(kind, SpeechModel) else TextTask()


def build_model(config: Config, corpus: Corpus, where: str = "model") -> Trainable:
    """Build a model for a corpus, which gives the sizes that the model's constructor asks for by name."""
    section = config["model"]
    kind = resolve(section["_target_"])
    sizes = {"sample_rate": corpus.sample_rate} | task_of(kind).sizes(corpus, config)
    asked = parameters(kind)
    model: Trainable = build(section, where=where)(**{name: size for name, size in sizes.items() if name in asked})
    return model


def build_stage(stage: Stage, corpus: Corpus) -> TrainingParts:
    """Build the parts of one stage of pretraining; the parameters of each are drawn from a place of its own."""
    return build_parts(stage.config, corpus, "stage", stage.number)


def build_all(config: Config, corpus: Corpus, where: str = "model") -> tuple[list[Stage], TrainingParts]:
    """Build the parts of every stage, so that mistakes show now; return the stages and the parts of the last one.

    A warm start is compared with the model it comes from, unless the run has checkpoints to go on from.
    """
    stages = pretraining.stages(config)
    for stage in stages[:-1]:
        build_stage(stage, corpus)
    parts = build_parts(config, corpus, where=where)
    if not any(Path(config["run_dir"]).glob("checkpoints/step-*")):
        parts.warm_start.check(parts.model, config["model"])
    return stages, parts


def num_parameters(model: torch.nn.Module) -> int:
    """Count the trained values of a model."""
    return sum(parameter.numel() for parameter in model.parameters())
