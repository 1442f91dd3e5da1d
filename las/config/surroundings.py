"""The surroundings of a command: what a process that it starts, or borrows from a pool, takes over from it."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from las.config import folders, targets


class Surroundings(NamedTuple):
    """Working directory, user config folders and trusted packages of this process, for another one.

    A pool keeps its processes between two sweeps, with the surroundings of the first.
    """

    directory: Path
    folders: folders.Folders
    trusted: tuple[str, ...]

    @classmethod
    def here(cls) -> "Surroundings":
        """Surroundings of this process."""
        return cls(Path.cwd(), folders.own(), tuple(targets.trusted()))

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Work in them within the block."""
        with contextlib.chdir(self.directory), folders.used(self.folders), targets.trust(*self.trusted):
            yield
