"""The verbs `train_lm` and `perplexity`: an LSTM language model is trained, and language models are compared.

`perplexity` compares language models of one tokenizer on the same sentences, with the same counting.
"""

from pathlib import Path
from typing import Any

from rich.table import Table

from las.config.build import build, check_value, compose
from las.data.corpora.base import Corpus
from las.data.tokenizers import Tokenizer
from las.lm import loading, lstm
from las.lm.loading import KenLM
from las.lm.lstm import LSTMLanguageModel
from las.lm.ngram import NGram
from las.lm.perplexity import Perplexity
from las.lm.perplexity import perplexity as measure
from las.runtime import distributed, progress
from las.runtime.errors import DataError
from las.training import data_preparation
from las.training.tasks.text import METRIC, sentences, sentences_of_file
from las.training.training import Training

ENTRIES = ("name", "corpus", "seed", "parameters", "vocabulary_hash", "commit", "steps", "select", "splits")
"""Entries of result.json that are those of any training."""


def train_lm(overrides: list[str]) -> dict[str, Any]:
    """Train a language model, then measure it on dev and test. The same command again resumes.

    Returns the content of result.json (a process that is not the main one: nothing).
    """
    config = compose("language_model", overrides)
    config["model"] = config.pop("lm")
    with Training.open(config, where="lm") as training:
        folder = training.folder
        if folder.result is not None:
            progress.say(f"{folder.directory} is finished: {summary(folder.result)}")
            return folder.result
        reached = training.run()
        if not distributed.is_main():
            return {}
        result = {key: reached[key] for key in ENTRIES} | {
            "train_sentences": reached["train_utterances"],
            "steps_to_converge": reached["best_step"],
            "splits": _measure(training),
        }
        folder.finish(result)
        progress.say(f"{folder.directory}: {summary(result)}", training.log)
        return result


def _measure(training: Training) -> dict[str, Any]:
    """Measure the perplexity of the best checkpoint on every split with sentences but the training one."""
    tokens, directory, splits = training.corpus.tokens, training.folder.directory, {}
    lm, lm_tokens = loading.load_neural(directory)
    lm = lstm.of_tokens(lm, lm_tokens, tokens, str(directory))
    for split in training.corpus.splits[1:]:
        if utterances := training.data.splits[split]:
            measured = measure(lm, [tokens.encode(sentence.text) for sentence in utterances])
            entry = {METRIC: measured.of_all, "sentences": measured.num_sentences, "symbols": measured.num_symbols}
            splits[split] = entry
    return splits


def summary(result: dict[str, Any]) -> str:
    """A result in one line: `dev perplexity 2.41, test perplexity 2.47, best at step 850`."""
    if "broken" in result:
        return f"broken at step {result['steps']}: {result['broken']}"
    measured = (f"{split} {METRIC} {values[METRIC]:.2f}" for split, values in result["splits"].items())
    return f"{', '.join(measured)}, best at step {result['steps_to_converge']}"


def perplexity(overrides: list[str]) -> dict[str, Perplexity]:
    """Print each model's perplexity per token, ends of sentences included: see configs/perplexity.yaml.

    Returns them by the names that were given.
    """
    config = compose("perplexity", overrides)
    models = config["models"]
    names = [str(name) for name in (models if isinstance(models, list) else [models])]
    check_value("text", config["text"], str | None)
    check_value("strict", config["strict"], bool)
    corpus: Corpus = build(config["corpus"], where="corpus")
    split = corpus.known_split(config["split"])
    data = data_preparation.prepare(corpus, Path(config["data_dir"]), build(config["limits"], where="limits"))
    text = config["text"]
    chosen = sentences(data, split) if text is None else sentences_of_file(text, corpus.tokens)
    ids = [corpus.tokens.encode(sentence.text) for sentence in chosen]
    perplexities = {name: measure(_load(name, corpus.tokens, config["strict"]), ids) for name in names}
    print_table(perplexities, config["text"] or f"{corpus.name} {split}")
    return perplexities


def _load(name: str, tokens: Tokenizer, strict: bool) -> NGram | LSTMLanguageModel:
    lm = loading.load(name, tokens, strict)
    if isinstance(lm, KenLM):
        raise DataError(f"{name}: perplexity is not available for KenLM binary files: give the ARPA file")
    return lm


def print_table(perplexities: dict[str, Perplexity], name: str) -> None:
    """Print a row for each model, the best last."""
    first = next(iter(perplexities.values()))
    title = f"{name}: {first.num_sentences:,} sentences, {first.num_symbols:,} tokens and ends"
    table = Table("language model", title=title)
    table.add_column("perplexity", justify="right")
    for model in sorted(perplexities, key=lambda model: -perplexities[model].of_all):
        table.add_row(model, f"{perplexities[model].of_all:.3f}")
    progress.console.print(table)
