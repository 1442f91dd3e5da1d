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
from io import BufferedIOBase
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple, cast

from las.runtime.errors import DataError, StorageError

_CHUNK = 1 << 20
_MAX_HEADER = 1 << 20  # of one long name or list of attributes
_FILE_COST = 1 << 15  # bytes that a file counts beyond its content, so that many empty files are bounded too
_SLACK = 64 << 20  # bytes below which the ratio is not checked
_DRIVE_OR_CONTROL = re.compile(r"^[A-Za-z]:|[\\\x00-\x1f\x7f]")
# Exceptions of the standard library's readers for damaged or malicious archives.
_DAMAGE = (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, ValueError, struct.error, RecursionError)


class Caps(NamedTuple):
    """Limits of an archive: bytes extracted, files and folders, bytes extracted for each byte of the archive."""

    num_bytes: int = 128 << 30
    num_files: int = 400_000
    ratio: int = 20


DEFAULT_CAPS = Caps()


def extract(archive: Path, folder: Path, caps: Caps = DEFAULT_CAPS) -> None:
    """Extract an archive into an empty or new folder.

    Raises DataError naming the archive, the entry and the reason for an archive that is damaged, hostile or larger than
    `caps` allow, and StorageError where the folder cannot be written; the folder is then empty again.
    """
    if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        raise StorageError(f"{folder}: is not an empty folder: archives are unpacked into new ones")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        dry_run = _Reading(archive, caps)
        for _ in dry_run.entries():  # finds most bombs at their beginning, before anything is written
            if dry_run.num_bytes > _SLACK:
                break
        for path, size, content in _Reading(archive, caps).entries():
            _write(folder / path, size, content)
    except BaseException as error:
        for entry in list(folder.iterdir()) if folder.is_dir() else []:
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
        if isinstance(error, _DAMAGE):
            raise DataError(f"{archive}: the archive is damaged ({error}). Download it again") from error
        if isinstance(error, OSError):
            raise StorageError(f"{folder}: {archive.name} cannot be unpacked ({error})") from error
        raise


def _write(target: Path, size: int, content: BufferedIOBase | None) -> None:
    """Write a file, or make a folder where there is no content."""
    if content is None:
        target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("xb") as file:  # x: never through something that is there
        while size and (chunk := content.read(min(_CHUNK, size))):
            file.write(chunk)
            size -= len(chunk)
    if size:
        raise EOFError(f"{target.name} lacks {size:,} bytes")


class _Reading:
    """One pass through an archive: its names so far, and its sizes against the caps and the bytes read so far."""

    def __init__(self, archive: Path, caps: Caps) -> None:
        self.archive, self.caps = archive, caps
        self.num_bytes = self.num_files = 0
        self.names: dict[str, tuple[str, bool]] = {}
        """Names as a file system sees them that ignores case and composes accents: as written, and if of a file."""

    def entries(self) -> Iterator[tuple[PurePosixPath, int, BufferedIOBase | None]]:
        """Yield relative path, size and content (None for a folder) of each entry, each checked before."""
        with self.archive.open("rb") as file:
            beginning = file.read(512)
            file.seek(0)
            if beginning.startswith(b"\x1f\x8b"):
                stream = _Stream(gzip.GzipFile(fileobj=file), file, self)
            elif beginning[257:262] == b"ustar":
                stream = _Stream(file, file, self)
            else:
                raise DataError(f"{self.archive}: not a tar or tar.gz file")
            with tarfile.TarFile(fileobj=cast(BinaryIO, stream), mode="r") as tar:
                while (member := tar.next()) is not None:
                    cast(Any, tar).members.clear()  # else tarfile keeps all of them
                    if not (member.isreg() or member.isdir()) or member.issparse() or member.size < 0:
                        self.refuse(member.name, "neither a plain file nor a folder")
                    if member.isreg() and member.mode & (stat.S_ISUID | stat.S_ISGID):
                        self.refuse(member.name, "a file that would run as another user")
                    self.num_files += 1
                    self.num_bytes += member.size
                    self.check(self.num_bytes + self.num_files * _FILE_COST, member.name, file.tell())
                    content = tar.extractfile(member) if member.isreg() else None
                    path = self._path(member.name, content is not None)
                    yield path, member.size, cast(BufferedIOBase | None, content)
            while stream.read(_CHUNK):
                pass  # at its end the compression has a checksum

    def check(self, cost: int, name: str, consumed: int) -> None:
        """Raise DataError where what was unpacked so far exceeds the caps, or the ratio to the `consumed` bytes."""
        if self.num_files > self.caps.num_files:
            self.refuse(name, f"more than {self.caps.num_files:,} files")
        if self.num_bytes > self.caps.num_bytes:
            self.refuse(name, f"more than {self.caps.num_bytes:,} bytes unpacked")
        if cost > _SLACK + self.caps.ratio * consumed:
            self.refuse(name, f"it swells to more than {self.caps.ratio} times its size: an archive bomb?")

    def refuse(self, name: str, reason: str) -> None:
        """Raise DataError with the name of an entry and the reason."""
        raise DataError(f"{self.archive}: refused at {name!r}: {reason}. Nothing was unpacked")

    def _path(self, name: str, is_file: bool) -> PurePosixPath:
        """Return the relative target path of an entry. Raises DataError for an unsafe name or one that is taken."""
        path = PurePosixPath(name)
        nameless = is_file and not path.name
        if path.is_absolute() or ".." in path.parts or _DRIVE_OR_CONTROL.search(name) or nameless:
            self.refuse(name, "not a name within a folder")
        for ancestor in (*path.parents, path):
            key = unicodedata.normalize("NFC", str(ancestor)).casefold()
            registered = (str(ancestor), is_file and ancestor == path)
            earlier = self.names.setdefault(key, registered)
            if earlier is not registered and (registered[1] or earlier != registered):
                self.refuse(str(ancestor), f"{earlier[0]!r} is there already")
        return path


class _Stream:
    """Forward-only stream of a tar file that stops where it exceeds the limits for the archive's size."""

    def __init__(self, content: BufferedIOBase, file: BufferedIOBase, reading: _Reading) -> None:
        self._content, self._file, self._reading = content, file, reading
        self._position = 0

    def read(self, size: int) -> bytes:
        if not 0 <= size <= _MAX_HEADER:
            self._reading.refuse("a header", f"it is {size:,} bytes long")
        chunk = self._content.read(size)
        self._position += len(chunk)
        self._reading.check(self._position, "its headers", self._file.tell())
        return chunk

    def tell(self) -> int:
        return self._position

    def seek(self, position: int) -> int:
        while self._position < position and self.read(min(_MAX_HEADER, position - self._position)):
            pass
        return self._position
