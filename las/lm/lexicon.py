"""Words and how the tokens of a recogniser spell them: lists of words, pronouncing dictionaries."""

import re
from collections.abc import Iterable
from pathlib import Path

from las.data.tokenizers import WORD_START, Tokenizer, WordPart
from las.runtime import progress
from las.runtime.errors import ConfigError, DataError
from las.storage import text_files

_VARIANT = re.compile(r"(?<=.)\(\d+\)$")
_COMMENT = ";;;"
_NUM_SHOWN = 5


def read(path: str | Path) -> list[str]:
    """The words of a list (one a line) or of a pronouncing dictionary, each once and in the order of the file.

    A line's first column is its word, without the number of a pronunciation: `READ(2)`. Lines that begin with `;;;` are
    comments. Raises DataError for a file that cannot be read, holds no words, or is a language model.
    """
    path = Path(path)
    lines = (line for _, line in text_files.lines(path) if not line.startswith(_COMMENT))
    words = list(dict.fromkeys(_VARIANT.sub("", line.split()[0]) for line in lines))
    if "\\data\\" in words:
        raise DataError(f"{path}: a language model (ARPA), not a list of words: search.word_lm.path={path} takes it")
    if not words:
        raise DataError(f"{path}: there are no words in it. It should have a word a line, or be a dictionary")
    return words


def read_phrases(path: str | Path) -> list[str]:
    """The lines of a file, each of one word or of several. Raises DataError for a file without any."""
    phrases = [" ".join(line.split()) for _, line in text_files.lines(Path(path))]
    if not phrases:
        raise DataError(f"{path}: there are no words in it. It should have a word or a phrase a line")
    return list(dict.fromkeys(phrases))


def word_parts(tokens: Tokenizer) -> list[WordPart]:
    """The part of a word that each token spells, none for the boundary.

    Raises ConfigError for pieces that go from one word into the next.
    """
    if wide := [symbol for symbol in tokens.symbols[1:] if WORD_START in symbol[1:]]:
        raise ConfigError(f"the pieces {_listed(map(repr, wide))} go from one word into the next: words need others")
    return [WordPart("", begins=False, may_lead=False), *map(tokens.word_part, tokens.symbols[1:])]


def spellings(words: Iterable[str], tokens: Tokenizer, name: str) -> dict[str, str]:
    """The words (or phrases) that the tokens can spell, by their spelling, sorted; `name` stands in messages.

    A spelling is what the tokens of the word read together, which a model of pieces may have normalised. The others
    are counted and shown in a line. Raises DataError if all of them are others.
    """
    found: dict[str, str] = {}
    others: dict[str, str] = {}
    words = list(words)
    for word in words:
        if missing := tokens.unknown(word):
            others[word] = f"{word!r} has {_listed(map(repr, dict.fromkeys(missing)))}"
            continue
        parts = map(tokens.word_part, tokens.split(word))
        spelling = "".join(f"{' ' if part.begins else ''}{part.text}" for part in parts).strip()
        if spelling in found or not spelling:
            others[word] = f"{word!r} is spelt as {found.get(spelling, 'nothing')!r}"
        else:
            found[spelling] = word
    if not found:
        symbol = next(iter(tokens.unknown(next(iter(others), ""))), "")
        raise DataError(
            f"{name}: the tokens can spell none of its {len(words):,} words: "
            f"{_listed(others.values())}.{tokens.nearest(symbol)}",
            kind="unknown symbols",
        )
    if others:
        progress.say(
            f"{name}: {len(others):,} of {len(words):,} words are left out, which the tokens cannot spell: "
            f"{_listed(others.values())}"
        )
    return dict(sorted(found.items()))


def _listed(texts: Iterable[str]) -> str:
    """The first texts, and the number of the others."""
    listed = list(texts)
    more = f" and {len(listed) - _NUM_SHOWN:,} more" if len(listed) > _NUM_SHOWN else ""
    return ", ".join(listed[:_NUM_SHOWN]) + more
