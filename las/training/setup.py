"""From a config to trainers: all parts of a training built and checked, one trainer for each of its stages."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from inspect import Parameter
from typing import NamedTuple

import torch

from las.data import manifest
from las.data.corpora.base import Corpus
from las.data.manifest import Utterance
from las.data.quality import QualityLimits
from las.data.tokenizers import Tokenizer
from las.decoding.evaluation import Search
from las.lm.lstm import LSTMLanguageModel
from las.nn.model import ListenAttendSpell
from las.runtime import devices, distributed, progress, seeding, signals
from las.runtime.config import Config, Factory, build, check_value, checked, resolve
from las.runtime.errors import ConfigError, StorageError
from las.storage import run_directory
from las.training import checkpointing, data_preparation, optimizers, pretraining
from las.training.data_preparation import PreparedCorpus
from las.training.pretraining import Stage
from las.training.step import Trainable
from las.training.trainer import Trainer, TrainingParts, require_settings

TRAINING_PARTS = ("loss", "optim", "schedule", "gradients", "weight_noise", "augment", "order")


class TrainingSetup(NamedTuple):
    """What a training is made of, built from the sections of its config."""

    parts: TrainingParts
    trainer: Callable[..., Trainer]
    limits: QualityLimits
    search: Search
    seed: int
    device: torch.device
    max_bad_fraction: float

    @property
    def recogniser(self) -> ListenAttendSpell:
        """The model, where it is one that hears."""
        assert isinstance(self.parts.model, ListenAttendSpell)
        return self.parts.model


def build_parts(config: Config, corpus: Corpus, *place: int | str) -> TrainingSetup:
    """All parts of a training, before anything is written: a mistake in the config costs no time and leaves nothing.

    The parameters that the model begins with are drawn from the seed and `place`. Raises ConfigError naming the key.
    """
    options = dict(config["trainer"])
    max_bad_fraction, device = options.pop("max_bad_fraction"), devices.pick(options.pop("device"))
    check_value("trainer.max_bad_fraction", max_bad_fraction, float)
    check_value("seed", config["seed"], int)
    if not 0 <= max_bad_fraction <= 1:
        raise ConfigError(f"trainer.max_bad_fraction={max_bad_fraction} must be from 0 to 1, for example 0.005")
    made = checked(Trainer, options, "trainer", kinds=[Parameter.KEYWORD_ONLY])
    require_settings(options)
    seeding.seed(config["seed"], *place)
    parts = TrainingParts(
        model=build_model(config["model"], corpus),
        search=build(config["validation_search"], where="validation_search"),
        **{key: build(config[key], where=key) for key in TRAINING_PARTS},
    )
    optimizers.check_settings(config["optim"])
    parts.optim(parts.model.parameters())  # what it refuses is told now
    return TrainingSetup(
        trainer=made,
        parts=parts,
        limits=build(config["limits"], where="limits"),
        search=build(config["search"], where="search"),
        seed=config["seed"],
        device=device,
        max_bad_fraction=max_bad_fraction,
    )


def build_model(plan: Config, corpus: Corpus) -> Trainable:
    """A recogniser of a corpus; or a language model, which is not told of audio."""
    spoken = resolve(plan["_target_"]) is not LSTMLanguageModel
    maker: Factory = build(plan, where="model" if spoken else "lm")
    model: Trainable
    model = (
        maker(corpus.tokens.size) if maker.func is LSTMLanguageModel else maker(corpus.sample_rate, corpus.tokens.size)
    )
    return model


def build_stage(stage: Stage, corpus: Corpus) -> TrainingSetup:
    """The parts of one stage. Each draws its parameters from a place of its own, the last as if there were no other."""
    return build_parts(stage.config, corpus, *(() if stage.is_last else ("stage", stage.number)))


def build_all(config: Config, corpus: Corpus) -> tuple[list[Stage], TrainingSetup]:
    """The stages of a training and the parts of the last one. Those of the others are built to see that they can be."""
    stages = pretraining.stages(config)
    for stage in stages[:-1]:
        build_stage(stage, corpus)
    return stages, build_stage(stages[-1], corpus)


def only_main_process_prints() -> AbstractContextManager[None]:
    """Of the processes of a training the main one prints, and asks SLURM to queue it again when a signal stops it."""
    return signals.queued_again() if distributed.is_main() else progress.silent()


def filter_training_utterances(
    built: TrainingSetup, data: PreparedCorpus, folder: run_directory.RunDirectory
) -> list[Utterance]:
    """The training utterances; what cannot be used is listed before step 1, and dev and test must be decodable."""
    num_states = data_preparation.num_states_of(built.recogniser)
    found = data_preparation.filter_training_utterances(data, num_states, folder.directory, built.max_bad_fraction)
    for split in data.corpus.splits[1:]:
        data_preparation.require_decodable(data, split, folder.directory / "log.txt")
    bind_searches(built, data.corpus.tokens)
    data_preparation.save_vocabulary(data.corpus.tokens, folder.directory)
    return found


def bind_searches(built: TrainingSetup, tokens: Tokenizer) -> None:
    """Tell both searches what the model writes; raises ConfigError or DataError where that does not fit."""
    for search in (built.parts.search, built.search):
        search.bind(tokens, built.recogniser.ctc is not None)


def trainers(
    stages: Sequence[Stage],
    last: TrainingSetup,
    train: Sequence[Utterance],
    data: PreparedCorpus,
    folder: run_directory.RunDirectory,
    device: torch.device,
) -> Iterator[Trainer]:
    """The trainer of one stage after the other, from the one at which the run stands; each is to be trained at once.

    A stage begins with the checkpoint that the one before ended with, so that it is the same whether the process that
    trained that one lives or not. Raises StorageError when the disk refused it.
    """
    manifest_hash = manifest.content_hash(train)
    while True:
        stage = _current(stages, folder)
        built = last if stage.is_last else build_stage(stage, data.corpus)
        trainer = _trainer(built, stage, train, manifest_hash, data, folder, device)
        yield trainer
        if trainer.schedule.sub_epochs < stage.until or trainer.at.step >= trainer.max_steps:
            break
        if checkpointing.reached(folder)[0] < stage.until:
            raise StorageError(
                f"{trainer.keeper.folder}: the checkpoint at the end of {stage.name} could not be written, and the next"
                " stage begins with it. Make room: the same command goes on from the one before"
            )
    if not stage.is_last:
        progress.say(
            f"ended in {stage.name} of pretraining: raise trainer.max_steps under another name=...", trainer.log
        )


def _current(stages: Sequence[Stage], folder: run_directory.RunDirectory) -> Stage:
    """The stage that goes on, or in which all steps were taken."""
    if len(stages) == 1:
        return stages[0]
    sub_epochs, steps = checkpointing.reached(folder)
    return pretraining.current(stages, sub_epochs - (steps >= stages[-1].config["trainer"]["max_steps"]))


def _trainer(
    built: TrainingSetup,
    stage: Stage,
    train: Sequence[Utterance],
    manifest_hash: str,
    data: PreparedCorpus,
    folder: run_directory.RunDirectory,
    device: torch.device,
) -> Trainer:
    corpus, model, log = data.corpus, built.parts.model, folder.directory / "log.txt"
    model.to(device)
    chosen = pretraining.within(train, corpus.tokens, stage)
    texts = chosen, data.splits[corpus.splits[1]]
    trainer = built.trainer(built.parts, stage, corpus, *texts, manifest_hash, folder, built.seed)
    size = f"batches of {trainer.size.utterances}"
    if trainer.accumulate > 1:
        size += f", {trainer.accumulate} of them an update ({trainer.accumulate * trainer.size.utterances} utterances)"
    processes = distributed.world_size()
    if stage.total > 1:
        progress.say(f"{stage.name}{stage.ending}: {', '.join(stage.changes) or 'the whole training'}", log)
    progress.say(
        f"{folder.config['name']}: {num_parameters(model):,} parameters, {len(chosen)} training utterances, {size}, "
        f"{device}, {f'{processes} processes, ' if processes > 1 else ''}{torch.get_num_threads()} threads",
        log,
    )
    if torch.get_num_threads() > devices.cores():
        progress.say(f"trainer.threads is more than the {devices.cores()} cores: threads wait for each other", log)
    progress.say(model.explain(), log)
    return trainer


def num_parameters(model: torch.nn.Module) -> int:
    """Trained values of a model."""
    return sum(parameter.numel() for parameter in model.parameters())
