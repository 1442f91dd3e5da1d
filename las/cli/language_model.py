"""The verbs `train_lm`, `ngram` and `perplexity`: language models are trained or estimated, and compared.

`ngram` writes an n-gram model of a corpus's transcripts or of a text as an ARPA file. `perplexity` compares models of
one tokenizer on the same sentences, with the same counting.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from las.config.build import Config, build, check_values, compose
from las.data.corpora.base import Corpus
from las.data.tokenizers import Tokenizer, TrainedSentencePieces
from las.hmm import lexicon
from las.lm import arpa, kneser_ney, loading, lstm, pruning, vocabulary
from las.lm.kneser_ney import Estimate
from las.lm.loading import KenLM
from las.lm.lstm import LSTMLanguageModel
from las.lm.ngram import NGram, of_words
from las.lm.perplexity import Perplexity
from las.lm.perplexity import perplexity as measure
from las.runtime import distributed, progress
from las.runtime.errors import ConfigError, DataError, suggest
from las.storage import atomic
from las.training import data_preparation
from las.training.tasks import text
from las.training.training import Training

ENTRIES = ("name", "corpus", "seed", "parameters", "vocabulary_hash", "commit", "steps", "select", "splits")
"""Entries of result.json that are those of any training."""
UNITS = ("tokens", "words")
Sentences = list[Sequence[str]]


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
            entry = {text.METRIC: measured.of_all, "sentences": measured.num_sentences, "symbols": measured.num_symbols}
            splits[split] = entry
    return splits


def summary(result: dict[str, Any]) -> str:
    """Return a result in one line: `dev perplexity 2.41, test perplexity 2.47, best at step 850`."""
    if "broken" in result:
        return f"broken at step {result['steps']}: {result['broken']}"
    measured = (f"{split} {text.METRIC} {values[text.METRIC]:.2f}" for split, values in result["splits"].items())
    return f"{', '.join(measured)}, best at step {result['steps_to_converge']}"


def ngram(overrides: list[str]) -> dict[str, Any]:
    """Estimate a model, print its statistics, write it, and return the statistics: see configs/ngram.yaml."""
    for override in overrides:
        if re.fullmatch(r"order=\d+", override):
            length = override.replace("order", "n")
            raise ConfigError(
                f"{override}: order= chooses the order of training utterances; for n-grams write {length}"
            )
    config = compose("ngram", overrides)
    check_values(config, {"n": int, "output": str, "prune": float | None})
    check_values(config, dict.fromkeys(("text", "dev", "lexicon"), str | None))
    if config["units"] not in UNITS:
        raise ConfigError(f"units={config['units']} is unknown.{suggest(str(config['units']), UNITS)}")
    if config["lexicon"] is not None and config["units"] != "words":
        raise ConfigError(f"lexicon={config['lexicon']} has words: it goes with units=words")
    if config["prune"] is not None and not config["prune"] > 0:
        raise ConfigError(f"prune={config['prune']} must be above 0, for example prune=1e-8")
    if config["n"] < 1:
        raise ConfigError(f"n={config['n']} must be at least 1, for example n=3")
    atomic.require_place(Path(config["output"]))
    corpus: Corpus = build(config["corpus"], where="corpus")
    tokens = corpus.tokens if config["units"] == "tokens" else None
    train, dev = _sentences(config, corpus, tokens)
    name = config["text"] or f"the transcripts of {corpus.name}"
    progress.say(f"{name}: {len(train):,} sentences, {sum(map(len, train)):,} {config['units']}")
    symbols = vocabulary.words_of(tokens)[1:] if tokens else _dictionary_words(config, corpus, train)
    estimate = kneser_ney.estimate(train, config["n"], symbols, name=name)
    print_estimate(estimate, name)
    if config["prune"] is not None:
        estimate = estimate._replace(model=pruning.prune(estimate.model, config["prune"]))
        counts = ", ".join(f"{len(ngrams.words):,}" for ngrams in estimate.model.ngrams)
        progress.say(f"pruned with prune={config['prune']:g}: {counts} n-grams of 1 to {config['n']} words are left")
    result: dict[str, Any] = {
        "ngrams": [len(ngrams.words) for ngrams in estimate.model.ngrams],
        "discounts": [discounts.values for discounts in estimate.discounts],
    }
    if dev:
        dev_perplexity = of_model(estimate.model, dev)
        progress.say(describe(dev_perplexity))
        result |= {"dev_perplexity": dev_perplexity.of_all, "dev_perplexity_of_known": dev_perplexity.of_known}
    progress.say(f"writing {config['output']}")
    arpa.write(config["output"], estimate.model)
    return result


def _dictionary_words(config: Config, corpus: Corpus, train: Sentences) -> list[str]:
    """Return the words of the pronouncing dictionary that is given, or of the corpus's own: a search may find each."""
    if (path := config["lexicon"] or corpus.dictionary()) is None:
        return []
    words = list(lexicon.read(path).entries)
    if new := len(set(words).difference(*train)):
        progress.say(f"{path}: {new:,} of {len(words):,} words are not in the text and count as words seen zero times")
    return words


def of_model(model: arpa.Model, sentences: Sentences) -> Perplexity:
    """Return the perplexity of sentences, each a sequence of words; words that the model lacks count as `<unk>`."""
    lm = of_words(model)
    ids = {word: index for index, word in enumerate(lm.symbols)}
    unknown = ids[arpa.UNKNOWN]
    return measure(lm, [[ids.get(word, unknown) for word in sentence] for sentence in sentences], unknown)


def describe(measured: Perplexity) -> str:
    """Return the perplexity in one line: `dev: 120 sentences, 2,310 symbols and ends, perplexity 6.12`."""
    size = f"{measured.num_sentences:,} sentences, {measured.num_symbols:,} symbols and ends"
    text = f"dev: {size}, perplexity {measured.of_all:.2f}"
    if measured.num_unknown:
        text += f", {measured.of_known:.2f} without the {measured.num_unknown:,} unknown ones"
    return text


def print_estimate(estimate: Estimate, name: str) -> None:
    """Print a row for each order; a star marks discounts that the text is too small to estimate."""
    title = f"interpolated modified Kneser-Ney of {name}"
    table = progress.table("order", "n-grams", "D1", "D2", "D3+", title=title)
    for order, (ngrams, discounts) in enumerate(zip(estimate.model.ngrams, estimate.discounts, strict=True), start=1):
        star = "*" if discounts.are_fallback else ""
        table.add_row(str(order), f"{len(ngrams.words):,}", *(f"{value:.3f}{star}" for value in discounts.values))
    progress.console.print(table)
    if any(discounts.are_fallback for discounts in estimate.discounts):
        progress.say("* there are too few n-grams of some count to estimate this discount: common values instead")


def _sentences(config: Config, corpus: Corpus, tokens: Tokenizer | None) -> tuple[Sentences, Sentences]:
    """Return the sentences to estimate from, and those to measure (perhaps none)."""
    if config["text"] is not None and not isinstance(tokens, TrainedSentencePieces):
        return _of_file(config["text"], tokens), _of_file(config["dev"], tokens) if config["dev"] else []
    data = data_preparation.prepare(corpus, Path(config["data_dir"]), build(config["limits"], where="limits"))
    train, dev = corpus.splits[:2]
    learned = _of_file(config["text"], tokens) if config["text"] else _of_split(data, train, tokens)
    if config["dev"]:
        return learned, _of_file(config["dev"], tokens)
    return learned, [] if config["text"] else _of_split(data, dev, tokens)


def _of_split(data: data_preparation.PreparedCorpus, split: str, tokens: Tokenizer | None) -> Sentences:
    """Return the transcripts of a split; the number of empty and unspellable ones, which are left out, is printed."""
    usable = [each.text for each in text.transcripts(data, split, tokens)]
    words_in = _splitter(tokens)
    return [words_in(each) for each in usable]


def _of_file(path: str, tokens: Tokenizer | None) -> Sentences:
    """Return the lines of a text that are not blank. Raises DataError naming the symbols that the tokens lack."""
    numbered = list(text.lines(Path(path)))
    if tokens:
        text.require_known(path, numbered, tokens, " For a model of words: units=words")
    words_in = _splitter(tokens)
    return [words_in(line) for _, line in progress.counted(numbered, len(numbered), f"{path}: lines read")]


def _splitter(tokens: Tokenizer | None) -> Callable[[str], Sequence[str]]:
    """Return the function that splits a text into the words of the model."""
    if tokens is None:
        return str.split
    words = vocabulary.words_of(tokens)
    return lambda text: [words[token] for token in tokens.encode(text)]


def perplexity(overrides: list[str]) -> dict[str, Perplexity]:
    """Print each model's perplexity per token, ends of sentences included: see configs/perplexity.yaml.

    Returns them by the names that were given.
    """
    config = compose("perplexity", overrides)
    models = config["models"]
    names = [str(name) for name in (models if isinstance(models, list) else [models])]
    check_values(config, {"text": str | None, "strict": bool})
    corpus: Corpus = build(config["corpus"], where="corpus")
    split = corpus.known_split(config["split"])
    data = data_preparation.prepare(corpus, Path(config["data_dir"]), build(config["limits"], where="limits"))
    file = config["text"]
    chosen = text.sentences(data, split) if file is None else text.sentences_of_file(file, corpus.tokens)
    ids = [corpus.tokens.encode(sentence.text) for sentence in chosen]
    perplexities = {name: measure(_load(name, corpus.tokens, config["strict"]), ids) for name in names}
    print_table(perplexities, file or f"{corpus.name} {split}")
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
    table = progress.table("language model", "perplexity", title=title)
    for model in sorted(perplexities, key=lambda model: -perplexities[model].of_all):
        table.add_row(model, f"{perplexities[model].of_all:.3f}")
    progress.console.print(table)
