"""Search of a folder and those below it for files. Links are followed, and what is left out is named."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from las.runtime.errors import first_of
from las.storage import bounded

APPLE_DOUBLE = "._"
"""Beginning of the names of files that macOS writes next to others, on disks of other systems: no data."""


class Found(NamedTuple):
    """The regular files below a folder, sorted by path, and what was left out by its reason."""

    folder: Path
    files: list[Path]
    left_out: dict[str, list[Path]]

    def remarks(self) -> list[str]:
        """Return a line for each reason, with the number of what was left out and the first three of them."""
        return [
            f"{self.folder}: left out, {reason} ({len(paths):,}): "
            f"{first_of((str(path.relative_to(self.folder)) for path in sorted(paths)), 3)}"
            for reason, paths in self.left_out.items()
        ]


def search(folder: Path) -> Found:
    """Find all files below a folder."""
    found = Found(folder, [], {})
    for path, entries in walk(folder):
        if not isinstance(entries, list):
            reason = entries if isinstance(entries, str) else f"cannot be read ({bounded.reason(entries)})"
            found.left_out.setdefault(reason, []).append(path)
            continue
        for entry in entries:
            if entry.name.startswith(APPLE_DOUBLE) and not _holds(entry.is_dir):
                found.left_out.setdefault("written by macOS next to other files", []).append(Path(entry.path))
            elif _holds(entry.is_file):
                found.files.append(Path(entry.path))
            elif not _holds(entry.is_dir):
                reason = "links that lead to no file" if entry.is_symlink() else "neither files nor folders"
                found.left_out.setdefault(reason, []).append(Path(entry.path))
    found.files.sort()
    return found


def walk(folder: Path) -> Iterator[tuple[Path, list[os.DirEntry[str]] | OSError | str]]:
    """Yield each folder from `folder` on with its entries, or with the error or the reason why it is left out.

    Folders that the receiver takes out of the entries are not entered. A folder that several paths lead to is read
    once: under its own path, if that is one of them, as links come after all real folders. A link to a folder that
    holds the searched one is not followed, as it would lead in a circle.
    """
    above = {_identity(parent) for parent in Path(os.path.realpath(folder)).parents if parent.exists()}
    read: set[tuple[int, int]] = set()
    waiting, linked = [str(folder)], list[str]()
    while waiting or linked:
        if not waiting:
            waiting, linked = sorted(linked, reverse=True), []
        path = waiting.pop()
        try:
            place = _identity(path)
            entries = [] if place in above or place in read else list(os.scandir(path))
        except OSError as error:
            yield Path(path), error
            continue
        if place in above:
            yield Path(path), "folders that hold this one"
        elif place in read:
            yield Path(path), "folders that are read under another path"
        else:
            read.add(place)
            yield Path(path), entries
        for entry in entries:
            if _holds(entry.is_dir):
                (linked if entry.is_symlink() else waiting).append(entry.path)


def _identity(folder: str | Path) -> tuple[int, int]:
    status = os.stat(folder)
    return status.st_dev, status.st_ino


def _holds(question: Callable[[], bool]) -> bool:
    """Answer a question to a directory entry; False for a link that leads to itself, which raises OSError."""
    try:
        return question()
    except OSError:
        return False
