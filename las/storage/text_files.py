"""Text files that people and other programs wrote: decoded by their mark, with errors that name line and byte.

Numbers in them are read by `number`, `seconds` and `is_integer`, which take what the formats mean and no more: `float`
and `int` also take `1_0`, `nan` and digits of other scripts, and numbers of 400 digits become infinite or a ValueError.
"""

import codecs
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from las.runtime.errors import DataError
from las.storage import bounded

MAX_SECONDS = 1e9
"""Limit for times in seconds, thirty years: at any sample rate they are numbers of samples that fit into 64 bits."""
_MARKS = (  # UTF-32 before UTF-16, whose little-endian mark begins that of UTF-32
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_INTEGER = re.compile(r"\d{1,18}", re.ASCII)
_VARIANT = re.compile(r"(?<=.)\(\d+\)$")


def read(path: Path, limit: int = bounded.LINES) -> str:
    """Read a text file of at most `limit` bytes: UTF-8, or what the mark at its start says, which is dropped.

    Raises DataError for a file that cannot be read, and for one in another encoding, with line, byte and the
    conversion.
    """
    try:
        content = bounded.read(path, limit)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({bounded.reason(error)})") from error
    return decode(content, path)


def encoding(content: bytes) -> tuple[bytes, str]:
    """Return the byte order mark at the beginning of a text, and the encoding that it says; UTF-8 without one."""
    return next(((mark, name) for mark, name in _MARKS if content.startswith(mark)), (b"", "utf-8"))


def decode(content: bytes, path: Path) -> str:
    """Decode the content of a text file as `read` does; `path` stands in the errors."""
    mark, name = encoding(content)
    try:
        return content[len(mark) :].decode(name)
    except UnicodeDecodeError as error:
        offset = len(mark) + error.start
        if name != "utf-8":
            raise DataError(
                f"{path}: {name[:6].upper()} by its first bytes, and damaged at offset {offset:,} ({error.reason})"
            ) from error
        names = f"{shlex.quote(str(path))} > {shlex.quote(str(path.with_suffix(f'.utf8{path.suffix}')))}"
        raise DataError(
            f"{path}:{content.count(bytes([10]), 0, offset) + 1}: not UTF-8 text: the byte at offset {offset:,} "
            f"is 0x{content[offset]:02x}. If it was written on Windows: iconv -f windows-1252 -t utf-8 {names}"
        ) from error


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Read the lines of a text file that are not blank, without surrounding blanks, with their numbers from 1.

    Raises DataError as `read` does.
    """
    # Not splitlines: it would also split at separators that may stand inside a text.
    for number, line in enumerate(read(path).split("\n"), start=1):
        if stripped := line.strip(" \t\r\f\v"):
            yield number, stripped


def words(path: Path) -> Iterator[tuple[int, str, list[str]]]:
    """Read the lines of a list of words or a pronouncing dictionary: their numbers, words and other columns.

    A line that begins with `;;;` is a comment, and so is what follows a ` #`. The number of a pronunciation, `READ(2)`,
    is no part of its word. Raises DataError as `read` does.
    """
    for number, line in lines(path):
        if not line.startswith(";;;"):
            word, *others = line.partition(" #")[0].split()
            yield number, _VARIANT.sub("", word), others


def number(text: str) -> float:
    """Return the number in decimal notation, `17`, `-0.5` or `1e-3`. Raises ValueError for others, and infinity."""
    value = float(text) if _NUMBER.fullmatch(text) else float("nan")
    if not abs(value) < float("inf"):
        raise ValueError(f"{text[:40]!r}{'...' if len(text) > 40 else ''} is not a number")
    return value


def seconds(text: str) -> float:
    """Return the number of seconds from 0 to `MAX_SECONDS`, in decimal notation. Raises ValueError for other text."""
    if not 0 <= (value := number(text)) <= MAX_SECONDS:
        raise ValueError(f"{text[:40]!r} is not from 0 to {MAX_SECONDS:g} seconds")
    return value


def is_integer(text: str) -> bool:
    """Return whether a text is a whole number of 1 to 18 digits without a sign, which `int` reads."""
    return _INTEGER.fullmatch(text) is not None
