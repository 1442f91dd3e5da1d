"""Back-off n-gram models and ARPA files, plain or gzipped.

A model is stored as a tree: an n-gram is its context, an index into the n-grams one shorter, and its last word. An
n-gram takes the same memory at any order, and the successors of a context are contiguous.

The file format, as of SRILM and KenLM: what comes before `\\data\\` is blank or a comment (#), then a line
`ngram 1=COUNT` for each order, a part `\\1-grams:` for each order whose lines are a log10 probability, the words and,
below the highest order, a log10 back-off weight (0 where it is left out), and `\\end\\`.
"""

import codecs
import functools
import gzip
import zlib
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from las.runtime.errors import DataError, suggest
from las.storage import atomic, bounded, text_files

START, END, UNKNOWN = "<s>", "</s>", "<unk>"
GZIP = b"\x1f\x8b"
UNKNOWN_LOG10_PROB = -100.0
"""log10 probability of unknown words where a file has no entry for them, as in KenLM."""


class NGrams(NamedTuple):
    """All n-grams of one order, sorted by context and last word.

    `contexts` are indices among the n-grams of the order below (all 0 for single words), `words` indices into the
    model's words; `log10_probs` of the last word after the context; `log10_backoffs` multiply the probabilities of
    what follows without an n-gram of its own (all 0 at the highest order).
    """

    contexts: NDArray[np.int64]
    words: NDArray[np.int64]
    log10_probs: NDArray[np.float64]
    log10_backoffs: NDArray[np.float64]


@dataclass(frozen=True)
class Model:
    """A back-off model: p(w | h) is that of the n-gram `h w`, else backoff(h) p(w | h without its first word).

    `words` holds every word, the boundaries `<s>` and `</s>` and `<unk>` among them; `ngrams[k]` the n-grams of k + 1
    words; single words are in the order of `words`. `name` stands in errors: the file, or the text of the estimate.
    """

    words: tuple[str, ...]
    ngrams: tuple[NGrams, ...]
    name: str

    @property
    def order(self) -> int:
        return len(self.ngrams)

    @property
    def log10_end(self) -> float:
        return float(self.ngrams[0].log10_probs[self.words.index(END)])


def find(ngrams_keys: NDArray[np.int64], keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the index of each key in the sorted `ngrams_keys`, -1 for keys that are not there."""
    if not len(ngrams_keys):
        return np.full(len(keys), -1)
    indices = np.minimum(np.searchsorted(ngrams_keys, keys), len(ngrams_keys) - 1)
    return np.where(ngrams_keys[indices] == keys, indices, -1)


def write(path: str | Path, model: Model) -> None:
    """Write a model to an ARPA file, atomically; gzipped if the name ends in .gz."""
    path = Path(path)
    text = "".join(_lines(model)).encode("utf-8")
    # Without a time stamp: equal models give equal files.
    atomic.write(path, gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)


def _lines(model: Model) -> Iterator[str]:
    yield "\\data\\\n"
    for size, ngrams in enumerate(model.ngrams, start=1):
        yield f"ngram {size}={len(ngrams.words)}\n"
    texts: list[str] = []
    for size, ngrams in enumerate(model.ngrams, start=1):
        words = [model.words[word] for word in ngrams.words.tolist()]
        contexts = ngrams.contexts.tolist()
        texts = [f"{texts[context]} {word}" for context, word in zip(contexts, words, strict=True)] if texts else words
        yield f"\n\\{size}-grams:\n"
        rows = zip(ngrams.log10_probs.tolist(), texts, ngrams.log10_backoffs.tolist(), strict=True)
        if size < model.order:
            yield from (f"{prob:.7g}\t{text}\t{backoff:.7g}\n" for prob, text, backoff in rows)
        else:
            yield from (f"{prob:.7g}\t{text}\n" for prob, text, _ in rows)
    yield "\n\\end\\\n"


def read(path: str | Path) -> Model:
    """Read a model from an ARPA file, gzipped or not.

    A word `<UNK>` is read as `<unk>`, which is added where it is missing. Raises DataError naming file and line: for a
    malformed line, counts that differ, a probability above 1, a word that is no 1-gram, an n-gram whose context is
    missing or that occurs twice, a file that ends early; and where `<s>` or `</s>` is missing.
    """
    path = Path(path)
    try:
        with bounded.open_file(path, bounded.LANGUAGE_MODEL) as file:
            packed = file.peek(2)[:2] == GZIP
            with gzip.open(file) if packed else file as lines:
                # An overlong line is read in parts, each of which is then malformed.
                return _Reader(path, iter(functools.partial(lines.readline, bounded.LINE), b"")).model()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: the gzip file is damaged ({error}). Copy it again") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error


class _Rows(NamedTuple):
    """The n-grams of one order in the order of the file; `grams` is flat, `numbers` are the line numbers."""

    grams: "array[int]"
    log10_probs: "array[float]"
    log10_backoffs: "array[float]"
    numbers: "array[int]"


class _Reader:
    """A parser of ARPA files; `line` is the current line, stripped, and `number` its number."""

    def __init__(self, path: Path, lines: Iterable[bytes]) -> None:
        self.path = path
        self.lines = iter(lines)
        self.line = b""
        self.number = 0
        self.ids: dict[bytes, int] = {}
        self.words: list[str] = []
        self.keys: list[NDArray[np.int64]] = []

    def model(self) -> Model:
        counts = self.counts()
        ngrams = tuple(self.part(size, count, len(counts)) for size, count in enumerate(counts, start=1))
        if self.line != b"\\end\\":
            self.fail(f"expected \\end\\, found {self.shown()}")
        return Model(tuple(self.words), ngrams, str(self.path))

    def advance(self) -> None:
        """Go to the next line that is not blank."""
        for line in self.lines:
            self.number += 1
            self.line = (line.removeprefix(codecs.BOM_UTF8) if self.number == 1 else line).strip()
            if self.line:
                return
        self.fail("the file ends early: there is no \\end\\. Copy it again")

    def fail(self, reason: str, number: int | None = None) -> NoReturn:
        raise DataError(f"{self.path}:{self.number if number is None else number}: {reason}")

    def shown(self) -> str:
        text = self.line.decode("utf-8", "backslashreplace")
        return repr(text if len(text) <= 80 else f"{text[:80]}...")

    def counts(self) -> list[int]:
        """Parse the header: the number of n-grams of each order. Stops at the line after it."""
        self.advance()
        while self.line.startswith(b"#"):
            self.advance()
        if self.line != b"\\data\\":
            self.fail(f"an ARPA file begins with \\data\\, and this one with {self.shown()}")
        counts: list[int] = []
        self.advance()
        while self.line.startswith(b"ngram"):
            size, _, count = self.line.removeprefix(b"ngram").partition(b"=")
            if size.strip() != b"%d" % (len(counts) + 1) or not text_files.is_integer(count.strip().decode("latin-1")):
                break
            counts.append(int(count))
            self.advance()
        if not counts or self.line.startswith(b"ngram"):
            self.fail(f"expected `ngram {len(counts) + 1}=` and a number, found {self.shown()}")
        return counts

    def part(self, size: int, count: int, highest: int) -> NGrams:
        """Parse the n-grams of one order, whose heading is the current line. Stops at the line after them."""
        heading = self.number
        if self.line != b"\\%d-grams:" % size:
            self.fail(f"expected \\{size}-grams:, found {self.shown()}")
        rows = _Rows(array("i"), array("d"), array("d"), array("q"))
        self.advance()
        while not self.line.startswith(b"\\"):
            self.row(size, rows)
            self.advance()
        if len(rows.numbers) != count:
            self.fail(f"the head announces {count} {size}-grams, but here are {len(rows.numbers)}", heading)
        if size == 1:
            self.complete(rows, heading)
        self.check(rows, size == highest)
        return self.ngrams(size, rows)

    def row(self, size: int, rows: _Rows) -> None:
        """Parse the current line as an n-gram of `size` words."""
        fields = self.line.split()
        backoff = fields.pop() if len(fields) == size + 2 else b"0"
        if len(fields) != size + 1:
            words = "a word" if size == 1 else f"{size} words"
            self.fail(f"expected a log10 probability, {words} and perhaps a log10 back-off, found {self.shown()}")
        if size == 1:
            self.add(fields[1])
        try:
            if b"_" in fields[0] or b"_" in backoff:
                raise ValueError("float would take 1_0 for 10")
            rows.log10_probs.append(float(fields[0]))
            rows.log10_backoffs.append(float(backoff))
            rows.grams.extend(map(self.ids.__getitem__, fields[1:]))
        except ValueError:
            self.fail(f"expected numbers before and after the words, found {self.shown()}")
        except KeyError as error:
            self.fail(f"the word {error.args[0].decode('utf-8', 'backslashreplace')!r} is not among the 1-grams")
        rows.numbers.append(self.number)

    def add(self, word: bytes) -> None:
        if word in self.ids:
            self.fail(f"the word {word.decode()!r} is there twice")
        self.ids[word] = len(self.words)
        try:
            text = word.decode("utf-8")
        except UnicodeDecodeError:
            self.fail("not UTF-8 text. Convert it: iconv -f latin1 -t utf-8")
        self.words.append(UNKNOWN if text == "<UNK>" else text)

    def complete(self, rows: _Rows, heading: int) -> None:
        """Fail if a boundary is missing; add `<unk>` if the file has no entry for it."""
        others = [word for word in self.words if word.startswith("<") and word not in (START, END, UNKNOWN)]
        for symbol in (START, END):
            if symbol not in self.words:
                nearest = suggest(symbol, others)
                self.fail(f"there is no {symbol} among the 1-grams: no sentence can be scored.{nearest}", heading)
        if UNKNOWN not in self.words:
            self.add(UNKNOWN.encode())
            rows.grams.append(self.ids[UNKNOWN.encode()])
            rows.log10_probs.append(UNKNOWN_LOG10_PROB)
            rows.log10_backoffs.append(0.0)
            rows.numbers.append(heading)

    def check(self, rows: _Rows, is_highest: bool) -> None:
        """Fail if a log-probability or a back-off weight is out of range."""
        probs, backoffs = np.asarray(rows.log10_probs), np.asarray(rows.log10_backoffs)
        wrong = ~(np.isfinite(probs) & (probs <= 0) & np.isfinite(backoffs))
        if is_highest:
            wrong |= backoffs != 0
        if wrong.any():
            index = int(wrong.argmax())
            self.fail(
                f"the log10 probability {probs[index]:g} must be finite and not above 0, the log10 back-off "
                f"{backoffs[index]:g} finite, and 0 at the highest order",
                rows.numbers[index],
            )

    def ngrams(self, size: int, rows: _Rows) -> NGrams:
        """Return the n-grams of one order, sorted; their keys are kept to find the contexts of the next order."""
        grams = np.asarray(rows.grams, dtype=np.int64).reshape(-1, size)
        contexts = grams[:, 0] if size > 1 else np.zeros(len(grams), dtype=np.int64)
        for level in range(1, size - 1):
            contexts = find(self.keys[level], contexts * len(self.words) + grams[:, level])
        if len(missing := np.flatnonzero(contexts < 0)):
            context = " ".join(self.words[word] for word in grams[missing[0], :-1])
            self.fail(f"its context {context!r} is not among the {size - 1}-grams", rows.numbers[missing[0]])
        keys = contexts * len(self.words) + grams[:, -1]
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        if len(twice := np.flatnonzero(keys[1:] == keys[:-1])):
            first, second = (rows.numbers[index] for index in order[twice[0] : twice[0] + 2])
            self.fail(f"this {size}-gram is already on line {first}", second)
        self.keys.append(keys)
        return NGrams(
            contexts[order], grams[order, -1], np.array(rows.log10_probs)[order], np.array(rows.log10_backoffs)[order]
        )
