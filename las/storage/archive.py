"""Unpacking tar, tar.gz and zip files that may be hostile: nothing is ever written outside the folder.

Only plain files and folders are unpacked, with fresh permissions. Links, devices, odd names and archives that swell
beyond reason are refused, and what was unpacked until then is removed.
"""

import gzip
import os
import re
import shutil
import stat
import struct
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BufferedIOBase
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NamedTuple, cast

from las.runtime.errors import DataError, StorageError

_CHUNK = 1 << 20
_MAX_HEADER = 1 << 20  # of one long name or list of attributes
_FILE_COST = 1 << 15  # a file is more work than its bytes: an archive of empty files swells, too
_SLACK = 64 << 20  # below this no ratio is counted
_ZIP_ENTRY = 2048  # bytes that an entry of a zip file's list may take on average
_DRIVE_OR_CONTROL = re.compile(r"^[A-Za-z]:|[\\\x00-\x1f\x7f]")
# What the readers of the standard library raise for archives that are damaged or made to confuse them.
_DAMAGE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    zlib.error,
    EOFError,
    ValueError,
    struct.error,
    RecursionError,
)


class Caps(NamedTuple):
    """How much an archive may hold: bytes unpacked, files and folders, bytes unpacked for each byte of the archive."""

    num_bytes: int = 128 << 30
    num_files: int = 400_000
    ratio: int = 20


DEFAULT_CAPS = Caps()


@dataclass
class _Entry:
    """One plain file (`content` gives its bytes) or folder (`content` is None) of an archive."""

    name: str
    size: int
    content: BufferedIOBase | None


def extract(archive: Path, folder: Path, caps: Caps = DEFAULT_CAPS) -> None:
    """Unpack an archive into a folder that is empty or not there.

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
    rehearsal = _Gauge(archive, caps)
    for _ in _entries(archive, rehearsal):  # most bombs are found at their beginning, before anything is written
        if rehearsal.num_bytes > _SLACK:
            break
    for place, entry in _entries(archive, _Gauge(archive, caps)):
        target = folder / place
        if entry.content is None:
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            _write(target, entry.content, entry.size)


def _entries(archive: Path, gauge: "_Gauge") -> Iterator[tuple[PurePosixPath, _Entry]]:
    """What an archive holds and where it belongs, each checked before it is yielded."""
    with archive.open("rb") as file:
        beginning = file.read(512)
        file.seek(0)
        if beginning.startswith(b"PK"):
            entries = _zip_entries(file, gauge)
        elif beginning.startswith(b"\x1f\x8b"):
            entries = _tar_entries(gzip.GzipFile(fileobj=file), file, gauge)
        elif beginning[257:262] == b"ustar":
            entries = _tar_entries(file, file, gauge)
        else:
            raise DataError(f"{archive}: not a tar, tar.gz or zip file")
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
class _Gauge:
    """Adds up what has been unpacked and compares it with the caps and with how much of the archive it took."""

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
    """The names of an archive so far, as a file system that ignores case and composes accents would see them."""

    archive: Path
    seen: dict[str, tuple[str, bool]] = field(default_factory=dict)

    def checked(self, entry: _Entry) -> PurePosixPath:
        """The place of an entry below the folder. Raises DataError for a name that is no such place or is taken."""
        path = PurePosixPath(entry.name)
        is_file = entry.content is not None
        if (
            path.is_absolute()
            or ".." in path.parts
            or _DRIVE_OR_CONTROL.search(entry.name)
            or (is_file and not path.name)
        ):
            raise DataError(f"{self.archive}: refused at {entry.name!r}: not a name within a folder")
        for place in (*path.parents, path):
            key = unicodedata.normalize("NFC", str(place)).casefold()
            taken = (str(place), is_file and place == path)
            found = self.seen.setdefault(key, taken)
            if found is not taken and (taken[1] or found != taken):
                raise DataError(f"{self.archive}: refused at {str(place)!r}: {found[0]!r} is there already")
        return path


def _tar_entries(content: BufferedIOBase, file: BufferedIOBase, gauge: _Gauge) -> Iterator[_Entry]:
    stream = _Stream(content, file, gauge)
    with _Tar(fileobj=cast(BinaryIO, stream), mode="r") as tar:
        while (member := tar.next()) is not None:
            tar.members.clear()  # else it keeps them all
            if not (member.isreg() or member.isdir()) or member.issparse() or member.size < 0:
                gauge.refuse(member.name, "neither a plain file nor a folder")
            if member.isreg() and member.mode & (stat.S_ISUID | stat.S_ISGID):
                gauge.refuse(member.name, "a file that would run as another user")
            gauge.add(member.size, member.name, file.tell())
            inside = tar.extractfile(member) if member.isreg() else None
            yield _Entry(member.name, member.size, cast(BufferedIOBase | None, inside))
    while stream.read(_CHUNK):
        pass  # at its end the compression has a checksum


class _Tar(tarfile.TarFile):
    members: list[tarfile.TarInfo]  # what was read so far


class _Stream:
    """The bytes of a tar file, read forward only, and no more of them than the archive's size makes likely."""

    def __init__(self, content: BufferedIOBase, file: BufferedIOBase, gauge: _Gauge) -> None:
        self._content, self._file, self._gauge = content, file, gauge
        self._at = 0

    def read(self, size: int) -> bytes:
        if not 0 <= size <= _MAX_HEADER:
            self._gauge.refuse("a header", f"it is {size:,} bytes long")
        chunk = self._content.read(size)
        self._at += len(chunk)
        self._gauge.check(self._at, "its headers", self._file.tell())
        return chunk

    def tell(self) -> int:
        return self._at

    def seek(self, position: int) -> int:
        while self._at < position and self.read(min(_MAX_HEADER, position - self._at)):
            pass
        return self._at


def _zip_entries(file: BufferedIOBase, gauge: _Gauge) -> Iterator[_Entry]:
    size = os.fstat(file.fileno()).st_size
    _check_zip_list(file, size, gauge)
    with zipfile.ZipFile(file) as archive:
        listed = archive.infolist()
        for info in listed:  # all of them before the first is unpacked
            kind = stat.S_IFMT(info.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR) or info.orig_filename != info.filename:
                gauge.refuse(info.orig_filename, "neither a plain file nor a folder")
            if kind == stat.S_IFREG and info.external_attr >> 16 & (stat.S_ISUID | stat.S_ISGID):
                gauge.refuse(info.filename, "a file that would run as another user")
            if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                gauge.refuse(info.filename, "encrypted, or compressed in a way that las does not read")
            gauge.add(info.file_size, info.filename, size)
        for info in listed:
            if info.is_dir():
                yield _Entry(info.filename, 0, None)
            else:
                with archive.open(info) as content:
                    yield _Entry(info.filename, info.file_size, cast(BufferedIOBase, content))


def _check_zip_list(file: BufferedIOBase, size: int, gauge: _Gauge) -> None:
    """Refuse a zip file whose list of entries is too long, before it is read."""
    file.seek(max(0, size - (1 << 16) - 22))
    tail = file.read()
    at = tail.rfind(b"PK\5\6")
    if at < 0 or at + 22 > len(tail):
        raise zipfile.BadZipFile("it has no list of its entries")
    count, list_bytes = struct.unpack("<HI", tail[at + 10 : at + 16])
    if at >= 20 and tail[at - 20 : at - 16] == b"PK\6\7":
        file.seek(struct.unpack("<Q", tail[at - 12 : at - 4])[0])
        large = file.read(56)
        if len(large) < 56:
            raise zipfile.BadZipFile("its list of entries is cut short")
        count, list_bytes = struct.unpack("<QQ", large[32:48])
    if count > gauge.caps.num_files or list_bytes > _ZIP_ENTRY * (count + 1):
        gauge.refuse(
            "its list of entries", f"{count:,} entries in {list_bytes:,} bytes, {gauge.caps.num_files:,} may be"
        )
