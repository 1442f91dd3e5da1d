"""Lock of a run folder, for one process at a time.

The lock is a file that names its holder. The lock of a dead process of this machine (killed, crashed) is taken over.
Processes of another machine cannot be checked, so their lock stays until somebody removes it.
"""

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from las.runtime import progress
from las.runtime.errors import StorageError
from las.storage import atomic, bounded, run_records
from las.storage.run_records import NUMBER, TEXT, WHOLE

NAME = "lock.json"
HOLDER = run_records.Kinds({"pid": WHOLE, "host": TEXT, "since": NUMBER}, {"born": TEXT})
STALE_GUARD_S = 10.0
"""Age in seconds from which the guard file of a takeover counts as stale; a takeover itself takes almost no time."""


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """Hold the lock of a folder while the body runs. Raises StorageError naming the process that holds it already."""
    path = directory / NAME
    holder_entry = {"pid": os.getpid(), "host": socket.gethostname(), "born": _born(os.getpid()), "since": time.time()}
    with atomic.created_beside(path) as (own, file):
        file.write(json.dumps(holder_entry).encode())
        file.flush()
        while not _take(own, path):
            holder = _holder(path)
            if holder is not None and _alive(holder):
                raise StorageError(_refusal(path, holder))
            _remove_dead(path)
    _remove_leftovers(directory)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def holder_lives(directory: Path) -> bool:
    """Return whether a process holds the lock of a folder; one of another machine counts as alive.

    Raises OSError and ValueError for a damaged lock.
    """
    try:
        return _alive(_read(directory / NAME))
    except FileNotFoundError:
        return False


def _take(own: Path, path: Path) -> bool:
    """Link the file that names this process to `path`, atomically. Returns False if `path` exists."""
    try:
        os.link(own, path)
    except FileExistsError:
        return False
    return True


def _read(path: Path) -> dict[str, Any]:
    """Holder of the lock. Raises OSError if there is no such file, and ValueError for one that names no process."""
    holder = bounded.read_object(path)
    for fault in HOLDER.faults(holder):
        raise ValueError(fault)
    if not 0 < holder["pid"] < 1 << 31:
        raise ValueError(f"pid is {run_records.shown(holder['pid'])}, not that of a process")
    return holder


def _holder(path: Path) -> dict[str, Any] | None:
    """Holder of the lock; None if it was released or the file is unreadable."""
    try:
        return _read(path)
    except (OSError, ValueError):
        return None


def _alive(holder: dict[str, Any]) -> bool:
    if holder["host"] != socket.gethostname():
        return True
    born = _born(holder["pid"])
    return born is not None and born == holder.get("born")


def _born(pid: int) -> str | None:
    """Start time of a process of this machine, in clock ticks, which tells it from a later one with the same pid."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass  # another user's, and alive
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # a system without /proc: the number alone has to do
        return ""
    return None if fields[0] == "Z" else fields[19]


def _remove_dead(path: Path) -> None:
    """Remove the lock if its holder is dead, guarded so that no process removes the lock of a new holder."""
    guard = path.with_name(f"{NAME}.changing")
    try:
        os.close(os.open(guard, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        if abs(time.time() - guard.lstat().st_mtime) > STALE_GUARD_S:
            raise StorageError(
                f"{guard}: stale lock file of a killed process: delete it and run the command again"
            ) from None
        time.sleep(0.05)
        return
    try:
        holder = _holder(path)
        if holder is None or not _alive(holder):
            path.unlink(missing_ok=True)
            if holder is not None:
                progress.say(
                    f"{path.parent}: process {holder['pid']} that held this run is gone; going on in its place"
                )
    finally:
        guard.unlink()


def _remove_leftovers(directory: Path) -> None:
    """Remove temporary files of dead processes (`atomic.created_beside`) in the folder and among its checkpoints."""
    for path in (*directory.glob(".*"), *directory.glob("checkpoints/.*")):
        pid = path.suffix[1:]
        if pid.isdecimal() and path.is_file() and _born(int(pid)) is None:
            path.unlink(missing_ok=True)


def _refusal(path: Path, holder: dict[str, Any]) -> str:
    age = progress.duration(max(0.0, time.time() - holder["since"]))  # the clock may have been set back
    here = holder["host"] == socket.gethostname()
    advice = (
        f"Wait for it, stop it (kill {holder['pid']}), or start a run of its own with name=..."
        if here
        else f"If you know that it is dead, remove {path}"
    )
    return (
        f"{path.parent} is in use by process {holder['pid']} on {holder['host']}, for {age} (hours:minutes:seconds). "
        f"{advice}"
    )
