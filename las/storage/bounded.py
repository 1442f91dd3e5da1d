"""Files that come from outside, read within bounds: regular files only, none larger or deeper than it can rightly be.

The files of a checkpoint, a bundle and a run folder are read by this module. A link to a regular file is followed; a
device, a FIFO, a socket or a directory is refused, neither read nor waited for.
"""

import errno
import json
import os
import stat
from io import BufferedReader
from pathlib import Path
from typing import Any

from las.runtime.errors import StorageError

POINTER = 1 << 12
"""Bytes at most of a file that names a checkpoint; below, of other kinds of files."""
MANIFEST = 1 << 20
JSON = 1 << 26
LINE = 1 << 24
LINES = 1 << 30
TENSORS = 1 << 34
LANGUAGE_MODEL = 1 << 40

DEEPEST = 100
"""Levels at most of lists and objects inside each other."""

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def size(path: Path, limit: int) -> int:
    """Bytes of a regular file. Raises OSError for anything else, and for a file of more than `limit` bytes."""
    return _require(path, os.stat(path), limit)


def open_file(path: Path, limit: int) -> BufferedReader:
    """A regular file of at most `limit` bytes, open for reading. Raises OSError for anything else."""
    size(path, limit)
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    try:
        _require(path, os.fstat(file.fileno()), limit)  # it may be another one since
    except OSError:
        file.close()
        raise
    return file


def read(path: Path, limit: int) -> bytes:
    """The content of a regular file of at most `limit` bytes. Raises OSError for anything else."""
    with open_file(path, limit) as file:
        return file.read(limit)


def parse(text: str | bytes) -> Any:
    """The value of a JSON text. Raises ValueError for what is none, and for one nested deeper than `DEEPEST`."""
    too_deep = f"lists and objects inside each other, more than {DEEPEST} deep"
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError(too_deep) from error
    level = [value]
    for _ in range(DEEPEST):
        level = [inner for each in level for inner in _inside(each) if isinstance(inner, list | dict)]
        if not level:
            return value
    raise ValueError(too_deep)


def read_object(path: Path, limit: int = JSON) -> dict[str, Any]:
    """The JSON object in a file. Raises OSError as `read` does, ValueError for any other content."""
    return _object(read(path, limit))


def stored(path: Path) -> dict[str, Any]:
    """The same of a file that las has written. Raises StorageError in words."""
    try:
        return read_object(path)
    except (OSError, ValueError) as error:
        raise _damaged(str(path), error) from error


def stored_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a file of JSON lines that las has written, none where there is no file.

    Half a line at the end, of a process that was killed, is none. Raises StorageError naming the line.
    """
    if not path.exists():
        return []
    found, number = [], 0
    try:
        with open_file(path, LINES) as file:
            while line := file.readline(LINE + 1):
                number += 1
                if len(line) > LINE:
                    raise ValueError(f"a line of more than {LINE:,} bytes")
                if line.endswith(b"\n"):
                    found.append(_object(line))
    except (OSError, ValueError) as error:
        raise _damaged(f"{path}:{number}" if number else str(path), error) from error
    return found


def _object(text: bytes) -> dict[str, Any]:
    value = parse(text)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


def _inside(value: Any) -> Any:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _require(path: Path, found: os.stat_result, limit: int) -> int:
    if not stat.S_ISREG(found.st_mode):
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), "something else")
        raise OSError(errno.EINVAL, f"{kind}, not a regular file", str(path))
    if found.st_size > limit:
        raise OSError(errno.EFBIG, f"{found.st_size:,} bytes, more than the {limit:,} that it may have", str(path))
    return found.st_size


def why(error: Exception) -> str:
    """The reason in an error of reading, without the system's number and the path again."""
    return str(getattr(error, "strerror", None) or error)


def _damaged(where: str, error: Exception) -> StorageError:
    return StorageError(
        f"{where}: damaged ({why(error)}): restore it, or move it away, and type the same command again"
    )
