"""Audio files inside shards: uncompressed tar files, read at an offset, so that a corpus is few large files.

A file in a shard is named `train-000002.tar#1536+48210/an4.wav`: the shard, the offset and number of its bytes, and the
name that it had outside. Whatever takes the path of an audio file takes such a name (`las.data.audio.files`).
"""

import io
import re
import tarfile
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from las.runtime.errors import DataError

_MARK = ".tar#"
_MEMBER = re.compile(r"(?P<shard>.+\.tar)#(?P<offset>\d{1,18})\+(?P<size>\d{1,18})/(?P<name>[^/]+)")
_BUFFER_BYTES = 1 << 18


class Member(NamedTuple):
    """File in a shard: `size` bytes from `offset` on."""

    shard: Path
    offset: int
    size: int
    name: str

    def __str__(self) -> str:
        return f"{self.shard}#{self.offset}+{self.size}/{self.name}"


def member(path: str | Path) -> Member | None:
    """Parse the name of a file in a shard; None for the path of a file of its own.

    >>> from las.data.audio import shards
    >>> shards.member("shards/train-000002.tar#1536+48210/an4.wav")
    Member(shard=PosixPath('shards/train-000002.tar'), offset=1536, size=48210, name='an4.wav')
    """
    name = str(path)
    parts = _MEMBER.fullmatch(name) if _MARK in name else None
    if parts is None:
        return None
    return Member(Path(parts["shard"]), int(parts["offset"]), int(parts["size"]), parts["name"])


def file_of(path: str | Path) -> str:
    """The file on the disk that holds the bytes: the shard of a member, or the path itself."""
    name = str(path)
    parts = _MEMBER.fullmatch(name) if _MARK in name else None
    return name if parts is None else parts["shard"]


def open_binary(path: str | Path) -> BinaryIO:
    """Open an audio file for reading, in a shard or not. Raises OSError as `open` does, and DataError as `require`."""
    inside = member(path)
    if inside is None:
        return open(path, "rb")
    require(inside)
    return io.BufferedReader(_Window(inside), _BUFFER_BYTES)


def require(inside: Member) -> None:
    """Raise DataError unless the shard holds this file at this place: it may be cut short, or written anew."""
    with inside.shard.open("rb") as file:
        shard_bytes = file.seek(0, io.SEEK_END)
        if inside.offset + inside.size > shard_bytes:
            raise DataError(
                f"{inside.shard}: the shard is cut short: {inside.name} ends at byte {inside.offset + inside.size:,}, "
                f"the shard at {shard_bytes:,}. Copy it again",
                kind="cut short",
            )
        file.seek(max(inside.offset - tarfile.BLOCKSIZE, 0))
        header = file.read(tarfile.BLOCKSIZE)
    try:
        found = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
        matches = found.size == inside.size and found.name.rpartition("/")[2] == inside.name
    except tarfile.TarError:
        matches = False
    if not matches:
        raise DataError(
            f"{inside.shard}: {inside.name} is not at byte {inside.offset:,}: the shard was changed after its manifest "
            "was written. Copy both again, or write them again: las pack",
            kind="changed shard",
        )


class _Window(io.RawIOBase):
    """The bytes of a file in a shard as a file of their own."""

    def __init__(self, inside: Member) -> None:
        self._file = inside.shard.open("rb", buffering=0)
        self._start, self._size, self._place = inside.offset, inside.size, 0
        self.name = str(inside)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._place = max(offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence], 0)
        return self._place

    def tell(self) -> int:
        return self._place

    def readinto(self, buffer: Any) -> int:
        count = max(min(len(buffer), self._size - self._place), 0)
        self._file.seek(self._start + self._place)
        count = self._file.readinto(memoryview(buffer)[:count]) or 0
        self._place += count
        return count

    def close(self) -> None:
        self._file.close()
        super().close()
