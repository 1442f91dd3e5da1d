"""Boundaries of the streams in a file of several, one after the other: joined flac, and chained Ogg (RFC 3533).

libsndfile reads the first one and ends.
"""

from typing import BinaryIO

from las.data.audio.byte_ranges import Piece
from las.runtime.errors import DataError

_FLAC, _STREAM_INFO = b"fLaC", (b"\x00\x00\x00\x22", b"\x80\x00\x00\x22")
"""Marks of a flac stream: the first metadata block, of 34 bytes, may be the only one."""
_LENGTH_AT = 18
"""Place in a flac stream of the 64 bits that end with the 36 of the number of samples."""
_BLOCK_BYTES = 1 << 20
_OGG, _PAGE_BYTES, _BEGINS = b"OggS", 27, 2


def flac_streams(file: BinaryIO, place: int, end: int) -> list[range]:
    """Byte ranges of the flac streams between two places, of which the first begins one.

    Metadata, in which pictures and cue sheets may hold anything, are skipped, and all other bytes searched.
    """
    starts = [place]
    search = _after_metadata(file, place, end)
    while search < end:
        file.seek(search)
        window = file.read(min(_BLOCK_BYTES, end - search))
        at = window.find(_FLAC)
        if at < 0:
            search += max(len(window) - len(_FLAC) + 1, 1)
        elif window[at + 4 : at + 8] in _STREAM_INFO:
            starts.append(search + at)
            search = _after_metadata(file, search + at, end)
        else:
            search += at + (1 if len(window) - at >= 8 or search + len(window) >= end else 0)
    return [range(start, stop) for start, stop in zip(starts, [*starts[1:], end], strict=True)]


def _after_metadata(file: BinaryIO, place: int, end: int) -> int:
    place += len(_FLAC)
    while place < end:
        file.seek(place)
        header = file.read(4)
        place += 4 + int.from_bytes(header[1:], "big")
        if not header or header[0] & 0x80:
            break
    return place


def with_length(file: BinaryIO, stream: range, num_samples: int) -> tuple[Piece, ...]:
    """Pieces of a flac stream with its length in the header, without which libsndfile cannot seek."""
    place = file.seek(stream.start + _LENGTH_AT)
    fields = int.from_bytes(file.read(8), "big") >> 36 << 36 | num_samples
    return range(stream.start, place), fields.to_bytes(8, "big"), range(place + 8, stream.stop)


def ogg_streams(file: BinaryIO, place: int, end: int) -> list[range]:
    """Byte ranges of the links of a chain between two places, of which the first begins a page.

    A link begins with the pages that begin its logical streams. Raises DataError for a page that is not whole.
    """
    starts: list[int] = []
    begins_before = False
    while place < end:
        file.seek(place)
        page = file.read(_PAGE_BYTES)
        begins = len(page) == _PAGE_BYTES and bool(page[5] & _BEGINS)
        if begins and not begins_before:
            starts.append(place)
        begins_before = begins
        lacing = file.read(page[26]) if len(page) == _PAGE_BYTES else b""
        stop = place + _PAGE_BYTES + len(lacing) + sum(lacing)
        file.seek(stop)
        if file.read(len(_OGG)) != _OGG:
            if _next_page(file, place + 1, min(stop, end)) < stop:
                raise DataError(f"the file is cut short: the page at byte {place:,} is not whole", "cut short")
            stop = _next_page(file, stop, end)
        place = stop
    return [range(start, stop) for start, stop in zip(starts, [*starts[1:], end], strict=True)]


def _next_page(file: BinaryIO, place: int, end: int) -> int:
    """The next place where a page begins, from `place` on; the end without one."""
    while place < end:
        file.seek(place)
        window = file.read(min(_BLOCK_BYTES, end - place))
        if (at := window.find(_OGG)) >= 0:
            return place + at
        place += max(len(window) - len(_OGG) + 1, 1)
    return end
