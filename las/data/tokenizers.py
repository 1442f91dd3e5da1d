"""Tokenizers: conversion between text and ids of symbols.

Id 0 is the sentence boundary, both start and end (Zeineldeen et al. 2020); all other symbols start at 1.
"""

import base64
import hashlib
import io
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from las.config import overrides
from las.config.build import require, resolve
from las.data.manifest import Utterance
from las.runtime.errors import DataError, require_known, suggest
from las.scoring import phones
from las.storage import atomic, bounded

BOUNDARY = "</s>"
MODEL_TYPES = ("bpe", "unigram")
_UNKNOWN = "<unk>"
WORD_START = "\u2581"
"""The character ▁, with which the first piece of a word begins."""


class WordPart(NamedTuple):
    """The part of a word that a symbol spells.

    `begins`: the word before ends, and `text`, which may be empty, begins another one. `may_lead`: the symbol may also
    stand before the first word of a text, as a separator may not.
    """

    text: str
    begins: bool
    may_lead: bool


class Tokenizer:
    """Base class of tokenizers: `symbols` (index = id), `encode`, `decode` and a plain `state()`.

    A subclass defines `split` and its inverse `join`. A trained model restores it by its constructor, with what `state`
    returns besides `kind` as keyword arguments: one with other arguments than `symbols` overrides `state`.

    >>> import las
    >>> tokens = las.Characters("abc ")
    >>> tokens.size, tokens.sos, tokens.eos
    (5, 0, 0)
    >>> tokens.encode("a cab"), tokens.decode([4, 2, 1, 3])
    ([1, 4, 3, 1, 2], ' bac')
    >>> las.Phones(39).encode("sil sh iy sil")
    [8, 31, 23, 8]
    """

    sos = 0
    eos = 0

    def __init__(self, symbols: Iterable[str]) -> None:
        self.symbols: tuple[str, ...] = (BOUNDARY, *symbols)
        self._ids = {symbol: index for index, symbol in enumerate(self.symbols)}
        self._known = frozenset(self.symbols[1:])
        if len(self._ids) != len(self.symbols):
            twice = sorted({symbol for symbol in self.symbols if self.symbols.count(symbol) > 1})
            raise DataError(f"the symbols {twice} are listed more than once ({BOUNDARY} is always symbol 0)")

    def __repr__(self) -> str:
        first = " ".join(map(repr, self.symbols[1:6]))
        return f"{type(self).__name__}({self.size} symbols: {first}{' ...' if len(self.symbols) > 6 else ''})"

    @property
    def size(self) -> int:
        """Number of symbols, the boundary included."""
        return len(self.symbols)

    def encode(self, text: str) -> list[int]:
        """Encode a text as ids, without boundaries. Raises DataError naming the unknown symbol and the text."""
        return [self._id(symbol, text) for symbol in self.split(text)]

    def targets(self, utterance: Utterance) -> list[int]:
        """Targets of an utterance: its text, encoded."""
        return self.encode(utterance.text)

    def decode(self, ids: Iterable[int]) -> str:
        """Decode ids to a text; boundaries are dropped. Raises ValueError for an id outside `symbols`."""
        return self.join(self._symbols_of(ids))

    def split(self, text: str) -> Sequence[str]:
        """Split a text into symbols, here at blanks."""
        return text.split()

    def join(self, symbols: Sequence[str]) -> str:
        """Join symbols to a text, the inverse of `split`."""
        return " ".join(symbols)

    def unknown(self, text: str) -> list[str]:
        """List the unknown symbols of a text, one entry for every occurrence."""
        symbols = self.split(text)
        return [] if self._known.issuperset(symbols) else [each for each in symbols if each not in self._known]

    def length(self, text: str) -> int:
        """Return the number of symbols of a text. Raises DataError as `encode` does."""
        symbols = self.split(text)
        return len(symbols) if self._known.issuperset(symbols) else len(self.encode(text))

    def remedy(self, missing: Collection[str]) -> str:
        """Advice for texts with unknown symbols."""
        return "Choose other tokens (tokens@corpus.tokens=...), or mend the texts"

    def nearest(self, symbol: str) -> str:
        """Sentence with the nearest symbols, for an error about an unknown one."""
        return suggest(symbol, self.symbols[1:])

    def known(self, text: str) -> str:
        """Remove the unknown symbols of a text."""
        return self.join([symbol for symbol in self.split(text) if self._ids.get(symbol)])

    def word_part(self, symbol: str) -> WordPart:
        """Return the part of a word that a symbol spells: here the whole word."""
        return WordPart(symbol, begins=True, may_lead=True)

    def state(self) -> dict[str, Any]:
        """State from which `from_state` restores the tokenizer, as plain JSON values."""
        return {"kind": type(self).__name__, "symbols": list(self.symbols[1:])}

    def settings(self) -> dict[str, Any]:
        """Return settings of the tokenizer, as plain JSON values: its state, unless symbols are learned."""
        return self.state()

    def learn(self, texts: Iterable[str], folder: Path) -> None:
        """Learn the symbols from training transcripts, or load them from `folder`; does nothing for fixed symbols."""

    @property
    def vocabulary_hash(self) -> str:
        """Hash (sha256, hex) of the symbols; model files of the same pieces may differ."""
        return hashlib.sha256("\n".join(self.symbols[1:]).encode()).hexdigest()

    def _id(self, symbol: str, text: str) -> int:
        index = self._ids.get(symbol, 0)
        if index == 0:
            where = text if len(text) <= 200 else f"{text[:200]}..."
            message = f"unknown symbol {symbol!r} in the text {where!r}.{self.nearest(symbol)}"
            raise DataError(message, kind="unknown symbols")
        return index

    def _symbols_of(self, ids: Iterable[int]) -> list[str]:
        symbols = []
        for index in map(int, ids):
            if not 0 <= index < self.size:
                raise ValueError(f"there is no symbol {index}: ids run from 0 to {self.size - 1}")
            if index != self.eos:
                symbols.append(self.symbols[index])
        return symbols


class Phones(Tokenizer):
    """Phones separated by spaces: one of TIMIT's sets (`phone_set` 61, 48 or 39), or the given `symbols`."""

    def __init__(self, phone_set: int | None = None, symbols: Sequence[str] | None = None) -> None:
        if (phone_set is None) == (symbols is None):
            raise DataError("phones need either phone_set (61, 48 or 39) or symbols (a list), and not both")
        super().__init__(phones.phone_set(phone_set) if phone_set is not None else symbols or ())


class Characters(Tokenizer):
    """Characters of `alphabet`, each a symbol; a space is the symbol ' '."""

    def __init__(self, alphabet: Sequence[str]) -> None:
        super().__init__(alphabet)
        if any(len(character) != 1 for character in alphabet):
            raise DataError(f"an alphabet holds single characters, not {[c for c in alphabet if len(c) != 1]}")

    def remedy(self, missing: Collection[str]) -> str:
        if all(self._ids.get(symbol.swapcase()) for symbol in missing):
            return "The tokens have them in the other case: convert the texts, or choose tokens@corpus.tokens=..."
        alphabet = "".join([*self.symbols[1:], *sorted(filter(str.isprintable, missing))])
        return f"To add them: {overrides.quoted('corpus.tokens.alphabet', alphabet)}; or mend the texts"

    def nearest(self, symbol: str) -> str:
        return " In this alphabet it stands in the other case." if self._ids.get(symbol.swapcase()) else ""

    def split(self, text: str) -> Sequence[str]:
        return text

    def join(self, symbols: Sequence[str]) -> str:
        return "".join(symbols)

    def word_part(self, symbol: str) -> WordPart:
        return WordPart(symbol.strip(), begins=symbol.isspace(), may_lead=False)

    def state(self) -> dict[str, Any]:
        return {"kind": "Characters", "alphabet": "".join(self.symbols[1:])}


class SentencePieces(Tokenizer):
    """Pieces of a SentencePiece model: `model` is its file, or `model_base64` its content.

    The model's control and unknown pieces are not symbols: a text that the other pieces cannot spell is an error
    instead of a wrong transcript.
    """

    def __init__(self, model: str | Path | None = None, model_base64: str | None = None) -> None:
        if (model is None) == (model_base64 is None):
            raise DataError("sentence pieces need either model (a file) or model_base64 (its content), and not both")
        try:
            content = base64.b64decode(model_base64 or "") if model is None else bounded.read(Path(model), bounded.JSON)
        except (OSError, ValueError) as error:
            raise DataError(f"cannot read the SentencePiece model {model or 'in model_base64'}: {error}") from error
        self._take(content, str(model or "model_base64"))

    def _take(self, content: bytes, where: str) -> None:
        import sentencepiece

        pieces = sentencepiece.SentencePieceProcessor()
        try:
            pieces.LoadFromSerializedProto(content)
        except RuntimeError as error:
            raise DataError(f"{where} is not a SentencePiece model") from error
        self._model, self._processor = content, pieces
        no_symbol = (pieces.IsControl, pieces.IsUnknown, pieces.IsUnused)
        super().__init__(pieces.IdToPiece(i) for i in range(len(pieces)) if not any(test(i) for test in no_symbol))

    def split(self, text: str) -> Sequence[str]:
        return self._processor.EncodeAsPieces(text)

    def remedy(self, missing: Collection[str]) -> str:
        return (
            "Pieces spell what was in the texts that they were learned from: put such texts among the training "
            "transcripts, choose tokens@corpus.tokens=characters, or mend the texts"
        )

    def nearest(self, symbol: str) -> str:
        return ""

    def join(self, symbols: Sequence[str]) -> str:
        return self._processor.DecodePieces(list(symbols))

    def word_part(self, symbol: str) -> WordPart:
        begins = symbol.startswith(WORD_START)
        return WordPart(symbol.removeprefix(WORD_START), begins, may_lead=begins)

    def state(self) -> dict[str, Any]:
        return {"kind": "SentencePieces", "model_base64": base64.b64encode(self._model).decode("ascii")}


class TrainedSentencePieces(SentencePieces):
    """Sentence pieces learned from the training transcripts of a corpus when it is prepared.

    `size` is the exact number of pieces, so that a model can be built before they are learned; `model_type` is bpe or
    unigram. `state()` is that of `SentencePieces`: a checkpoint needs no corpus.
    """

    def __init__(self, size: int, model_type: str = "bpe") -> None:
        require("size", size, 1)
        require_known("model_type", model_type, MODEL_TYPES)
        Tokenizer.__init__(self, ())
        self._num_pieces = size
        self._model_type = model_type

    @property
    def size(self) -> int:
        return self._num_pieces + 1

    def split(self, text: str) -> Sequence[str]:
        if len(self.symbols) == 1:
            raise DataError("these sentence pieces have not been learned: preparing the corpus does so (las prepare)")
        return super().split(text)

    def settings(self) -> dict[str, Any]:
        return {"kind": "LearnedPieces", "size": self._num_pieces, "model_type": self._model_type}

    def learn(self, texts: Iterable[str], folder: Path) -> None:
        """Learn the pieces and write the model to `folder`, under a name made from texts and settings.

        An existing model is loaded if its bytes are those that were written.
        Raises DataError if the texts do not allow that number of pieces.
        """
        listed = list(texts)
        parts = [str(self.settings()), *listed, *_own_symbols(listed)]
        key = hashlib.sha256("\n".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
        path = folder / f"{self._model_type}-{self._num_pieces}-{key[:12]}.model"
        checksum = path.with_suffix(".sha256")
        if not _is_whole(path, checksum):
            train_sentence_pieces(listed, path, self._num_pieces, self._model_type)
            atomic.write(checksum, hashlib.sha256(path.read_bytes()).hexdigest() + "\n")
        self._take(path.read_bytes(), str(path))


def _is_whole(path: Path, checksum: Path) -> bool:
    try:
        return checksum.read_text("ascii").strip() == hashlib.sha256(path.read_bytes()).hexdigest()
    except (OSError, UnicodeDecodeError):
        return False


def train_sentence_pieces(
    texts: Iterable[str], model: str | Path, size: int, model_type: str = "unigram"
) -> SentencePieces:
    """Learn `size` pieces from transcripts, write the model file, and return the tokenizer.

    `model_type` is `unigram` or `bpe`. Learning uses one thread and all texts in their order: the same texts give the
    same pieces. Texts of any length are used without normalisation, and every character becomes a piece, and so does
    `<unk>` in a text.
    Raises DataError if the texts do not allow that number of pieces, with the number they allow.
    """
    import sentencepiece

    listed = list(texts)
    content = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.Train(
            sentence_iterator=iter(listed),
            model_writer=content,
            vocab_size=size + 1,
            model_type=model_type,
            normalization_rule_name="identity",
            character_coverage=1.0,
            unk_id=0,
            **_own_symbols(listed),
            bos_id=-1,
            eos_id=-1,
            pad_id=-1,
            num_threads=1,
            max_sentence_length=1 << 30,  # bytes; longer texts would be skipped in silence
            minloglevel=2,
        )
    except (RuntimeError, OSError) as error:
        reason = _allowed(str(error)) or str(error)
        raise DataError(f"cannot learn {size} {model_type} pieces from {len(listed)} texts: {reason}") from error
    model = Path(model)
    atomic.write(model, content.getvalue())
    return SentencePieces(model)


def _own_symbols(texts: Iterable[str]) -> dict[str, Any]:
    """Options of SentencePiece for texts with `<unk>`, as the name of its unknown piece, which it cannot spell."""
    has_unknown = any(_UNKNOWN in text for text in texts)
    return {"user_defined_symbols": _UNKNOWN, "unk_piece": "<las:unknown>"} if has_unknown else {}


def _allowed(message: str) -> str:
    """Possible number of pieces by the message of SentencePiece, without its unknown piece; empty if it has none."""
    if "!sentences_.empty()" in message:
        return "there is no text in them"
    if match := re.search(r"too high .* value <= (\d+)", message):
        return f"the largest possible size is {int(match[1]) - 1} (corpus.tokens.size=...)"
    if match := re.search(r"smaller than required_chars. \d+ vs (\d+)", message):
        return f"the smallest possible size is {int(match[1]) - 1}, a piece for each character (corpus.tokens.size=...)"
    return ""


def from_state(state: dict[str, Any], config: Mapping[str, Any] | None = None) -> Tokenizer:
    """Restore a tokenizer from its `state()`, and the config that it was stored with, which names a class of one's own.

    Raises DataError for an unknown kind, ConfigError for a class that is not allowed.
    """
    kinds: dict[str, type[Tokenizer]] = {kind.__name__: kind for kind in (Phones, Characters, SentencePieces)}
    arguments = dict(state)
    kind = arguments.pop("kind", None)
    try:
        target = str(config["corpus"]["tokens"]["_target_"]) if config else ""
    except (KeyError, TypeError):  # a config from elsewhere
        target = ""
    if kind not in kinds and target.rpartition(".")[2] == kind:
        kinds[kind] = resolve(target)
    if kind not in kinds or not issubclass(kinds[kind], Tokenizer):
        raise DataError(f"tokens of kind {kind!r} are unknown.{suggest(str(kind), kinds)}")
    return kinds[kind](**arguments)
