"""Safe extraction of tar and tar.gz files from untrusted sources: nothing is written outside the target folder.

Only plain files and folders are extracted, with fresh permissions. Links, devices, unsafe names and archives that
expand far beyond their size are refused, and what was extracted until then is removed.
"""

import gzip
import re
import shutil
import stat
import struct
import tarfile
import unicodedata
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BufferedIOBase
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NamedTuple, cast

from las.runtime.errors import DataError, StorageError

_CHUNK = 1 << 20
_MAX_HEADER = 1 << 20  # of one long name or list of attributes
_FILE_COST = 1 << 15  # bytes that a file counts beyond its content, so that many empty files are bounded too
_SLACK = 64 << 20  # bytes below which the ratio is not checked
_DRIVE_OR_CONTROL = re.compile(r"^[A-Za-z]:|[\\\x00-\x1f\x7f]")
# Exceptions of the standard library's readers for damaged or malicious archives.
_DAMAGE = (
    tarfile.TarError,
    gzip.BadGzipFile,
    zlib.error,
    EOFError,
    ValueError,
    struct.error,
    RecursionError,
)


class Caps(NamedTuple):
    """Limits of an archive: bytes extracted, files and folders, bytes extracted for each byte of the archive."""

    num_bytes: int = 128 << 30
    num_files: int = 400_000
    ratio: int = 20


DEFAULT_CAPS = Caps()


@dataclass
class _Entry:
    """Plain file (`content` gives its bytes) or folder (`content` is None) of an archive."""

    name: str
    size: int
    content: BufferedIOBase | None


def extract(archive: Path, folder: Path, caps: Caps = DEFAULT_CAPS) -> None:
    """Extract an archive into an empty or new folder.

    Raises DataError naming the archive, the entry and the reason for an archive that is damaged, hostile or larger than
    `caps` allow, and StorageError where the folder cannot be written; the folder is then empty again.
    """
    if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        raise StorageError(f"{folder}: is not an empty folder: archives are unpacked into new ones")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _unpack(archive, folder, caps)
    except BaseException as error:
        for entry in list(folder.iterdir()) if folder.is_dir() else []:
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
        if isinstance(error, _DAMAGE):
            raise DataError(f"{archive}: the archive is damaged ({error}). Download it again") from error
        if isinstance(error, OSError):
            raise StorageError(f"{folder}: {archive.name} cannot be unpacked ({error})") from error
        raise


def _unpack(archive: Path, folder: Path, caps: Caps) -> None:
    dry_run = _Limiter(archive, caps)
    for _ in _entries(archive, dry_run):  # finds most bombs at their beginning, before anything is written
        if dry_run.num_bytes > _SLACK:
            break
    for path, entry in _entries(archive, _Limiter(archive, caps)):
        target = folder / path
        if entry.content is None:
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            _write(target, entry.content, entry.size)


def _entries(archive: Path, limiter: "_Limiter") -> Iterator[tuple[PurePosixPath, _Entry]]:
    """Entries of an archive with their target paths, each checked before it is yielded."""
    with archive.open("rb") as file:
        beginning = file.read(512)
        file.seek(0)
        if beginning.startswith(b"\x1f\x8b"):
            entries = _tar_entries(gzip.GzipFile(fileobj=file), file, limiter)
        elif beginning[257:262] == b"ustar":
            entries = _tar_entries(file, file, limiter)
        else:
            raise DataError(f"{archive}: not a tar or tar.gz file")
        names = _Names(archive)
        for entry in entries:
            yield names.checked(entry), entry


def _write(target: Path, content: BufferedIOBase, size: int) -> None:
    with target.open("xb") as file:  # x: never through something that is there
        while size and (chunk := content.read(min(_CHUNK, size))):
            file.write(chunk)
            size -= len(chunk)
    if size:
        raise EOFError(f"{target.name} lacks {size:,} bytes")


@dataclass
class _Limiter:
    """Counts what has been extracted and checks it against the caps and the bytes of the archive read so far."""

    archive: Path
    caps: Caps
    num_bytes: int = 0
    num_files: int = 0

    def add(self, num_bytes: int, name: str, consumed: int) -> None:
        """Count an entry before it is unpacked."""
        self.num_files += 1
        self.num_bytes += num_bytes
        self.check(self.num_bytes + self.num_files * _FILE_COST, name, consumed)

    def check(self, cost: int, name: str, consumed: int) -> None:
        if self.num_files > self.caps.num_files:
            self.refuse(name, f"more than {self.caps.num_files:,} files")
        if self.num_bytes > self.caps.num_bytes:
            self.refuse(name, f"more than {self.caps.num_bytes:,} bytes unpacked")
        if cost > _SLACK + self.caps.ratio * consumed:
            self.refuse(name, f"it swells to more than {self.caps.ratio} times its size: an archive bomb?")

    def refuse(self, name: str, reason: str) -> None:
        raise DataError(f"{self.archive}: refused at {name!r}: {reason}. Nothing was unpacked")


@dataclass
class _Names:
    """Names of an archive so far, as seen by a file system that ignores case and composes accents."""

    archive: Path
    registered_names: dict[str, tuple[str, bool]] = field(default_factory=dict)

    def checked(self, entry: _Entry) -> PurePosixPath:
        """Relative target path of an entry. Raises DataError for an unsafe name or one that is taken."""
        path = PurePosixPath(entry.name)
        is_file = entry.content is not None
        if (
            path.is_absolute()
            or ".." in path.parts
            or _DRIVE_OR_CONTROL.search(entry.name)
            or (is_file and not path.name)
        ):
            raise DataError(f"{self.archive}: refused at {entry.name!r}: not a name within a folder")
        for ancestor in (*path.parents, path):
            key = unicodedata.normalize("NFC", str(ancestor)).casefold()
            registered = (str(ancestor), is_file and ancestor == path)
            earlier = self.registered_names.setdefault(key, registered)
            if earlier is not registered and (registered[1] or earlier != registered):
                raise DataError(f"{self.archive}: refused at {str(ancestor)!r}: {earlier[0]!r} is there already")
        return path


def _tar_entries(content: BufferedIOBase, file: BufferedIOBase, limiter: _Limiter) -> Iterator[_Entry]:
    stream = _Stream(content, file, limiter)
    with _Tar(fileobj=cast(BinaryIO, stream), mode="r") as tar:
        while (member := tar.next()) is not None:
            tar.members.clear()  # else tarfile keeps all of them
            if not (member.isreg() or member.isdir()) or member.issparse() or member.size < 0:
                limiter.refuse(member.name, "neither a plain file nor a folder")
            if member.isreg() and member.mode & (stat.S_ISUID | stat.S_ISGID):
                limiter.refuse(member.name, "a file that would run as another user")
            limiter.add(member.size, member.name, file.tell())
            inside = tar.extractfile(member) if member.isreg() else None
            yield _Entry(member.name, member.size, cast(BufferedIOBase | None, inside))
    while stream.read(_CHUNK):
        pass  # at its end the compression has a checksum


class _Tar(tarfile.TarFile):
    members: list[tarfile.TarInfo]  # what was read so far


class _Stream:
    """Forward-only stream of a tar file that stops where it exceeds the limits for the archive's size."""

    def __init__(self, content: BufferedIOBase, file: BufferedIOBase, limiter: _Limiter) -> None:
        self._content, self._file, self._limiter = content, file, limiter
        self._position = 0

    def read(self, size: int) -> bytes:
        if not 0 <= size <= _MAX_HEADER:
            self._limiter.refuse("a header", f"it is {size:,} bytes long")
        chunk = self._content.read(size)
        self._position += len(chunk)
        self._limiter.check(self._position, "its headers", self._file.tell())
        return chunk

    def tell(self) -> int:
        return self._position

    def seek(self, position: int) -> int:
        while self._position < position and self.read(min(_MAX_HEADER, position - self._position)):
            pass
        return self._position
