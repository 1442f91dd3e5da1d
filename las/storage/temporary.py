"""Temporary folders of long-running programs, removed by the next program where one was killed."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def folder(prefix: str) -> Iterator[Path]:
    """Create a folder that only this user may enter, and remove it after the body.

    Folders of the same prefix left by killed programs are removed first. A running program holds a lock (flock) on its
    folder, which the system releases however the program ends.
    """
    _remove_abandoned(prefix)
    path, lock = _locked(prefix)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _locked(prefix: str) -> tuple[Path, int]:
    """Create a folder and lock it. Returns the folder and the descriptor that holds the lock."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix))
        try:
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:  # another program removed it as abandoned in between
            continue
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.is_dir():
            return path, lock
        os.close(lock)


def _remove_abandoned(prefix: str) -> None:
    """Remove this user's folders of a prefix that nobody has locked; links are not followed."""
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
            pass  # its program is running
        finally:
            os.close(lock)
