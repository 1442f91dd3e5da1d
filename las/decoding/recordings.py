"""Recordings in the forms that a transcriber takes: paths, folders, file objects, arrays and tensors."""

import glob
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
from torch import Tensor

from las.data.audio import files, streaming
from las.data.audio.streaming import Readable, Recording
from las.runtime import distributed, progress
from las.runtime.errors import ArgumentError, DataError
from las.storage import folders

Audio = str | Path | Readable | np.ndarray | Tensor
"""A file, by its path or open for reading bytes, or samples [samples] or [channels, samples]."""


class OpenedRecordings(NamedTuple):
    """Recordings as `transcribe_all` takes them; file objects are copies, whose names are known by their paths."""

    audio: list[str | Path | Recording]
    names: dict[str, str]

    def display(self, text: str) -> str:
        """A text with the names of file objects in place of the paths of their copies."""
        for path, name in self.names.items():
            text = text.replace(path, name)
        return text


@contextmanager
def opened(audio: Sequence[Audio], sample_rate: int | None) -> Iterator[OpenedRecordings]:
    """Copy file objects to temporary files, removed after the body; arrays are called `audio<number in the list>`.

    Raises ArgumentError for samples without a rate, a rate without samples, and file objects that give no bytes.
    """
    with ExitStack() as stack:
        copies: list[str | Path | np.ndarray | Tensor] = []
        names = {}
        for number, each in enumerate(audio):
            if not isinstance(each, Readable):
                copies.append(each)
                continue
            if not isinstance(each.read(0), bytes):
                raise ArgumentError(f"{each!r} gives no bytes: open the file as open('x.wav', 'rb')")
            copies.append(stack.enter_context(streaming.spooled(each)))
            name = getattr(each, "name", None)
            names[str(copies[-1])] = name if isinstance(name, str) else f"audio{number}"
        yield OpenedRecordings(_named(copies, sample_rate), names)


def _named(audio: Sequence[str | Path | np.ndarray | Tensor], sample_rate: int | None) -> list[str | Path | Recording]:
    """Files as they are, samples with their rate and `audio<number in the list>` for a name."""
    if sample_rate is None:
        for each in audio:
            if not isinstance(each, (str, Path)):
                raise ArgumentError("sample_rate=None: samples do not say it: transcribe(samples, sample_rate=16000)")
        return [each for each in audio if isinstance(each, (str, Path))]
    if sample_rate < 1:
        raise ArgumentError(f"sample_rate={sample_rate} must be at least 1, for example 16000")
    if audio and all(isinstance(each, (str, Path)) for each in audio):
        raise ArgumentError(f"sample_rate={sample_rate} is for arrays and tensors: files know theirs, leave it out")
    return [
        each if isinstance(each, (str, Path)) else Recording(each, sample_rate, f"audio{number}")
        for number, each in enumerate(audio)
    ]


def find_audio(names: str | Sequence[str]) -> list[Path]:
    """Find audio files by names of files, folders (searched recursively, sorted) and patterns with `*`, `?` or `[...]`,
    each of them once.

    Raises DataError for a folder without audio, and for a name that neither exists nor matches as a pattern.
    """
    paths: list[Path] = []
    for name in [names] if isinstance(names, str) else names:
        path = Path(name)
        if path.is_dir():
            found = folders.search(path)
            inside = [each for each in found.files if each.suffix.lower() in files.SUFFIXES]
            if not inside:
                raise DataError("\n".join([f"{path}: {files.NOT_FOUND}", *found.remarks()]))
            _say(found.remarks())
            paths += inside
        elif path.exists():
            paths.append(path)
        elif matches := _matches(name):
            paths += matches
        else:
            raise DataError(f"{path}: there is no such audio file or folder")
    return list(dict.fromkeys(paths))


def _matches(pattern: str) -> list[Path]:
    """Files that match a pattern, sorted; of several paths to one folder, as links make them, the shortest is taken."""
    found = sorted(map(Path, glob.glob(pattern, recursive=True)), key=lambda path: (len(path.parts), path))
    by_place = {(os.path.realpath(path.parent), path.name): path for path in reversed(found)}
    if twice := len(found) - len(by_place):
        _say([f"{pattern}: left out, in folders that are read under another path: {twice:,}"])
    return sorted(by_place.values())


def _say(remarks: list[str]) -> None:
    with distributed.only_main_prints():
        for remark in remarks:
            progress.say(remark)
