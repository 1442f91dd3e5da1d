"""Files that appear whole or not at all."""

import json
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from las.runtime.errors import StorageError


def write(path: Path, content: bytes | str | Iterable[str], *, durable: bool = False) -> None:
    """Write a file (text as UTF-8) so that a reader sees the old one or the new one; makes its folder.

    What comes in parts is never held as a whole. A write that the disk refuses leaves nothing behind. What is `durable`
    outlives a power cut: it is on the disk before it gets its name.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            for part in [content] if isinstance(content, (bytes, str)) else content:
                file.write(part.encode("utf-8") if isinstance(part, str) else part)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def require_place(path: Path) -> None:
    """Raise StorageError unless a file can be written at `path`, tried before the work whose result goes there.

    Leaves nothing behind, no folder either.
    """
    if path.exists() and not path.is_file():
        kind = "a folder" if path.is_dir() else "no regular file"
        raise StorageError(f"{path} is {kind}: name a file to write")
    require_folder(path.absolute().parent, path)


def require_folder(folder: Path, wanted: Path | None = None) -> None:
    """The same of a folder that files, or the file `wanted`, will be written into."""
    there = folder.absolute()
    while not there.exists():
        there = there.parent
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        says = f"{wanted or folder}: cannot be written ({there}: {error.strerror})"
        raise StorageError(f"{says}. Nothing was begun: name another place") from error


def write_json(path: Path, value: Any, *, durable: bool = False) -> None:
    """The same of plain data."""
    write(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n", durable=durable)
