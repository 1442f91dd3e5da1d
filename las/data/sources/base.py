"""Entries of sources, and options of their readers."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from las.data.manifest import Interval

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
        """Return the folder that relative paths in the file `path` start from."""
        return self.audio_root or path.parent


def audio_path(folder: Path, name: str) -> str:
    """Path of an audio file that a source in `folder` names, as `folder / name` in plain form, with `~` expanded."""
    if name[:1] in _UNUSUAL_START or "/." in name or "//" in name or name.endswith("/"):
        return str(folder / os.path.expanduser(name))  # the plain form may be another one
    start = str(folder)
    return name if start == "." else os.path.join(start, name)
