"""Files made of ranges of another file's bytes and of bytes in memory, for decoders that read a file from its start."""

import bisect
import io
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

Piece = bytes | range
"""Bytes in memory, or the range of a file's bytes that it stands for."""


class ByteRanges(io.RawIOBase):
    """Read-only file of `pieces` of an open `file`, one after the other; closes `file` when it is closed."""

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
