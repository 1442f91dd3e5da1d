"""A training from its config to its result: opened in its run directory, its stages trained one after the other."""

import contextlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import torch

from las.config.build import Config, build
from las.data import manifest
from las.data.corpora.base import Corpus
from las.data.manifest import Utterance
from las.nn.kernels import choice
from las.runtime import devices, distributed, progress, signals
from las.runtime.errors import NumericalError, StorageError
from las.storage import checkpoint, lock, run_directory
from las.storage.run_directory import RunDirectory
from las.training import checkpointing, data_preparation, pretraining, schedules, setup
from las.training.data_preparation import PreparedCorpus
from las.training.pretraining import Stage
from las.training.setup import TrainingParts
from las.training.tasks.base import TrainingTargets
from las.training.trainer import Trainer, TrainingData


class Training:
    """A training in its run directory: `with Training.open(config) as training: training.run()`.

    Args:
        corpus: with its tokens.
        stages: of pretraining, the last one the whole training.
        parts: of the last stage.
        folder: the run directory.
        device: of this process.
    """

    def __init__(
        self, corpus: Corpus, stages: Sequence[Stage], parts: TrainingParts, folder: RunDirectory, device: torch.device
    ) -> None:
        self.corpus, self.stages, self.parts, self.folder, self.device = corpus, stages, parts, folder, device
        self.log = folder.directory / "log.txt"

    @classmethod
    @contextlib.contextmanager
    def open(cls, config: Config, where: str = "model") -> Iterator["Training"]:
        """Build all parts, join the processes, choose the kernel, and open and lock the run directory.

        `where` is the key that the user knows the model's section by. Raises ConfigError before anything is written,
        StorageError when the folder cannot be written, is in use, or belongs to a run of another configuration.
        """
        corpus: Corpus = build(config["corpus"], where="corpus")
        stages, parts = setup.build_all(config, corpus, where)
        with (
            choice.use_kernel(str(config["kernel"])),
            distributed.process_group(parts.device) as device,
            # The main process asks SLURM to queue it again when a signal stops it; the others are silent.
            signals.queued_again() if distributed.is_main() else distributed.only_main_prints(),
        ):
            training = cls(corpus, stages, parts, RunDirectory(config), device)
            with training._locked():
                yield training

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock a run without a result, in the main process, and make it longer if its length has grown."""
        if self.folder.result is not None or not distributed.is_main():
            yield
            return
        with lock.held(self.folder.directory):
            if self.folder.extension and self.folder.writes:
                checkpointing.prepare_extension(self.folder)
                self.folder.extend()
            yield

    @cached_property
    def data(self) -> PreparedCorpus:
        """The corpus, prepared by the main process first, so that the others find its manifests."""
        with distributed.main_first():
            return self.parts.task.prepare(self.corpus, self.folder.config, self.parts.limits)

    @cached_property
    def train(self) -> list[Utterance]:
        """The training utterances that can be used; the others are listed in the run directory before step 1.

        The model gets its final size where the prepared corpus gives it. Raises DataError when too many cannot be used
        or dev and test cannot be decoded, ConfigError or DataError when a search does not fit the model or its tokens.
        """
        config, task, directory = self.folder.config, self.parts.task, self.folder.directory
        complete = task.completed(self.corpus, self.data.splits, config)
        if complete != config:
            self.stages = pretraining.stages(complete)
            self.parts = self.parts._replace(model=setup.draw_model(complete, self.corpus))
        train = task.usable(self.data, self.parts.model, directory, self.parts.max_bad_fraction)
        targets = self._targets(self.parts)
        for line in targets.remarks:
            progress.say(line, self.log)
        self.parts.bind_searches(self.corpus.tokens, targets, checkpoint.graphs(directory))
        data_preparation.save_vocabulary(self.corpus.tokens, directory)
        return [utterance for utterance in train if utterance.id not in targets.missing]

    def _targets(self, parts: TrainingParts) -> TrainingTargets:
        """Return the targets of a stage; the first one, like any stage with other parts, may have to make them."""
        return parts.task.targets(self.corpus, parts.model, self.data.splits, self.folder.config)

    def run(self) -> dict[str, Any]:
        """Train every stage to its end; return the entries of result.json, without any of `splits`.

        Raises NumericalError when the training diverges, which result.json records.
        """
        num_utterances = len(self.train)  # before the parameters, which may depend on the utterances
        entries = {
            "name": self.folder.config["name"],
            "corpus": self.corpus.name,
            "seed": self.parts.seed,
            "parameters": setup.num_parameters(self.parts.model),
            "train_utterances": num_utterances,
            "vocabulary_hash": self.corpus.tokens.vocabulary_hash,
            "commit": run_directory.commit(),
            "splits": {},
        }
        for trainer in self.trainers():
            chance = {"chance_level": trainer.chance._asdict()}
            try:
                trainer.fit()
            except NumericalError as error:
                self.folder.finish(entries | chance | {"steps": trainer.state.step, "broken": str(error)})
                raise
        reached = checkpointing.summary(trainer.state.validations, trainer.selection)
        entries |= {"steps": trainer.state.step, **reached, **chance}
        if distributed.is_main():
            progress.say(_end(entries, trainer), self.log)
        return entries

    def trainers(self) -> Iterator[Trainer]:
        """Yield the trainer of each stage, from the current one on; each is to be trained before the next is asked for.

        A stage begins with the checkpoint that the one before ended with, so that it is the same whether the process
        that trained that one lives or not. Raises StorageError when the disk refused it.
        """
        manifest_hash = manifest.content_hash(self.train)
        trainer: Trainer | None = None
        while True:
            stage = self._current_stage()
            parts = self.parts if stage.is_last else setup.build_stage(stage, self.corpus)
            chosen = pretraining.utterances_of_stage(self.train, self.corpus.tokens, stage)
            trainer = self._trainer(stage, parts, chosen, manifest_hash, trainer)
            self._log_start(trainer)
            yield trainer
            if trainer.schedule.sub_epochs < stage.until or trainer.state.step >= trainer.options.max_steps:
                break
            if checkpointing.reached(self.folder)[0] < stage.until:
                raise StorageError(
                    f"{trainer.checkpointer.folder}: the checkpoint at the end of {stage.name} could not be written, "
                    "and the next stage begins with it. Make room: the same command goes on from the one before"
                )
        if not stage.is_last:
            advice = "raise trainer.max_steps, and the same command goes on"
            progress.say(f"ended in {stage.name} of pretraining: {advice}", self.log)

    def _current_stage(self) -> Stage:
        """Return the stage to resume: the current or the last one trained."""
        if len(self.stages) == 1:
            return self.stages[0]
        sub_epochs, steps = checkpointing.reached(self.folder)
        max_steps = self.stages[-1].config["trainer"]["max_steps"]
        return pretraining.current_stage(self.stages, sub_epochs - (steps >= max_steps))

    def _trainer(
        self,
        stage: Stage,
        parts: TrainingParts,
        train: Sequence[Utterance],
        manifest_hash: str,
        before: Trainer | None,
    ) -> Trainer:
        """Return the trainer of a stage, on this process's device, with the chance level of the stage `before`."""
        options, model = parts.options, parts.model.to(self.device)
        parts.loss.to(self.device)
        torch.set_num_threads(devices.threads(options.threads))
        if model.device.type == "cuda":
            devices.allow_tf32(options.tf32)
        targets, workers = self._targets(parts), devices.reading_workers(options.num_workers)
        dev = self.data.splits[self.corpus.splits[1]]
        shared = (self.corpus, dev, targets.source, parts.batch_size, workers)
        parts.task.bind_loss(parts.loss, train, targets.source)
        loss = parts.loss if parts.schedule.follows == "objective" else None
        validator = parts.task.validator(model, parts.validation_search, *shared, loss)
        same = before is not None and before.data.train == train
        chance = before.chance if before is not None and same else validator.chance_level(train)
        data = TrainingData(self.corpus, train, manifest_hash, targets)
        return Trainer(parts, stage, data, self.folder, validator, chance)

    def _log_start(self, trainer: Trainer) -> None:
        """Print and log the size of the model, of the data and of the batches."""
        stage, options, config = trainer.stage, trainer.options, self.folder.config
        size = f"batches of {options.batch_size}"
        if options.accumulate > 1:
            together = options.accumulate * options.batch_size
            size += f", {options.accumulate} of them an update ({together} utterances)"
        processes = distributed.world_size()
        device = f"{self.device} with TF32" if self.device.type == "cuda" and options.tf32 else str(self.device)
        parameters = setup.num_parameters(trainer.model)
        lines = []
        if stage.total > 1:
            ending = "" if stage.is_last else f", to the end of sub-epoch {stage.until}"
            lines.append(f"{stage.name}{ending}: {', '.join(stage.changes) or 'the whole training'}")
        lines.append(
            f"{config['name']}: {parameters:,} parameters, {len(trainer.data.train)} training utterances, {size}, "
            f"{device}, {f'{processes} processes, ' if processes > 1 else ''}{torch.get_num_threads()} threads"
        )
        if torch.get_num_threads() > devices.cores():
            lines.append(f"trainer.threads is more than the {devices.cores()} cores: threads wait for each other")
        if remark := schedules.remark(config, parameters):
            lines.append(remark)
        lines += trainer.parts.augment.check(self.corpus.sample_rate)
        for line in [*lines, trainer.model.explain(), trainer.validator.describe_chance(trainer.chance)]:
            progress.say(line, self.log)


def _end(result: dict[str, Any], trainer: Trainer) -> str:
    """Return the end of a training in one line: steps, the checkpoint that is decoded, the rule that ended it, and
    whether it has converged and beats the chance level.
    """
    name, first, best = trainer.validator.error_name, result["steps_to_converge"], result["best_step"]
    line = f"finished after {result['steps']} steps; best {name} at step {first}"
    if best != first:
        line += f", best checkpoint by {result['select']} at step {best}"
    line += f"; {trainer.ending()}"
    error, by_chance = result["last"]["dev_error"], trainer.chance.error
    if error < by_chance:
        return f"{line}; {checkpointing.convergence_verdict(trainer.state.validations, result['select'])}"
    at_end, chance = map(trainer.validator.format_error, (error, by_chance))
    return f"{line}; the {name} at the end, {at_end}, is not below the chance level, {chance}, and so not compared"
