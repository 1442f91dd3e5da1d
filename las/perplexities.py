"""The verb `perplexity`: language models of the same tokens, compared on the same sentences with the same counting."""

from pathlib import Path

from rich.table import Table

from las import arguments, build, preparation, progress, text_training
from las.corpora.base import Corpus
from las.errors import DataError
from las.lm import files
from las.lm.kenlm import KenLM
from las.lm.neural import LanguageModel
from las.lm.ngram import NGram
from las.lm.perplexity import Perplexity
from las.lm.perplexity import perplexity as measure
from las.tokens import Tokens


def perplexity(overrides: list[str]) -> dict[str, Perplexity]:
    """Print each model's perplexity, of every token and every end of a sentence: see configs/perplexity.yaml.

    Returns them by the names that were given.
    """
    config = build.compose("perplexity", overrides)
    given = config["models"]
    names = [str(name) for name in (given if isinstance(given, list) else [given])]
    arguments.check_value("text", config["text"], str | None)
    arguments.check_value("strict", config["strict"], bool)
    corpus: Corpus = build.build(config["corpus"], where="corpus")
    split = corpus.known_split(config["split"])
    data = preparation.prepare(corpus, Path(config["data_dir"]), build.build(config["limits"], where="limits"))
    if config["text"] is None:
        sentences = text_training.sentences(data, split)
    else:
        sentences = text_training.sentences_of_file(config["text"], corpus.tokens)
    ids = [corpus.tokens.encode(sentence.text) for sentence in sentences]
    found = {name: measure(_load(name, corpus.tokens, config["strict"]), ids) for name in names}
    print_table(found, config["text"] or f"{corpus.name} {split}")
    return found


def _load(name: str, tokens: Tokens, strict: bool) -> NGram | LanguageModel:
    lm = files.load(name, tokens, strict)
    if isinstance(lm, KenLM):
        raise DataError(f"{name}: a binary file of KenLM tells only whole rows: give the ARPA file that it was made of")
    return lm


def print_table(found: dict[str, Perplexity], name: str) -> None:
    """One row for each model, the best last."""
    first = next(iter(found.values()))
    title = f"{name}: {first.num_sentences:,} sentences, {first.num_symbols:,} tokens and ends"
    table = Table("language model", title=title)
    table.add_column("perplexity", justify="right")
    for each in sorted(found, key=lambda each: -found[each].of_all):
        table.add_row(each, f"{found[each].of_all:.3f}")
    progress.console.print(table)
