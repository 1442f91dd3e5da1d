"""Search of a folder and those below it for files. Links are followed, and what is left out is named."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from las.runtime.errors import first_of
from las.storage import bounded

APPLE_DOUBLE = "._"
"""Beginning of the names of files that macOS writes beside others, on disks of other systems: no data of the user's."""


class Found(NamedTuple):
    """The regular files below a folder, sorted by path, and what was left out by its reason."""

    folder: Path
    files: list[Path]
    left_out: dict[str, list[Path]]

    def remarks(self) -> list[str]:
        """A line for each reason, with the number of what was left out and the first three of them."""
        return [
            f"{self.folder}: left out, {reason} ({len(paths):,}): "
            f"{first_of([str(path.relative_to(self.folder)) for path in sorted(paths)], 3)}"
            for reason, paths in self.left_out.items()
        ]


def search(folder: Path) -> Found:
    """Find all files below a folder.

    A folder that several paths lead to is read once: under its own path, if that is one of them. A link to a folder
    that holds the searched one is not followed, as it would lead in a circle.
    """
    return _Search(folder).found


class _Search:
    """A search in progress: identities of the folders that were read, and of those that hold the searched one."""

    def __init__(self, folder: Path) -> None:
        self.found = Found(folder, [], {})
        self.read: set[tuple[int, int]] = set()
        self.above = {_identity(parent) for parent in Path(os.path.realpath(folder)).parents if parent.exists()}
        linked = [str(folder)]
        while linked:  # links after all real folders, so that these are read under their own paths
            linked = sorted(link for start in linked for link in self._walk(start))
        self.found.files.sort()

    def _walk(self, start: str) -> list[str]:
        """Take the files of a folder and of the real ones below it; returns the links to further folders."""
        stack, linked = [start], list[str]()
        while stack:
            folder = stack.pop()
            try:
                place = _identity(folder)
                entries = list(os.scandir(folder)) if self._is_new(place, folder) else []
            except OSError as error:
                self._leave_out(f"cannot be read ({bounded.reason(error)})", folder)
                continue
            for entry in entries:
                if _holds(entry.is_dir):
                    (linked if entry.is_symlink() else stack).append(entry.path)
                else:
                    self._take(entry)
        return linked

    def _is_new(self, place: tuple[int, int], folder: str) -> bool:
        """Note a folder as read; say of one that was, or that holds the searched one, that it is left out."""
        if place in self.above:
            self._leave_out("folders that hold this one", folder)
        elif place in self.read:
            self._leave_out("folders that are read under another path", folder)
        else:
            self.read.add(place)
            return True
        return False

    def _take(self, entry: "os.DirEntry[str]") -> None:
        if entry.name.startswith(APPLE_DOUBLE):
            self._leave_out("written by macOS beside other files", entry.path)
        elif _holds(entry.is_file):
            self.found.files.append(Path(entry.path))
        else:
            reason = "links that lead to no file" if entry.is_symlink() else "neither files nor folders"
            self._leave_out(reason, entry.path)

    def _leave_out(self, reason: str, path: str) -> None:
        self.found.left_out.setdefault(reason, []).append(Path(path))


def _identity(folder: str | Path) -> tuple[int, int]:
    status = os.stat(folder)
    return status.st_dev, status.st_ino


def _holds(question: Callable[[], bool]) -> bool:
    """Answer of a question to a directory entry; False for a link that leads to itself, which raises OSError."""
    try:
        return question()
    except OSError:
        return False
