"""Do a language model and the tokens of a recogniser speak of the same symbols?"""

from collections.abc import Collection
from typing import Protocol, runtime_checkable

from las.data.tokenizers import BOUNDARY, Tokens
from las.lm.arpa import END, START, UNKNOWN
from las.runtime.errors import DataError

SPACE = "<space>"
"""How the character ' ' is written in a language model, where blanks stand between words."""

NEVER = -90.0
"""log10 probabilities below this say that something never happens; SRILM writes -99."""


@runtime_checkable
class Vocabulary(Protocol):
    """What `check` asks of a language model: its words, where it is from, and how often sentences end (log10)."""

    @property
    def words(self) -> Collection[str]: ...

    @property
    def name(self) -> str: ...

    @property
    def log10_end(self) -> float: ...


def written(symbol: str) -> str:
    """A symbol of tokens as the word of a language model."""
    return SPACE if symbol == " " else symbol


def words_of(tokens: Tokens) -> tuple[str, ...]:
    """The words of a language model of these tokens, in the order of their ids.

    Raises DataError naming the symbols that mean something else there.
    """
    taken = {START, UNKNOWN} | ({SPACE} if " " in tokens.symbols else set())
    if clash := taken & set(tokens.symbols):
        raise DataError(f"the tokens have the symbols {_listed(clash)}, which mean something else in a language model")
    return tuple(END if symbol == BOUNDARY else written(symbol) for symbol in tokens.symbols)


def check(lm: Vocabulary, tokens: Tokens) -> None:
    """Raise DataError unless a language model predicts the symbols of the tokens, all of them and no others.

    The message names the symbols. `<s>` and `<unk>` are no predictions of a recogniser and may be there; `</s>` is
    token 0, and must have a probability that lets sentences end.
    """
    expected, found = set(words_of(tokens)), set(lm.words) - {START, UNKNOWN}
    parts = []
    if missing := expected - found:
        parts.append(f"lacks {len(missing)} of the {len(expected)} symbols of the tokens: {_listed(missing)}")
    if extra := found - expected:
        parts.append(f"has {len(extra)} words that the tokens lack: {_listed(extra)}")
    if parts:
        raise DataError(
            f"{lm.name}: the language model {', and '.join(parts)}. Estimate one of the same tokens: "
            "las ngram corpus=... text=... output=..."
        )
    if lm.log10_end < NEVER:
        raise DataError(
            f"{lm.name}: the language model never ends a sentence (log10 probability of {END}: {lm.log10_end:g}), so "
            "that no hypothesis could. Estimate one from text with sentence ends: las ngram corpus=... output=..."
        )


def _listed(symbols: Collection[str], num_listed: int = 10) -> str:
    """`'a', 'b' and 3 more`"""
    names = [repr(symbol) for symbol in sorted(symbols)]
    more = f" and {len(names) - num_listed} more" if len(names) > num_listed else ""
    return ", ".join(names[:num_listed]) + more
