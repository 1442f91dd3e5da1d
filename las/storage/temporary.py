"""A temporary folder of a long-lived program. One that was killed leaves it behind: the next one removes it."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def folder(prefix: str) -> Iterator[Path]:
    """A new folder that only this user may enter, removed afterwards.

    Before, folders of this prefix whose programs no longer live are removed. A living program holds a lock (flock) on
    its folder, of which the system lets go however the program ends.
    """
    _remove_abandoned(prefix)
    path, lock = _locked(prefix)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _locked(prefix: str) -> tuple[Path, int]:
    """A new folder, and the open file that holds its lock."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix))
        try:
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:  # another program took it for abandoned in between
            continue
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.is_dir():
            return path, lock
        os.close(lock)


def _remove_abandoned(prefix: str) -> None:
    """Those of this user on which nobody has a lock; links are not followed."""
    for path in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        try:
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:  # no folder, another user's, or gone by now
            continue
        try:
            if os.fstat(lock).st_uid == os.getuid():
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
        except BlockingIOError:
            pass  # its program lives
        finally:
            os.close(lock)
