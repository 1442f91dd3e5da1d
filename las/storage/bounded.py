"""Bounded reading of untrusted files: regular files only, limited in size and in depth of their JSON.

The files of checkpoints, bundles and run folders are read by this module. Links to regular files are followed; devices,
FIFOs, sockets and directories are refused without reading from them or waiting for them. JSON is read strictly: no key
twice in an object, no whole number of more than `MAX_DIGITS` digits.
"""

import codecs
import errno
import itertools
import json
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import Any

from las.runtime.errors import StorageError

POINTER = 1 << 12
"""Size limit in bytes of a file that names a checkpoint; below, those of other kinds of files."""
MANIFEST = 1 << 20
JSON = 1 << 26
LINE = 1 << 24
LINES = 1 << 30
TENSORS = 1 << 34
LANGUAGE_MODEL = 1 << 40

MAX_DEPTH = 100
"""Limit for the depth of nested lists and objects."""
MAX_DIGITS = 100
"""Limit for the length of whole numbers, which those of random generators and times in nanoseconds are far below."""

_BLOCK = 1000
"""Number of JSON lines that are parsed at once."""
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def size(path: Path, limit: int) -> int:
    """Size of a regular file in bytes. Raises OSError for anything else, and for a file of more than `limit` bytes."""
    return _require(path, os.stat(path), limit)


def open_file(path: Path, limit: int) -> BufferedReader:
    """Open a regular file of at most `limit` bytes for reading. Raises OSError for anything else."""
    size(path, limit)
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    try:
        _require(path, os.fstat(file.fileno()), limit)  # the path may name another file by now
    except OSError:
        file.close()
        raise
    return file


def read(path: Path, limit: int) -> bytes:
    """Read a regular file of at most `limit` bytes. Raises OSError for anything else."""
    with open_file(path, limit) as file:
        return file.read(limit)


def parse(text: str | bytes) -> Any:
    """Parse a JSON text, whose bytes may begin with a byte order mark.

    Raises ValueError for invalid JSON, for values nested deeper than `MAX_DEPTH`, for an object with a key twice, and
    for a whole number of more than `MAX_DIGITS` digits.
    """
    too_deep = f"lists and objects inside each other, more than {MAX_DEPTH} deep"
    try:
        value = _STRICT.decode(text if isinstance(text, str) else text.decode("utf-8-sig", "surrogatepass"))
    except RecursionError as error:
        raise ValueError(too_deep) from error
    if _num_openings(text) <= MAX_DEPTH:
        return value
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [inner for each in level for inner in _inside(each) if isinstance(inner, list | dict)]
        if not level:
            return value
    raise ValueError(too_deep)


def _object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        (name, count), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"the key {name!r} is there {'twice' if count == 2 else f'{count} times'}")
    return values


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a number of {len(digits):,} digits, more than the {MAX_DIGITS} that it may have")
    return int(digits)


_STRICT = json.JSONDecoder(object_pairs_hook=_object_of, parse_int=_integer)


def parse_lines(lines: Iterable[bytes]) -> Iterator[tuple[int, Any]]:
    """Parse lines of JSON as `parse` does; blank ones, and a byte order mark before the first, are left out.

    Yields the number of each line, from 1, with its value, or with the ValueError of a line that cannot be parsed.
    """
    number, remaining = 1, iter(lines)
    while block := list(itertools.islice(remaining, _BLOCK)):
        if number == 1:
            block[0] = block[0].removeprefix(codecs.BOM_UTF8)
        numbered = [(index, line) for index, line in enumerate(block, start=number) if not line.isspace()]
        for (index, _), value in zip(numbered, _values([line for _, line in numbered]), strict=True):
            yield index, value
        number += len(block)


def _values(lines: list[bytes]) -> list[Any]:
    """Values of lines, parsed at once, which takes half as long as one by one; errors in place of those that fail."""
    if all(_num_openings(line) <= MAX_DEPTH for line in lines):
        try:
            values: list[Any] = _STRICT.decode((b"[" + b",".join(lines) + b"]").decode("utf-8", "surrogatepass"))
        except ValueError:
            pass  # the lines are parsed one by one to find the wrong one
        else:
            if len(values) == len(lines):
                return values
    return [_value(line) for line in lines]


def _value(line: bytes) -> Any:
    try:
        return parse(line.decode("utf-8", "surrogatepass"))
    except ValueError as error:
        return error


def read_object(path: Path, limit: int = JSON) -> dict[str, Any]:
    """Read the JSON object in a file. Raises OSError as `read` does, ValueError for any other content."""
    return parse_object(read(path, limit))


def stored(path: Path) -> dict[str, Any]:
    """Read the JSON object in a file written by las. Raises StorageError naming the file and what is wrong with it."""
    try:
        return read_object(path)
    except (OSError, ValueError) as error:
        raise _damaged(str(path), error) from error


def stored_lines(path: Path) -> list[dict[str, Any]]:
    """Read the objects of a JSON lines file written by las; an empty list where there is no file.

    An incomplete last line, as a killed process leaves it, is dropped. Raises StorageError naming the line.
    """
    if not path.exists():
        return []
    objects, number = [], 0
    try:
        with open_file(path, LINES) as file:
            while line := file.readline(LINE + 1):
                number += 1
                if len(line) > LINE:
                    raise ValueError(f"a line of more than {LINE:,} bytes")
                if line.endswith(b"\n"):
                    objects.append(parse_object(line))
    except (OSError, ValueError) as error:
        raise _damaged(f"{path}:{number}" if number else str(path), error) from error
    return objects


def parse_object(text: bytes) -> dict[str, Any]:
    """Parse a JSON object as `parse` does. Raises ValueError for any other value too."""
    value = parse(text)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


def _num_openings(text: str | bytes) -> int:
    """Return the number of brackets that may begin a list or an object; no value is nested deeper."""
    return text.count("[") + text.count("{") if isinstance(text, str) else text.count(b"[") + text.count(b"{")


def _inside(value: Any) -> Any:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _require(path: Path, status: os.stat_result, limit: int) -> int:
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "something else")
        raise OSError(errno.EINVAL, f"{kind}, not a regular file", str(path))
    if status.st_size > limit:
        raise OSError(errno.EFBIG, f"{status.st_size:,} bytes, more than the {limit:,} that it may have", str(path))
    return status.st_size


def reason(error: Exception) -> str:
    """Reason of a reading error, without the system's error number and the path."""
    return str(getattr(error, "strerror", None) or error)


def _damaged(where: str, error: Exception) -> StorageError:
    return StorageError(
        f"{where}: damaged ({reason(error)}): restore it, or move it away, and type the same command again"
    )
