"""Output symbols learned from training texts: characters, words, phones, or pieces of words."""

from collections.abc import Collection, Iterable
from typing import Any

from las.config import overrides
from las.data.tokenizers import Characters, Phones, Tokenizer, TrainedSentencePieces
from las.runtime.errors import DataError

UNITS = ("characters", "words", "bpe", "phones")


class LearnedCharacters(Characters):
    """Characters of the training texts; `state()` is that of `Characters`."""

    def remedy(self, missing: Collection[str]) -> str:
        return remedy(overrides.quoted("corpus.text.drop", "".join(sorted(missing))))


class LearnedPhones(Phones):
    """Phones of the training texts, separated by blanks; `state()` is that of `Phones`."""

    def remedy(self, missing: Collection[str]) -> str:
        return remedy(f'"corpus.text.drop=[{", ".join(sorted(missing))}]"')

    def state(self) -> dict[str, Any]:
        return {"kind": "Phones", "symbols": list(self.symbols[1:])}


class LearnedWords(LearnedPhones):
    """Words of the training texts; `state()` is that of `Phones`, which are separated by blanks as words are."""

    def remedy(self, missing: Collection[str]) -> str:
        return "corpus.unit=bpe and characters spell any word; limits.unknown=1 allows unknown ones, as errors"


class LearnedPieces(TrainedSentencePieces):
    """Pieces of words learned from the training texts."""

    def remedy(self, missing: Collection[str]) -> str:
        characters = set("".join(missing)) - set("".join(self.symbols[1:]))
        return remedy(overrides.quoted("corpus.text.drop", "".join(sorted(characters))))


def remedy(drop: str) -> str:
    """Advice with an override that drops symbols."""
    return f'The training texts lack them. To remove them: {drop}; to replace some: "corpus.text.map={{é: e, ß: ss}}"'


def tokenizer(unit: str, texts: Iterable[str], num_pieces: int, where: str) -> Tokenizer:
    """Make the tokenizer of a unit from training texts; pieces are learned when the corpus is prepared.

    Raises DataError naming `where` for texts with fewer than two symbols.
    """
    if unit == "bpe":
        return LearnedPieces(num_pieces)
    symbols = sorted(set[str]().union(*(text if unit == "characters" else text.split() for text in texts)))
    if len(symbols) < 2:
        listed = f"one symbol, {symbols[0]!r}" if symbols else "no symbols"
        raise DataError(f"{where}: the training texts have {listed} (corpus.unit={unit}): there is nothing to learn")
    if unit == "characters":
        return LearnedCharacters(symbols)
    return LearnedWords(symbols=symbols) if unit == "words" else LearnedPhones(symbols=symbols)
