"""What each verb does: overrides in, files and a printed answer out."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from las.cli.decode import decode_split
from las.data.corpora.base import Corpus
from las.decoding.evaluation import Search
from las.decoding.transcriber import load
from las.nn import rnn
from las.runtime import distributed, progress
from las.runtime.config import Config, build, compose
from las.runtime.errors import NumericalError
from las.scoring import error_rates
from las.storage import lock, run_directory
from las.training import data_preparation, plots, setup
from las.training.data_preparation import Data
from las.training.pretraining import Stage
from las.training.setup import Built


def train(overrides: list[str]) -> dict[str, Any]:
    """Train, then decode and score dev and test with the best checkpoint. The same command again resumes.

    Started by `torchrun`, all processes train; the main one alone decodes and writes.

    Returns what result.json holds (a process that is not the main one: nothing).
    Raises NumericalError when the training is broken, which result.json holds too.
    """
    return train_config(compose("train", overrides))


def train_config(config: Config) -> dict[str, Any]:
    """The same, of a composed config."""
    corpus: Corpus = build(config["corpus"], where="corpus")
    stages, built = setup.build_all(config, corpus)
    with rnn.using(str(config["kernel"])), distributed.together(built.device) as device, setup.one_speaks():
        folder = run_directory.Run(config)
        if folder.result is not None:
            progress.say(f"{folder.directory} is finished: {summary(folder.result)}")
            return folder.result
        with lock.held(folder.directory) if distributed.is_main() else nullcontext():
            return _train(stages, built, corpus, folder, device)


def _train(
    stages: list[Stage], built: Built, corpus: Corpus, folder: run_directory.Run, device: torch.device
) -> dict[str, Any]:
    config, log = folder.config, folder.directory / "log.txt"
    with distributed.main_first():
        data = data_preparation.prepare(corpus, Path(config["data_dir"]), built.limits)
    train = setup.usable(built, data, folder)
    result: dict[str, Any] = {
        "name": config["name"],
        "corpus": corpus.name,
        "seed": config["seed"],
        "parameters": setup.num_parameters(built.parts.model),
        "train_utterances": len(train),
        "vocabulary_hash": corpus.tokens.vocabulary_hash,
        "commit": run_directory.commit(),
        "splits": {},
    }
    for trainer in setup.trainers(stages, built, train, data, folder, device):
        try:
            convergence = trainer.fit()
        except NumericalError as error:
            folder.finish(result | {"steps": trainer.at.step, "broken": str(error)})
            raise
    if not distributed.is_main():
        return {}
    progress.say(f"stopped at step {trainer.at.step}; best dev error at step {convergence.best_step}", log)
    result |= {
        "steps": trainer.at.step,
        "steps_to_converge": convergence.best_step,
        "steps_to_within_one_percent": convergence.within_one_percent_step,
    }
    _decode_and_score(result, built.search, corpus, data, folder, device)
    if plots.available():
        name = error_rates.SHORT_NAMES[corpus.metric]
        plots.curves_picture(folder.metrics(), folder.directory / "curves.png", name, str(folder.directory))
    folder.finish(result)
    progress.say(f"{folder.directory}: {summary(result)}", log)
    return result


def _decode_and_score(
    result: dict[str, Any], search: Search, corpus: Corpus, data: Data, folder: run_directory.Run, device: torch.device
) -> None:
    """Every split but the training one, by the best checkpoint, into `result`."""
    log = folder.directory / "log.txt"
    transcriber = load(folder.directory, search, str(device))
    for split in corpus.splits[1:]:
        score = decode_split(
            transcriber, corpus, split, data.splits[split], folder.directory / f"hypotheses.{split}.jsonl"
        )
        result["splits"][split] = split_result(score, corpus, split)
        progress.say(f"{split}: {error_rates.line(score, corpus.metric)}", log)
        for name, part in score.subsets.items():
            progress.say(f"{split} {name}: {100 * part.rate:.1f} % of {part.words:,} words", log)


def split_result(score: error_rates.Score, corpus: Corpus, split: str) -> dict[str, Any]:
    """What result.json keeps of a split: its errors, those of its named parts, and what it was scored with."""
    found = error_rates.as_dict(score, corpus.metric)
    if score.subsets:
        found["subsets"] = {name: error_rates.rate_as_dict(rate, corpus.metric) for name, rate in score.subsets.items()}
    return found | corpus.provenance(split)


def summary(result: dict[str, Any]) -> str:
    """`dev PER 4.1 %, test PER 4.9 %, converged at step 850`"""
    if "broken" in result:
        return f"broken at step {result['steps']}: {result['broken']}"
    rates = []
    for split, values in result["splits"].items():
        metric = next(name for name in error_rates.SHORT_NAMES if name in values)
        rates.append(f"{split} {error_rates.SHORT_NAMES[metric]} {100 * values[metric]:.1f} %")
    return f"{', '.join(rates)}, converged at step {result['steps_to_converge']}"
