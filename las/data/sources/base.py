"""Entries of sources, options of their readers, and decoded text files with errors that name the byte."""

import codecs
import os
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from las.data.manifest import Interval
from las.runtime.errors import DataError
from las.storage import bounded

AUDIO_SUFFIXES = (".wav", ".flac", ".sph", ".ogg", ".opus", ".mp3", ".aiff", ".aif", ".au")
"""Endings by which audio files in a folder are recognised; a file that is named may end in anything."""
_UNUSUAL_START = ("", ".", "~")


class Entry(NamedTuple):
    """Utterance as a source describes it, before its audio file is opened.

    `where` is the file and line that describe it, `audio` is a path as `audio_path` makes it. Without an `id`, one is
    made from the name of the audio file; an empty `speaker` is unknown. A duration of None reaches to the end of the
    file.
    """

    where: str
    audio: str
    text: str
    id: str = ""
    speaker: str = ""
    channel: int | None = None
    start_s: float = 0.0
    duration_s: float | None = None
    alignment: tuple[Interval, ...] = ()


class Source(NamedTuple):
    """Content of a source: entries, the text files that were read, and remarks about what was left out."""

    entries: list[Entry]
    files: list[Path]
    remarks: list[str]


class ReadingOptions(NamedTuple):
    """Options of all readers.

    columns: names of the columns by role (`audio`, `text`, ...), where they are not the usual ones. audio_root: folder
    that relative paths of audio start from; None: the folder of the file that names them.
    """

    columns: Mapping[str, str | None]
    audio_root: Path | None

    def folder(self, path: Path) -> Path:
        """The folder that relative paths in the file `path` start from."""
        return self.audio_root or path.parent


def audio_path(folder: Path, name: str) -> str:
    """Path of an audio file that a source in `folder` names, as `folder / name` in plain form, with `~` expanded."""
    if name[:1] in _UNUSUAL_START or "/." in name or "//" in name or name.endswith("/"):
        return str(folder / os.path.expanduser(name))  # the plain form may be another one
    start = str(folder)
    return name if start == "." else os.path.join(start, name)


def text(path: Path) -> str:
    """Read a text file; a byte order mark of UTF-8 is dropped.

    Raises DataError for a file that cannot be read, and for one that is not UTF-8, with line, byte and the conversion.
    """
    try:
        content = bounded.read(path, bounded.LINES)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({bounded.reason(error)})") from error
    names = f"{shlex.quote(str(path))} > {shlex.quote(str(path.with_suffix(f'.utf8{path.suffix}')))}"
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DataError(
            f"{path}: UTF-16 by its first two bytes, and not UTF-8. Convert it: iconv -f utf-16 -t utf-8 {names}"
        )
    mark = len(codecs.BOM_UTF8) if content.startswith(codecs.BOM_UTF8) else 0
    try:
        return content[mark:].decode("utf-8")
    except UnicodeDecodeError as error:
        offset = mark + error.start
        raise DataError(
            f"{path}:{content.count(bytes([10]), 0, offset) + 1}: not UTF-8 text: the byte at offset {offset:,} "
            f"is 0x{content[offset]:02x}. If it was written on Windows: iconv -f windows-1252 -t utf-8 {names}"
        ) from error


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Read the lines of a text file that are not blank, with their numbers from 1. Raises DataError as `text` does."""
    for number, line in enumerate(text(path).split("\n"), start=1):
        if stripped := line.strip(" \t\r\f\v"):
            yield number, stripped


def first_of(names: list[str], count: int = 10) -> str:
    """The first names of a list, and the number of further ones: `a, b and 3 more`."""
    more = f" and {len(names) - count:,} more" if len(names) > count else ""
    return ", ".join(names[:count]) + more
