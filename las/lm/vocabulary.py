"""Check that a language model and a tokenizer have the same symbols."""

from collections.abc import Collection

from las.data.tokenizers import BOUNDARY, Tokenizer
from las.lm.arpa import END, START, UNKNOWN
from las.runtime.errors import DataError, first_of

SPACE = "<space>"
"""The word for the character ' ' in a language model, as blanks separate its words."""

NEVER = -90.0
"""log10 probabilities below this stand for zero; SRILM writes -99."""


def written(symbol: str) -> str:
    """Return the word of a language model for a symbol of the tokenizer."""
    return SPACE if symbol == " " else symbol


def words_of(tokens: Tokenizer) -> tuple[str, ...]:
    """Return the words of a language model of these tokens, in the order of the ids.

    Raises DataError naming symbols that have another meaning in a language model.
    """
    reserved = {START, UNKNOWN} | ({SPACE} if " " in tokens.symbols else set())
    if clash := reserved & set(tokens.symbols):
        symbols = first_of(map(repr, sorted(clash)))
        raise DataError(f"the tokens have the symbols {symbols}, which mean something else in a language model")
    return tuple(END if symbol == BOUNDARY else written(symbol) for symbol in tokens.symbols)


def check(words: Collection[str], log10_end: float, name: str, tokens: Tokenizer) -> None:
    """Raise DataError unless a language model predicts the symbols of the tokens, all of them and no others.

    `words` are those of the model, `log10_end` is its log10 probability of the end, `name` stands in the message, which
    names the symbols. `<s>` and `<unk>` may be there, as a recogniser never predicts them; `</s>` is token 0, and must
    have a probability that lets sentences end.
    """
    expected, known = set(words_of(tokens)), set(words) - {START, UNKNOWN}
    parts = []
    if missing := expected - known:
        symbols = first_of(map(repr, sorted(missing)))
        parts.append(f"lacks {len(missing)} of the {len(expected)} symbols of the tokens: {symbols}")
    if extra := known - expected:
        parts.append(f"has {len(extra)} words that the tokens lack: {first_of(map(repr, sorted(extra)))}")
    if parts:
        raise DataError(
            f"{name}: the language model {', and '.join(parts)}. Estimate one of the same tokens: "
            "las ngram corpus=... text=... output=..."
        )
    if log10_end < NEVER:
        raise DataError(
            f"{name}: the language model never ends a sentence (log10 probability of {END}: {log10_end:g}), so "
            "that no hypothesis could. Estimate one from text with sentence ends: las ngram corpus=... output=..."
        )
