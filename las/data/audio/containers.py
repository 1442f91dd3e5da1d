"""Boundaries of streams in a file, and sizes that headers promise against the bytes that are there.

libsndfile reads a file that is cut short without an error, some whose header leaves the size open as empty, and of
joined flac and chained Ogg (RFC 3533) the first stream. Sizes are those of wav, RF64, W64, aiff, caf and au.
"""

import struct
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from las.data.audio.shards import Piece
from las.runtime.errors import DataError

_LARGEST_32 = 0xFFFFFFFF
# Sizes that programs write where they cannot know one, as into a pipe: SoX (aiff, wav), arecord, ffmpeg. What else they
# count, such as the header, moves these numbers by some bytes.
_OPEN_32, _OPEN_MARGIN = (0x7F000000, 0x7FFFF000, 0x80000000, _LARGEST_32), 0x1000
_OPEN_64 = 1 << 62
_AU_BYTES = {1: 1, 2: 1, 3: 2, 4: 3, 5: 4, 6: 4, 7: 8, 27: 1}
"""Bytes of a sample by the number of its coding in au."""
_WAV_ROWS = {1, 3, 6, 7, 0xFFFE}
"""Codings of wav whose blocks are one sample of each channel: PCM, floating point, A-law, mu-law, extensible."""
MAGICS = (b"RIFF", b"RF64", b"RIFX", b"FORM", b"riff", b"caff", b".snd", b"dns.")
"""First bytes of the containers of this module."""
_MPEG = (b"\x50\x00", b"\x55\x00")
"""Codings of wav that are MPEG audio: layers I and II, layer III."""
_AIFF_ROWS = (b"", b"NONE", b"twos", b"sowt", b"fl32", b"FL32", b"fl64", b"FL64")


class SampleBytes(NamedTuple):
    """Bytes of the samples in a file: their start, the number promised (None: left open) and the number present.

    `row_bytes` are those of one sample of all channels, 0 in codings without such, `is_mpeg` is true of mp3. `size_at`
    is the place in the header where `true_size` tells libsndfile what is present; None: there is no room for it. From
    `rest` on are bytes that are neither samples nor chunks: another file that was appended, or the end.
    """

    start: int
    promised: int | None
    present: int
    row_bytes: int
    is_mpeg: bool
    size_at: int
    true_size: bytes | None
    rest: int

    def described(self, num_bytes: int) -> str:
        """Return a number of bytes, in samples where these have a fixed size: `12000 samples`."""
        return f"{num_bytes // self.row_bytes} samples" if self.row_bytes else f"{num_bytes} bytes of samples"

    def pieces(self) -> tuple[Piece, ...] | None:
        """Return the file with the true size in its header; None where there is no room for it."""
        if self.true_size is None:
            return None
        after = self.size_at + len(self.true_size)
        return range(self.size_at), self.true_size, range(after, self.start + self.present)


class _Layout(NamedTuple):
    """Chunks of a container: place of the first, bytes of a name, format and alignment of sizes.

    `form` names the kind of content, `samples` the chunk of the samples, which begin `skipped` bytes into it. A size
    counts `counted` bytes of its chunk's header.
    """

    form: bytes
    samples: bytes
    first: int = 12
    name_bytes: int = 4
    size: str = "<I"
    alignment: int = 2
    counted: int = 0
    skipped: int = 0


class _Chunk(NamedTuple):
    """Chunk: its name, the bytes of its content, the places of content and size."""

    name: bytes
    size: int
    start: int
    size_at: int


_LAYOUTS = {
    b"RIFF": _Layout(b"WAVE", b"data"),
    b"RF64": _Layout(b"WAVE", b"data"),
    b"RIFX": _Layout(b"WAVE", b"data", size=">I"),
    b"FORM": _Layout(b"AIF", b"SSND", size=">I", skipped=8),
    b"caff": _Layout(b"desc", b"data", first=8, size=">Q", alignment=1, skipped=4),
    b"riff": _Layout(b"", b"data", first=40, name_bytes=16, size="<Q", alignment=8, counted=24),
}


def sample_bytes(file: BinaryIO, beginning: bytes, file_bytes: int) -> SampleBytes | None:
    """Read where the samples of a file are, and how many; None for other containers than those of this module.

    `beginning` are its first 12 bytes. A size is left open if it is 0 or one that programs write into pipes, unless
    the samples it gives end where the file does, or where another chunk begins.
    """
    if beginning[:4] in (b".snd", b"dns."):
        return _in_au(file, ">" if beginning.startswith(b".snd") else "<", file_bytes)
    layout = _LAYOUTS.get(beginning[:4])
    if layout is None or not beginning[8:].startswith(layout.form):
        return None
    row_bytes, is_mpeg, sizes_64 = 0, False, None
    for chunk in _chunks(file, layout, layout.first, file_bytes):
        content = file.read(min(chunk.size, 24))
        if chunk.name.startswith((b"fmt ", b"COMM")):
            row_bytes = _row_bytes(content, layout.size[0], is_aiff=chunk.name == b"COMM")
            is_mpeg = chunk.name != b"COMM" and content.startswith(_MPEG)
        elif chunk.name == b"ds64" and len(content) == 24:
            sizes_64 = chunk.start, struct.unpack_from("<Q", content, 8)[0]
        elif chunk.name.startswith(layout.samples):
            start, size, size_at = chunk.start + layout.skipped, chunk.size - layout.skipped, chunk.size_at
            present = file_bytes - start
            true_size = _packed(layout.size, present + layout.skipped + layout.counted)
            if sizes_64 is not None:
                size_at, size = sizes_64
                true_size = struct.pack("<3Q", file_bytes - 8, present, 0)  # of the file, its samples, their number
            rest = _after_chunks(file, layout, start, max(size, 0), file_bytes)
            is_open = _is_open(size, start, rest, file_bytes)
            promised, rest = (None, file_bytes) if is_open else (size, rest)
            return SampleBytes(start, promised, present, row_bytes, is_mpeg, size_at, true_size, rest)
    return None


def _in_au(file: BinaryIO, order: str, file_bytes: int) -> SampleBytes | None:
    file.seek(4)
    header = file.read(20)
    if len(header) < 20:
        return None
    start, size, coding, _, channels = struct.unpack(order + "5I", header)
    present, row_bytes = max(file_bytes - start, 0), channels * _AU_BYTES.get(coding, 0)
    promised, rest = (None, file_bytes) if size == 0 or _is_placeholder(size) else (size, min(start + size, file_bytes))
    return SampleBytes(start, promised, present, row_bytes, False, 8, _packed(order + "I", present), rest)


def _packed(kind: str, size: int) -> bytes | None:
    return struct.pack(kind, size) if kind[1] == "Q" or size <= _LARGEST_32 else None


def _chunks(file: BinaryIO, layout: _Layout, offset: int, file_bytes: int) -> Iterator[_Chunk]:
    """Chunks from `offset` on; the file is at the content of each."""
    header_bytes = layout.name_bytes + struct.calcsize(layout.size)
    while offset + header_bytes <= file_bytes:
        file.seek(offset)
        name = file.read(layout.name_bytes)
        size = max(struct.unpack(layout.size, file.read(header_bytes - layout.name_bytes))[0] - layout.counted, 0)
        yield _Chunk(name, size, offset + header_bytes, offset + layout.name_bytes)
        offset += header_bytes + size + -size % layout.alignment


def _row_bytes(content: bytes, order: str, is_aiff: bool) -> int:
    """Bytes of one sample of all channels, from a chunk `fmt ` or `COMM`; 0 where blocks hold more than one."""
    if is_aiff and len(content) >= 18:
        channels, _, bits = struct.unpack_from(">HIH", content)
        return channels * -(-bits // 8) if content[18:22] in _AIFF_ROWS else 0
    if not is_aiff and len(content) >= 14 and struct.unpack_from(order + "H", content)[0] in _WAV_ROWS:
        return int(struct.unpack_from(order + "H", content, 12)[0])
    return 0


def _is_placeholder(size: int) -> bool:
    return size >= _OPEN_64 or any(abs(size - each) <= _OPEN_MARGIN for each in _OPEN_32)


def _after_chunks(file: BinaryIO, layout: _Layout, start: int, size: int, file_bytes: int) -> int:
    """Return the place after the samples and the chunks that follow them, where something else begins, or the end."""
    if start + size >= file_bytes:
        return file_bytes
    file.seek(start + size)
    if file.read(4) in MAGICS:  # appended to a file that does not fill its last chunk up
        return start + size
    place = start + size + -size % layout.alignment
    for chunk in _chunks(file, layout, place, file_bytes):
        name = chunk.name[:4]
        if name in MAGICS or not (name.isascii() and name.decode("ascii").isprintable()):
            return place
        place = chunk.start + chunk.size + -chunk.size % layout.alignment
    return file_bytes


def _is_open(size: int, start: int, rest: int, file_bytes: int) -> bool:
    """Return whether a size is left open, or was too large for its field, so that the file goes on behind it."""
    if start + size > file_bytes:
        return _is_placeholder(size)
    return rest < file_bytes and (size <= 0 or _is_placeholder(size) or file_bytes > _LARGEST_32)


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
    """Return the next place where a page begins, from `place` on; the end without one."""
    while place < end:
        file.seek(place)
        window = file.read(min(_BLOCK_BYTES, end - place))
        if (at := window.find(_OGG)) >= 0:
            return place + at
        place += max(len(window) - len(_OGG) + 1, 1)
    return end
