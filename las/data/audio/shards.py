"""Audio files inside shards: uncompressed tar files, read at an offset, so that a corpus is few large files.

A file in a shard is named `train-000002.tar#1536+48210/an4.wav`: the shard, the offset and number of its bytes, and the
name that it had outside. Whatever takes the path of an audio file takes such a name (`las.data.audio.files`).
"""

import bisect
import io
import re
import sys
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from las.runtime.errors import DataError
from las.storage import bounded

Piece = bytes | range
"""Bytes in memory, or the range of a file's bytes that it stands for."""

_MARK = ".tar#"
_MEMBER = re.compile(r"(?P<shard>.+\.tar)#(?P<offset>\d{1,18})\+(?P<size>\d{1,18})/(?P<name>[^/]+)")
_BUFFER_BYTES = 1 << 18
_ANY_SIZE = sys.maxsize


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
    """Return the file on the disk that holds the bytes: the shard of a member, or the path itself."""
    inside = member(path)
    return str(path) if inside is None else str(inside.shard)


def open_binary(path: str | Path) -> io.BufferedReader:
    """Open an audio file for reading, in a shard or not.

    Raises OSError as `open` does and for what is no regular file (a FIFO would wait for a writer, a device never end),
    and DataError as `require`.
    """
    inside = member(path)
    if inside is None:
        return bounded.open_file(Path(path), _ANY_SIZE)
    require(inside)
    pieces = [range(inside.offset, inside.offset + inside.size)]
    return opened(bounded.open_file(inside.shard, _ANY_SIZE), pieces)


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Raise DataError naming the file in place of an OSError of the body."""
    try:
        yield
    except OSError as error:
        raise DataError(f"{path}: cannot read the file ({error.strerror})") from error


def opened(file: io.BufferedReader, pieces: Sequence[Piece]) -> io.BufferedReader:
    """Buffered file of pieces of an open file, which is closed with it."""
    return io.BufferedReader(ByteRanges(file, pieces), _BUFFER_BYTES)


def require(inside: Member) -> None:
    """Raise DataError unless the shard holds this file at this place: it may be cut short, or written anew."""
    with bounded.open_file(inside.shard, _ANY_SIZE) as file:
        shard_bytes = file.seek(0, io.SEEK_END)
        if inside.offset + inside.size > shard_bytes:
            raise DataError(
                f"{inside.shard}: the shard is cut short: {inside.name} ends at byte {inside.offset + inside.size:,}, "
                f"the shard at {shard_bytes:,}. Copy it again",
                kind="cut short",
            )
        file.seek(max(inside.offset - tarfile.BLOCKSIZE, 0))
        header = file.read(tarfile.BLOCKSIZE)
    if not _is_header_of(header, inside):
        raise DataError(
            f"{inside.shard}: {inside.name} is not at byte {inside.offset:,}: the shard was changed after its manifest "
            "was written. Copy both again, or write them again: las pack",
            kind="changed shard",
        )


def _is_header_of(block: bytes, inside: Member) -> bool:
    """Return whether a block of a tar file is the header of a member. The name in it may be cut after 100 bytes.

    A longer one stands whole in a member before it, in the format of GNU as in that of POSIX.
    """
    try:
        found = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.TarError:
        return False
    name = found.name.rpartition("/")[2].encode("utf-8", "surrogateescape")
    wanted = inside.name.encode("utf-8", "surrogateescape")
    is_cut = b"\0" not in block[: tarfile.LENGTH_NAME]
    return found.size == inside.size and (wanted.startswith(name) if is_cut else wanted == name)


class ByteRanges(io.RawIOBase):
    """Read-only file of `pieces` of an open `file`, one after the other, for decoders that read a file from its start.

    It closes `file` when it is closed.
    """

    def __init__(self, file: io.BufferedReader, pieces: Sequence[Piece]) -> None:
        self._file, self._place = file, 0
        self._pieces, self._ends = pieces, list(accumulate(map(len, pieces)))
        self._size = self._ends[-1]

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
        """Read into a buffer up to its end or that of a piece."""
        if self._place >= self._size:
            return 0
        number = bisect.bisect_right(self._ends, self._place)
        piece, end = self._pieces[number], self._ends[number]
        first, count = self._place - (end - len(piece)), min(len(buffer), end - self._place)
        view = memoryview(buffer)[:count]
        if isinstance(piece, bytes):
            view[:] = piece[first : first + count]
        else:
            self._file.seek(piece.start + first)
            count = self._file.readinto(view)
        self._place += count
        return count

    def close(self) -> None:
        self._file.close()
        super().close()
