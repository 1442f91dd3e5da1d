"""Setup of a training from its config: all parts of a training built and checked, one trainer for each of its stages.

A verb that trains goes through these in order: `build_all`, `opened`, `TrainingRun.locked`, `TrainingRun.prepare`,
`TrainingRun.completed`, `filter_training_utterances`, `trainers`.
"""

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

import torch

from las.config.build import Config, build, check_value, checked, parameters, resolve
from las.data import manifest
from las.data.corpora.base import Corpus
from las.data.manifest import Utterance
from las.data.quality import QualityLimits
from las.data.tokenizers import Tokenizer
from las.decoding.evaluation import Search
from las.decoding.hybrid.prepared_search import prepare
from las.nn import rnn
from las.nn.initialisation import InitialisationProtocol
from las.nn.trainable import SpeechModel, Trainable
from las.runtime import devices, distributed, progress, signals
from las.runtime.errors import ConfigError, StorageError
from las.storage import lock, output_paths
from las.storage.run_directory import RunDirectory
from las.training import checkpointing, data_preparation, learning_rate, optimizers, pretraining, warm_start
from las.training.data_preparation import PreparedCorpus
from las.training.options import TrainerOptions
from las.training.pretraining import Stage
from las.training.tasks import kinds
from las.training.tasks.targets import TrainingTargets
from las.training.trainer import Trainer, TrainingData, TrainingParts

TRAINING_PARTS = ("loss", "optim", "schedule", "gradients", "weight_noise", "augment", "order")


class TrainingSetup(NamedTuple):
    """Parts and options of a training, built from the sections of its config."""

    parts: TrainingParts
    trainer: TrainerOptions
    limits: QualityLimits
    search: Search
    seed: int
    device: torch.device
    max_bad_fraction: float

    @property
    def speech_model(self) -> SpeechModel:
        """The model of a training that hears audio; a language model is none."""
        assert isinstance(self.parts.model, SpeechModel)
        return self.parts.model


class TrainingRun(NamedTuple):
    """One training in its run directory."""

    corpus: Corpus
    stages: Sequence[Stage]
    setup: TrainingSetup
    """The parts of the last stage."""
    folder: RunDirectory
    device: torch.device
    """The device of this process."""

    @property
    def log(self) -> Path:
        """Path of the log of the run."""
        return self.folder.directory / "log.txt"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the run directory, in the main process, and make a run longer whose length has grown.

        Raises StorageError while another training holds it.
        """
        with lock.held(self.folder.directory) if distributed.is_main() else contextlib.nullcontext():
            if self.folder.extension and self.folder.writes:
                checkpointing.prepare_extension(self.folder)
                self.folder.extend()
            yield

    def prepare(self) -> PreparedCorpus:
        """Prepare the corpus, the main process first, so that the others find its manifests."""
        with distributed.main_first():
            return data_preparation.prepare(self.corpus, Path(self.folder.config["data_dir"]), self.setup.limits)

    def completed(self, data: PreparedCorpus) -> "TrainingRun":
        """The run with models of the size that its labels ask for, where the corpus has to be prepared to know it."""
        config = self.setup.parts.task.completed(self.corpus, data.splits, self.folder.config)
        if config == self.folder.config:
            return self
        stages, setup = build_all(config, self.corpus)
        return self._replace(stages=stages, setup=setup)

    def targets(self, data: PreparedCorpus, setup: TrainingSetup) -> TrainingTargets:
        """The targets of a stage; the first one, like any stage with other parts, may have to make them."""
        return setup.parts.task.targets(self.corpus, setup.parts.model, data.splits, self.folder.config)


def build_parts(config: Config, corpus: Corpus, *place: int | str, where: str = "model") -> TrainingSetup:
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
    trainer: TrainerOptions = checked(TrainerOptions, options, "trainer")()
    initialise: InitialisationProtocol = build(config["init"], where="init")
    devices.seed(config["seed"], *place)
    model = build_model(config, corpus, where)
    initialise(model)
    parts = TrainingParts(
        model=model,
        search=build(config["validation_search"], where="validation_search"),
        task=kinds.of(type(model)),
        warm_start=warm_start.from_config(config),
        **{key: build(config[key], where=key) for key in TRAINING_PARTS},
    )
    search: Search = build(config["search"], where="search")
    kinds.require_same(model, parts.loss, (parts.search, search))
    if any(parameter.requires_grad for parameter in parts.loss.parameters()):
        raise ConfigError(
            f"loss: a {type(parts.loss).__name__} has parameters, which no optimiser trains: they belong into the model"
        )
    parts.task.check(parts.augment)
    optimizers.check_settings(config["optim"])
    parts.optim(parts.model.parameters())  # raises now what it refuses
    return TrainingSetup(
        parts=parts,
        trainer=trainer,
        limits=build(config["limits"], where="limits"),
        search=search,
        seed=config["seed"],
        device=device,
        max_bad_fraction=max_bad_fraction,
    )


def build_model(config: Config, corpus: Corpus, where: str = "model") -> Trainable:
    """Build a model for a corpus, which gives the sizes that the model's constructor asks for by name."""
    section = config["model"]
    kind = resolve(section["_target_"])
    sizes = {"sample_rate": corpus.sample_rate} | kinds.of(kind).sizes(corpus, config)
    asked = parameters(kind)
    model: Trainable = build(section, where=where)(**{name: size for name, size in sizes.items() if name in asked})
    return model


def build_stage(stage: Stage, corpus: Corpus) -> TrainingSetup:
    """Build the parts of one stage.

    The parameters of each stage are drawn from a place of its own, those of the last as if there were no other stage.
    """
    return build_parts(stage.config, corpus, *(() if stage.is_last else ("stage", stage.number)))


def build_all(config: Config, corpus: Corpus) -> tuple[list[Stage], TrainingSetup]:
    """Build the parts of every stage, so that mistakes show now; return the stages and the parts of the last one.

    A warm start is compared with the model it comes from, unless the run has checkpoints to go on from.
    """
    stages = pretraining.stages(config)
    for stage in stages[:-1]:
        build_stage(stage, corpus)
    setup = build_stage(stages[-1], corpus)
    if not any(Path(config["run_dir"]).glob("checkpoints/step-*")):
        setup.parts.warm_start.check(setup.parts.model, config["model"])
    return stages, setup


@contextlib.contextmanager
def opened(config: Config, corpus: Corpus, stages: Sequence[Stage], setup: TrainingSetup) -> Iterator[TrainingRun]:
    """Join the processes of a training, choose its kernel and open its run directory, which is not locked yet.

    Raises StorageError when the folder cannot be written or belongs to a run of another configuration.
    """
    with (
        rnn.use_kernel(str(config["kernel"])),
        distributed.process_group(setup.device) as device,
        only_main_process_prints(),
    ):
        yield TrainingRun(corpus, stages, setup, RunDirectory(config), device)


def only_main_process_prints() -> AbstractContextManager[None]:
    """Silence all processes but the main one, which asks SLURM to queue it again when a signal stops it."""
    return signals.queued_again() if distributed.is_main() else distributed.only_main_prints()


def filter_training_utterances(run: TrainingRun, data: PreparedCorpus) -> list[Utterance]:
    """Return the training utterances that can be used; the others are listed in the run directory before step 1.

    Raises DataError when too many cannot be used or dev and test cannot be decoded, ConfigError or DataError when a
    search does not fit the model or its tokens.
    """
    model, max_bad_fraction = run.setup.speech_model, run.setup.max_bad_fraction
    train = data_preparation.filter_training_utterances(data, model, run.folder.directory, max_bad_fraction)
    for split in data.corpus.splits[1:]:
        data_preparation.require_decodable(data, split, run.log)
    targets = run.targets(data, run.setup)
    for line in targets.remarks:
        progress.say(line, run.log)
    bind_searches(run.setup, data.corpus.tokens, targets, output_paths.graphs(run.folder.directory))
    data_preparation.save_vocabulary(data.corpus.tokens, run.folder.directory)
    return [utterance for utterance in train if utterance.id not in targets.missing]


def bind_searches(
    setup: TrainingSetup, tokens: Tokenizer, targets: TrainingTargets | None = None, cache: Path | None = None
) -> None:
    """Prepare both searches for tokens, or for the dictionary whose phones the model knows."""
    lexicon, tied = (None, None) if targets is None else (targets.lexicon, targets.tied)
    for search in (setup.parts.search, setup.search):
        prepare(search, tokens, lexicon, tied, setup.speech_model.ctc is not None, cache)


def trainers(run: TrainingRun, data: PreparedCorpus, train: Sequence[Utterance]) -> Iterator[Trainer]:
    """Yield the trainer of each stage, from the current one on; each is to be trained before the next is asked for.

    A stage begins with the checkpoint that the one before ended with, so that it is the same whether the process that
    trained that one lives or not. Raises StorageError when the disk refused it.
    """
    manifest_hash = manifest.content_hash(train)
    trainer: Trainer | None = None
    while True:
        stage = _current_stage(run)
        setup = run.setup if stage.is_last else build_stage(stage, run.corpus)
        setup.parts.model.to(run.device)
        setup.parts.loss.to(run.device)
        chosen = pretraining.utterances_of_stage(train, run.corpus.tokens, stage)
        dev, targets = data.splits[run.corpus.splits[1]], run.targets(data, setup)
        stage_data = TrainingData(run.corpus, chosen, dev, manifest_hash, targets)
        chance = trainer.chance if trainer is not None and trainer.data.train == chosen else None
        trainer = Trainer(setup.parts, setup.trainer, stage, stage_data, run.folder, setup.seed, chance)
        _log_start(trainer, run)
        yield trainer
        if trainer.schedule.sub_epochs < stage.until or trainer.state.step >= trainer.options.max_steps:
            break
        if checkpointing.reached(run.folder)[0] < stage.until:
            raise StorageError(
                f"{trainer.checkpointer.folder}: the checkpoint at the end of {stage.name} could not be written, and "
                "the next stage begins with it. Make room: the same command goes on from the one before"
            )
    if not stage.is_last:
        advice = "raise trainer.max_steps, and the same command goes on"
        progress.say(f"ended in {stage.name} of pretraining: {advice}", run.log)


def _current_stage(run: TrainingRun) -> Stage:
    """The stage that goes on, or in which the last step was taken."""
    stages = run.stages
    if len(stages) == 1:
        return stages[0]
    sub_epochs, steps = checkpointing.reached(run.folder)
    return pretraining.current_stage(stages, sub_epochs - (steps >= stages[-1].config["trainer"]["max_steps"]))


def _log_start(trainer: Trainer, run: TrainingRun) -> None:
    """Print and log the size of the model, of the data and of the batches."""
    stage, accumulate, batch_size = trainer.stage, trainer.options.accumulate, trainer.options.batch_size
    size = f"batches of {batch_size}"
    if accumulate > 1:
        size += f", {accumulate} of them an update ({accumulate * batch_size} utterances)"
    processes = distributed.world_size()
    device = f"{run.device} with TF32" if run.device.type == "cuda" and trainer.options.tf32 else str(run.device)
    if stage.total > 1:
        progress.say(f"{stage.name}{stage.ending}: {', '.join(stage.changes) or 'the whole training'}", run.log)
    progress.say(
        f"{run.folder.config['name']}: {num_parameters(trainer.model):,} parameters, {len(trainer.data.train)} "
        f"training utterances, {size}, {device}, {f'{processes} processes, ' if processes > 1 else ''}"
        f"{torch.get_num_threads()} threads",
        run.log,
    )
    if torch.get_num_threads() > devices.cores():
        progress.say(f"trainer.threads is more than the {devices.cores()} cores: threads wait for each other", run.log)
    if line := learning_rate.remark(run.folder.config, num_parameters(trainer.model)):
        progress.say(line, run.log)
    for line in trainer.parts.augment.check(run.corpus.sample_rate):
        progress.say(line, run.log)
    progress.say(trainer.model.explain(), run.log)
    progress.say(trainer.validator.describe_chance(trainer.chance), run.log)


def num_parameters(model: torch.nn.Module) -> int:
    """Count the trained values of a model."""
    return sum(parameter.numel() for parameter in model.parameters())
