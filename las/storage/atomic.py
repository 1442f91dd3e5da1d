"""Atomic writes, whose files appear whole or not at all, and temporary folders, gone with their program."""

import fcntl
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from las.runtime.errors import ConfigError, StorageError


def write(path: Path, content: bytes | str | Iterable[str], *, durable: bool = False) -> None:
    """Write a file (text as UTF-8) so that a reader sees the old or the new one. Creates its folder.

    Content given in parts is never held in memory as a whole. A failed write leaves nothing behind. With `durable` the
    content is flushed to the disk before the file gets its name, so that it survives a power cut.
    """
    with opened(path, durable=durable) as file:
        for part in [content] if isinstance(content, (bytes, str)) else content:
            file.write(part.encode("utf-8") if isinstance(part, str) else part)


@contextmanager
def opened(path: Path, *, durable: bool = False) -> Iterator[BinaryIO]:
    """Open a file that a library writes into; it gets its name when the body ends, as with `write`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with created_beside(path) as (temporary, file):
        yield file
        file.flush()
        if durable:
            os.fsync(file.fileno())
        os.replace(temporary, path)


@contextmanager
def created_beside(path: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """Create a file for writing in the folder of `path`, `.<name>.<random>.<pid>`, and remove it after the body.

    Its name cannot be foreseen, and a file or link of that name is never opened, so that nobody who may write into the
    folder chooses where the bytes go. The body may give the file another name. Locks remove those of killed processes.
    """
    # Names may have 255 bytes, and a character up to four.
    temporary = path.with_name(f".{path.name[:48]}.{secrets.token_hex(8)}.{os.getpid()}")
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(temporary, flags, 0o666), "w+b") as file:
        try:
            yield temporary, file
        finally:
            temporary.unlink(missing_ok=True)


def require_place(path: Path, *suffixes: str) -> None:
    """Raise StorageError unless a file can be written at `path`; for a check before the work whose result goes there.

    Raises ConfigError where the name must end in one of the suffixes, which say what is in it, and does not. Creates
    neither file nor folder.
    """
    require_suffix(path, *suffixes)
    if path.exists() and not path.is_file():
        kind = "a folder" if path.is_dir() else "no regular file"
        raise StorageError(f"{path} is {kind}: name a file to write")
    require_folder(path.absolute().parent, path)


def require_suffix(output: Path, *suffixes: str) -> None:
    """Raise ConfigError unless a name ends in one of the suffixes, if there are any."""
    if suffixes and output.suffix not in suffixes:
        raise ConfigError(f"output={output}: the name must end in {' or '.join(suffixes)}")


def require_folder(folder: Path, output: Path | None = None) -> None:
    """Raise StorageError unless files can be written into a folder; messages name `output` if given."""
    existing = folder.absolute()
    while not existing.exists():
        existing = existing.parent
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        message = f"{output or folder}: cannot be written ({existing}: {error.strerror})"
        raise StorageError(f"{message}. Nothing was begun: name another place") from error


def write_json(path: Path, value: Any, *, durable: bool = False) -> None:
    """Write plain data as JSON, as `write` does."""
    write(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n", durable=durable)


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
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
    """Create a folder, and return it with the descriptor that holds its lock."""
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
