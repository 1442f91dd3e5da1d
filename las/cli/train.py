"""The verb `train`: from a config to a trained model and its error rates in result.json."""

import math
from collections.abc import Sequence
from typing import Any

from las.cli.decode import decode_split, write_references
from las.config.build import Config, build, compose
from las.data.corpora.base import Corpus
from las.data.manifest import Utterance
from las.decoding.transcriber import load
from las.reproduction.convergence import STILL, Curve
from las.runtime import distributed, progress
from las.runtime.errors import NumericalError
from las.scoring import error_rates
from las.storage import run_directory
from las.training import plots, selection, setup
from las.training.data_preparation import PreparedCorpus
from las.training.selection import DevResult
from las.training.setup import TrainingRun
from las.training.trainer import Trainer


def train(overrides: list[str]) -> dict[str, Any]:
    """Train, then decode and score dev and test with the best checkpoint. The same command again resumes.

    Started by `torchrun`, all processes train and decode; the main one alone writes.

    Returns the content of result.json (a process that is not the main one: nothing).
    Raises NumericalError when the training diverges, which result.json records too.

    >>> import las
    >>> las.train(["corpus=timit", "corpus.root=TIMIT", "+experiment=ln_boht"])
    Traceback (most recent call last):
    las.runtime.errors.ConfigError: +experiment=ln_boht: there is no configs/experiment/ln_boht.yaml. Did you mean ...
    """
    config = compose("train", overrides)
    say_unreached(config, overrides)
    return train_config(config)


def say_unreached(config: Config, overrides: Sequence[str]) -> None:
    """Warn of a schedule that was chosen and begins only after the training ends; not of a training for a try."""
    chosen = [each for each in overrides if each.lstrip("+").startswith(("schedule=", "schedule."))]
    if not chosen or "trainer=smoke" in overrides:
        return
    last = config["trainer"]["max_steps"]
    for key, what in (("warmup_steps", "the full learning rate is never reached"), ("start_step", "it never decays")):
        if (start := config["schedule"].get(key) or 0) >= last:
            progress.say(
                f"warning: trainer.max_steps={last} ends before schedule.{key}={start}: {what}. Train for longer, or "
                f"set schedule.{key} below it"
            )


def train_config(config: Config) -> dict[str, Any]:
    """Train by a composed config; otherwise like `train`."""
    corpus: Corpus = build(config["corpus"], where="corpus")
    with setup.opened(config, corpus, *setup.build_all(config, corpus)) as run:
        if run.folder.result is not None:
            progress.say(f"{run.folder.directory} is finished: {summary(run.folder.result)}")
            return run.folder.result
        with run.locked():
            data = run.prepare()
            run = run.completed(data)
            train = setup.filter_training_utterances(run, data)
            result = _describe(run, train)
            result |= _train_stages(run, data, train, result)
            result["splits"] = _decode_and_score(run, data)
            if not distributed.is_main():
                return {}
            _write(result, run)
            return result


def _describe(run: TrainingRun, train: list[Utterance]) -> dict[str, Any]:
    """The entries of result.json that are known before training."""
    return {
        "name": run.folder.config["name"],
        "corpus": run.corpus.name,
        "seed": run.setup.seed,
        "parameters": setup.num_parameters(run.setup.parts.model),
        "train_utterances": len(train),
        "vocabulary_hash": run.corpus.tokens.vocabulary_hash,
        "commit": run_directory.commit(),
        "splits": {},
    }


def _train_stages(
    run: TrainingRun, data: PreparedCorpus, train: list[Utterance], entries: dict[str, Any]
) -> dict[str, Any]:
    """Train stage after stage; returns what result.json has about it. A diverged training is written with `entries`."""
    for trainer in setup.trainers(run, data, train):
        entries = entries | {"chance_level": trainer.chance._asdict()}
        try:
            trainer.fit()
        except NumericalError as error:
            run.folder.finish(entries | {"steps": trainer.state.step, "broken": str(error)})
            raise
    reached = {"steps": trainer.state.step, **selection.summary(trainer.state.validations, trainer.selection)}
    if distributed.is_main():
        progress.say(end_of_training(reached, trainer), run.log)
    return {**reached, "chance_level": trainer.chance._asdict()}


def end_of_training(result: dict[str, Any], trainer: Trainer) -> str:
    """The end of a training in one line: steps, the checkpoint that is decoded, the rule that ended it, and whether it
    has converged and the model hears.
    """
    steps, best = result["steps"], result["best_step"]
    line = f"finished after {steps} steps; best dev error at step {result['steps_to_converge']}"
    if best != result["steps_to_converge"]:
        line += f", best checkpoint by {result['select']} at step {best}"
    line += f"; {trainer.ending()}"
    if (error := result["last"]["dev_error"]) >= (by_chance := trainer.chance.error):
        line += f"; the dev error at the end, {100 * error:.1f} %, is not below the {100 * by_chance:.1f} % of "
        return line + "a model that does not hear, and so not compared"
    return f"{line}; {_convergence(trainer.state.validations, result['select'])}"


def _convergence(validations: Sequence[DevResult], criterion: str) -> str:
    """The verdict of the rule that tables of recipes go by, on how much better a training still became at its end."""
    steps, errors, losses = zip(*validations, strict=True)
    gain = Curve(steps, (0.0,) * len(steps), errors, losses).late_gain(criterion)
    if gain is None or not math.isfinite(gain):  # checkpoints of earlier releases lack losses
        return "too few validations to tell whether it has converged"
    what = f"{criterion} became {100 * gain:.1f} % better over the last fifth of the steps"
    return f"converged: {what}" if gain < STILL else f"not converged: {what}"


def _decode_and_score(run: TrainingRun, data: PreparedCorpus) -> dict[str, Any]:
    """Decode every split but the training one with the best checkpoint; their entries in result.json."""
    corpus, splits = run.corpus, {}
    with distributed.main_first():
        transcriber = load(run.folder.directory, run.setup.search, str(run.device))
    for split in corpus.splits[1:]:
        output = run.folder.directory / f"hypotheses.{split}.jsonl"
        score = decode_split(transcriber, corpus, split, data.splits[split], output)
        write_references(output.parent, split, data.splits[split])
        splits[split] = split_result(score, corpus, split)
        progress.say(f"{split}: {error_rates.line(score, corpus.metric)}", run.log)
        for name, subset in score.subsets.items():
            progress.say(f"{split} {name}: {100 * subset.rate:.1f} % of {subset.words:,} words", run.log)
    return splits


def _write(result: dict[str, Any], run: TrainingRun) -> None:
    """Draw the learning curves, write result.json and print the result."""
    directory = run.folder.directory
    if plots.available():
        name = error_rates.SHORT_NAMES[run.corpus.metric]
        plots.curves_picture(run.folder.metrics(), directory / "curves.png", name, str(directory))
    run.folder.finish(result)
    progress.say(f"{directory}: {summary(result)}", run.log)


def split_result(score: error_rates.Score, corpus: Corpus, split: str) -> dict[str, Any]:
    """Entry of a split in result.json: its errors, those of its named parts, and what it was scored with."""
    entry = error_rates.as_dict(score, corpus.metric)
    if score.subsets:
        entry["subsets"] = {name: error_rates.rate_as_dict(rate, corpus.metric) for name, rate in score.subsets.items()}
    return entry | corpus.provenance(split)


def summary(result: dict[str, Any]) -> str:
    """A result in one line: `dev PER 4.1 %, test PER 4.9 %, best at step 850`, and whether the model hears."""
    if "broken" in result:
        return f"broken at step {result['steps']}: {result['broken']}"
    rates = []
    for split, values in result["splits"].items():
        metric = next(name for name in error_rates.SHORT_NAMES if name in values)
        rates.append(f"{split} {error_rates.SHORT_NAMES[metric]} {100 * values[metric]:.1f} %")
    last, by_chance = (result.get(key) or {} for key in ("last", "chance_level"))
    is_deaf = last.get("dev_error", 0.0) >= by_chance.get("error", math.inf)
    deaf = ", no better at the end than a model that does not hear" if is_deaf else ""
    return f"{', '.join(rates)}, best at step {result['steps_to_converge']}{deaf}"
