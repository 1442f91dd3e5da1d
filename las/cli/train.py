"""The verb `train`: from a config to a trained model and its error rates in result.json."""

import math
from collections.abc import Sequence
from typing import Any

from las.config.build import Config, compose
from las.data.corpora.base import Corpus
from las.decoding.evaluation import decode_split, write_references
from las.decoding.transcriber import load
from las.runtime import distributed, progress
from las.scoring import error_rates
from las.training import plots
from las.training.training import Training


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
        start = config["schedule"].get(key)
        if isinstance(start, int) and isinstance(last, int) and start >= last:  # other values are errors, named later
            progress.say(
                f"warning: trainer.max_steps={last} ends before schedule.{key}={start}: {what}. Train for longer, or "
                f"set schedule.{key} below it"
            )


def train_config(config: Config) -> dict[str, Any]:
    """Train by a composed config; otherwise like `train`."""
    with Training.open(config) as training:
        directory = training.folder.directory
        if (result := training.folder.result) is not None:
            progress.say(f"{directory} is finished: {summary(result)}")
            return result
        result = training.run()
        result["splits"] = _decode_and_score(training)
        if not distributed.is_main():
            return {}
        if plots.available():
            name = error_rates.SHORT_NAMES[training.corpus.metric]
            plots.curves_picture(training.folder.metrics(), directory / "curves.png", name, str(directory))
        training.folder.finish(result)
        progress.say(f"{directory}: {summary(result)}", training.log)
        return result


def _decode_and_score(training: Training) -> dict[str, Any]:
    """Decode every split but the training one with the best checkpoint; return their entries in result.json."""
    corpus, directory, splits = training.corpus, training.folder.directory, {}
    with distributed.main_first():
        transcriber = load(directory, training.parts.search, str(training.device))
    for split in corpus.splits[1:]:
        utterances = training.data.splits[split]
        score = decode_split(transcriber, corpus, split, utterances, directory / f"hypotheses.{split}.jsonl")
        write_references(directory, split, utterances)
        splits[split] = split_result(score, corpus, split)
        progress.say(f"{split}: {error_rates.line(score, corpus.metric)}", training.log)
        for name, subset in score.subsets.items():
            progress.say(f"{split} {name}: {100 * subset.rate:.1f} % of {subset.words:,} words", training.log)
    return splits


def split_result(score: error_rates.Score, corpus: Corpus, split: str) -> dict[str, Any]:
    """Entry of a split in result.json: its errors, those of its named parts, and what it was scored with."""
    entry = error_rates.as_dict(score, corpus.metric)
    if score.subsets:
        entry["subsets"] = {name: error_rates.rate_as_dict(rate, corpus.metric) for name, rate in score.subsets.items()}
    return entry | corpus.provenance(split)


def summary(result: dict[str, Any]) -> str:
    """Format a result: `dev PER 4.1 %, test PER 4.9 %, best at step 850`, and whether it beats the chance level."""
    if "broken" in result:
        return f"broken at step {result['steps']}: {result['broken']}"
    rates = []
    for split, values in result["splits"].items():
        metric = next(name for name in error_rates.SHORT_NAMES if name in values)
        rates.append(f"{split} {error_rates.SHORT_NAMES[metric]} {100 * values[metric]:.1f} %")
    last, by_chance = (result.get(key) or {} for key in ("last", "chance_level"))
    is_chance = last.get("dev_error", 0.0) >= by_chance.get("error", math.inf)
    end = ", no better than the chance level at the end" if is_chance else ""
    return f"{', '.join(rates)}, best at step {result['steps_to_converge']}{end}"
