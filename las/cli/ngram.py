"""The verb `ngram`: an n-gram language model of a corpus's transcripts or of a text, written as an ARPA file."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from las.config.build import Config, build, check_value, compose
from las.data.corpora.base import Corpus
from las.data.tokenizers import Tokenizer, TrainedSentencePieces
from las.hmm import lexicon
from las.lm import arpa, kneser_ney, pruning, vocabulary
from las.lm.kneser_ney import Estimate
from las.lm.ngram import of_words
from las.lm.perplexity import Perplexity, perplexity
from las.runtime import progress
from las.runtime.errors import ConfigError, suggest
from las.storage import atomic
from las.training import data_preparation
from las.training.tasks import text

UNITS = ("tokens", "words")
Sentences = list[Sequence[str]]


def ngram(overrides: list[str]) -> dict[str, Any]:
    """Estimate a model, print its statistics, write it, and return the statistics: see configs/ngram.yaml."""
    for override in overrides:
        if re.fullmatch(r"order=\d+", override):
            length = override.replace("order", "n")
            raise ConfigError(
                f"{override}: order= chooses the order of training utterances; for n-grams write {length}"
            )
    config = compose("ngram", overrides)
    for key, kind in (
        *(("n", int), ("output", str), ("text", str | None), ("dev", str | None), ("lexicon", str | None)),
        ("prune", float | None),
    ):
        check_value(key, config[key], kind)
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
    print_table(estimate, name)
    if config["prune"] is not None:
        estimate = estimate._replace(model=pruning.prune(estimate.model, config["prune"]))
        counts = ", ".join(f"{len(ngrams.words):,}" for ngrams in estimate.model.ngrams)
        progress.say(f"pruned with prune={config['prune']:g}: {counts} n-grams of 1 to {config['n']} words are left")
    result: dict[str, Any] = {
        "ngrams": [len(ngrams.words) for ngrams in estimate.model.ngrams],
        "discounts": [discounts.values for discounts in estimate.discounts],
    }
    if dev:
        dev_perplexity = measure(estimate.model, dev)
        progress.say(describe(dev_perplexity))
        result |= {"dev_perplexity": dev_perplexity.of_all, "dev_perplexity_of_known": dev_perplexity.of_known}
    progress.say(f"writing {config['output']}")
    arpa.write(config["output"], estimate.model)
    return result


def _dictionary_words(config: Config, corpus: Corpus, train: Sentences) -> list[str]:
    """The words of the pronouncing dictionary that is given, or of the corpus's own: a search may find them all."""
    if (path := config["lexicon"] or corpus.dictionary()) is None:
        return []
    words = list(lexicon.read(path).entries)
    if new := len(set(words).difference(*train)):
        progress.say(f"{path}: {new:,} of {len(words):,} words are not in the text and count as words seen zero times")
    return words


def measure(model: arpa.Model, sentences: Sentences) -> Perplexity:
    """The perplexity of sentences, each a sequence of words; words that the model lacks count as `<unk>`."""
    lm = of_words(model)
    ids = {word: index for index, word in enumerate(lm.symbols)}
    unknown = ids[arpa.UNKNOWN]
    return perplexity(lm, [[ids.get(word, unknown) for word in sentence] for sentence in sentences], unknown)


def describe(measured: Perplexity) -> str:
    """The perplexity in one line: `dev: 120 sentences, 2,310 symbols and ends, perplexity 6.12`."""
    size = f"{measured.num_sentences:,} sentences, {measured.num_symbols:,} symbols and ends"
    text = f"dev: {size}, perplexity {measured.of_all:.2f}"
    if measured.num_unknown:
        text += f", {measured.of_known:.2f} without the {measured.num_unknown:,} unknown ones"
    return text


def print_table(estimate: Estimate, name: str) -> None:
    """Print a row for each order; a star marks discounts that the text is too small to estimate."""
    table = Table("order", title=f"interpolated modified Kneser-Ney of {name}")
    for heading in ("n-grams", "D1", "D2", "D3+"):
        table.add_column(heading, justify="right")
    for order, (ngrams, discounts) in enumerate(zip(estimate.model.ngrams, estimate.discounts, strict=True), start=1):
        star = "*" if discounts.are_fallback else ""
        table.add_row(str(order), f"{len(ngrams.words):,}", *(f"{value:.3f}{star}" for value in discounts.values))
    progress.console.print(table)
    if any(discounts.are_fallback for discounts in estimate.discounts):
        progress.say("* there are too few n-grams of some count to estimate this discount: common values instead")


def _sentences(config: Config, corpus: Corpus, tokens: Tokenizer | None) -> tuple[Sentences, Sentences]:
    """The sentences to estimate from, and those to measure (perhaps none)."""
    if config["text"] is not None and not isinstance(tokens, TrainedSentencePieces):
        return _of_file(config["text"], tokens), _of_file(config["dev"], tokens) if config["dev"] else []
    data = data_preparation.prepare(corpus, Path(config["data_dir"]), build(config["limits"], where="limits"))
    train, dev = corpus.splits[:2]
    learned = _of_file(config["text"], tokens) if config["text"] else _of_split(data, train, tokens)
    if config["dev"]:
        return learned, _of_file(config["dev"], tokens)
    return learned, [] if config["text"] else _of_split(data, dev, tokens)


def _of_split(data: data_preparation.PreparedCorpus, split: str, tokens: Tokenizer | None) -> Sentences:
    """The transcripts of a split; the number of empty and unspellable ones, which are left out, is printed."""
    usable = [each.text for each in text.transcripts(data, split, tokens)]
    words_in = _splitter(tokens)
    return [words_in(each) for each in usable]


def _of_file(path: str, tokens: Tokenizer | None) -> Sentences:
    """The lines of a text that are not blank. Raises DataError naming the symbols that the tokens lack."""
    numbered = list(text.lines(Path(path)))
    if tokens:
        text.require_known(path, numbered, tokens, " For a model of words: units=words")
    words_in = _splitter(tokens)
    return [words_in(line) for _, line in progress.counted(numbered, len(numbered), f"{path}: lines read")]


def _splitter(tokens: Tokenizer | None) -> Callable[[str], Sequence[str]]:
    """The function that splits a text into the words of the model."""
    if tokens is None:
        return str.split
    words = vocabulary.words_of(tokens)
    return lambda text: [words[token] for token in tokens.encode(text)]
