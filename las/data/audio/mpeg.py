"""Frames of mp3 (MPEG audio of layers I to III): how many there are, and where one recording of a joined file ends.

The length that libsndfile gives is that of the first recording's header (Xing or Info), or an estimate from the bit
rate of the first frame, and it reads no further. Here frames are counted, and libsndfile gets a header that is true.

ISO/IEC 11172-3 and 13818-3; headers: the "Xing VBR header" and the "mp3 info tag" of LAME.
"""

import functools
import re
import struct
from dataclasses import dataclass, field
from typing import BinaryIO, NamedTuple

from las.data.audio.shards import Piece
from las.runtime.errors import DataError

_RATES = ((11025, 12000, 8000), (), (22050, 24000, 16000), (44100, 48000, 32000))
"""Sample rates in Hz by the header's number of the version: 2.5, none, 2, 1."""
_KBPS_1 = (
    (32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448),
    (32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
    (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
)
_KBPS_2 = (
    (32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256),
    (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
    (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
)
"""Bit rates of layers I, II, III by the header's number of the rate, from 1 on: of version 1, and of 2 and 2.5."""
_SEARCHED_BYTES = 1 << 16
"""Number of bytes that are searched for the next frame where something else stands: broken frames, unknown tags."""
_MARKS = re.compile(rb"\xff[\xe0-\xff]|ID3|TAG|APETAGEX")
_TAGS = re.compile(b"Xing|Info|VBRI")
_HEADER_BYTES, _TAG_BYTES = 4, 48
_VBRI_AT = 36
_SMALLEST_TAG = 120
"""Number of bytes that libmpg123 wants from the word Xing to the end of its frame."""


class Format(NamedTuple):
    """Properties that the frames of a recording share: version (3: 1, 2: 2, 0: 2.5), layer, rate in Hz, channels."""

    version: int
    layer: int
    sample_rate: int
    channels: int

    @property
    def frame_samples(self) -> int:
        """Number of samples that a frame has of each channel."""
        if self.layer == 1:
            return 384
        return 576 if self.layer == 3 and self.version != 3 else 1152

    @property
    def tag_at(self) -> int:
        """Place in a frame where the tag Xing or Info stands, after the side information of layer III."""
        sizes = (17, 32) if self.version == 3 else (9, 17)
        return _HEADER_BYTES + sizes[self.channels == 2]


@dataclass
class Recording:
    """Frames of one recording of a file: its format, the first four bytes, where they are, and the header `tag`."""

    format: Format
    first: bytes
    tag: bytes = b""
    num_frames: int = 0
    ranges: list[range] = field(default_factory=list)

    @property
    def num_samples(self) -> int:
        """Samples of all frames, those that a header calls delay or padding of the encoder included."""
        return self.num_frames * self.format.frame_samples

    @property
    def promised(self) -> int:
        """Number of frames that the header promises, 0 where there is none or it does not say."""
        at = self.format.tag_at
        is_there = self.tag[at : at + 4] in (b"Xing", b"Info") and self.tag[at + 7] & 1
        return int.from_bytes(self.tag[at + 8 : at + 12], "big") if is_there else 0

    def pieces(self) -> tuple[Piece, ...]:
        """Return the frames after a header with their number: the own one, where that is its number, which knows the
        delay.
        """
        if self.format.layer != 3:
            return tuple(self.ranges)
        is_true = self.promised == self.num_frames and len(self.tag) >= self.format.tag_at + _SMALLEST_TAG
        return (self._true_tag() if is_true else self._new_tag(), *self.ranges)

    def _true_tag(self) -> bytes:
        """Return the own header; its number of bytes may count other recordings or tags; libsndfile warns."""
        flags_at = self.format.tag_at + 4
        if not self.tag[flags_at + 3] & 2:
            return self.tag
        num_bytes = struct.pack(">I", len(self.tag) + sum(map(len, self.ranges)))
        return self.tag[: flags_at + 8] + num_bytes + self.tag[flags_at + 12 :]

    def _new_tag(self) -> bytes:
        """Return a header of the number of frames only: a frame of the largest bit rate, no check sum or padding."""
        header = bytes([self.first[0], self.first[1] | 1, 0xE0 | self.first[2] & 0x0C, self.first[3]])
        length = _parsed(header)[1]  # type: ignore[index] # a header of a known format
        content = b"Xing" + struct.pack(">II", 1, self.num_frames)
        return (header + bytes(self.format.tag_at - _HEADER_BYTES) + content).ljust(length, b"\0")

    def add(self, place: int, length: int) -> None:
        """Count a frame of `length` bytes."""
        self.num_frames += 1
        if self.ranges and self.ranges[-1].stop == place:
            self.ranges[-1] = range(self.ranges[-1].start, place + length)
        else:
            self.ranges.append(range(place, place + length))


def recordings(file: BinaryIO, place: int, end: int) -> list[Recording]:
    """Return the recordings between two places of a file, in order; an empty list where it begins with none.

    A recording ends before a header and where version, layer, rate or number of channels change. What is no frame is
    passed over as decoders do: tags, and up to 64 KiB of anything else. Raises DataError where there is more of it.
    """
    found: list[Recording] = []
    while place < end:
        file.seek(place)
        beginning = file.read(_TAG_BYTES)
        frame = _parsed(beginning[:_HEADER_BYTES])
        if frame is None:
            place += _tag_bytes(beginning, end - place) or _bytes_to_frame(file, place, end, is_first=not found)
            continue
        kind, length = frame
        if not _goes_on(file, place, end, *frame):
            skipped = _bytes_to_frame(file, place, end, is_first=not found)
            if not found or skipped < length or place + length > end:  # the frame is not whole, or is none
                place += skipped
                continue
        is_tag = _is_tag(beginning, kind)
        if is_tag or not found or kind != found[-1].format:
            found.append(Recording(kind, beginning[:_HEADER_BYTES]))
        if is_tag:
            file.seek(place)
            found[-1].tag = file.read(length)
        else:
            found[-1].add(place, length)
        place += length
    return found


def _goes_on(file: BinaryIO, place: int, end: int, kind: Format, length: int) -> bool:
    """Return whether a frame is followed by one of its format, a tag, or the end: two bytes can look like a header."""
    file.seek(place + length)
    following = file.read(_TAG_BYTES)
    parsed = _parsed(following[:_HEADER_BYTES])
    if parsed is not None:
        return parsed[0] == kind
    return place + length == end or _tag_bytes(following, end - place - length) > 0


def _bytes_to_frame(file: BinaryIO, place: int, end: int, is_first: bool) -> int:
    """Return the number of bytes from a place without a frame to the next frame or tag, or the end.

    Raises DataError where there is more than may be passed over; before the first frame it is the end as well.
    """
    file.seek(place)
    window = file.read(_SEARCHED_BYTES + _TAG_BYTES)
    for match in _MARKS.finditer(window, 1, _SEARCHED_BYTES):
        at = match.start()
        frame = _parsed(window[at : at + _HEADER_BYTES])
        if frame is not None and _goes_on(file, place + at, end, *frame):
            return at
        if _tag_bytes(window[at : at + _TAG_BYTES], end - place - at):
            return at
    if is_first or place + _SEARCHED_BYTES >= end:
        return end - place
    raise DataError(
        f"from byte {place:,} on there are over {_SEARCHED_BYTES:,} bytes that are no frames of mp3", "damaged"
    )


def _tag_bytes(beginning: bytes, largest: int) -> int:
    """Bytes of a tag (ID3, APE) that has this beginning, up to `largest`; 0 where it begins none."""
    if beginning.startswith(b"TAG"):
        length = 128
    elif beginning.startswith(b"APETAGEX"):
        length = 32 + int.from_bytes(beginning[12:16], "little")
    else:
        length = _id3_bytes(beginning)
    return length if length <= largest else 0


def after_id3(file: BinaryIO) -> int:
    """Return the place in a file after the ID3v2 tags at its start."""
    place = file.seek(0)
    while skipped := _id3_bytes(file.read(10)):
        place = file.seek(place + skipped)
    return place


def _id3_bytes(beginning: bytes) -> int:
    """Length in bytes of an ID3v2 tag that begins with these bytes; 0 where they begin none."""
    if not beginning.startswith(b"ID3") or len(beginning) < 10 or max(beginning[6:10]) > 127:
        return 0
    size = functools.reduce(lambda total, byte: total << 7 | byte, beginning[6:10])
    return 10 + size + (10 if beginning[5] & 0x10 else 0)


def _is_tag(beginning: bytes, kind: Format) -> bool:
    """Return whether a frame is a header (Xing, Info, VBRI) in place of audio."""
    if kind.layer != 3 or not _TAGS.search(beginning):
        return False
    is_xing = beginning[kind.tag_at :].startswith((b"Xing", b"Info")) and not any(beginning[6 : kind.tag_at])
    return is_xing or beginning[_VBRI_AT:].startswith(b"VBRI")


@functools.lru_cache(maxsize=4096)
def _parsed(header: bytes) -> tuple[Format, int] | None:
    """Format and length in bytes of a frame with these four bytes; None where they are no header."""
    if len(header) < _HEADER_BYTES or header[0] != 0xFF or header[1] < 0xE0:
        return None
    version, layer, kbps, rate = header[1] >> 3 & 3, 4 - (header[1] >> 1 & 3), header[2] >> 4, header[2] >> 2 & 3
    if version == 1 or layer == 4 or kbps in (0, 15) or rate == 3:
        return None
    kind = Format(version, layer, _RATES[version][rate], 1 if header[3] >> 6 == 3 else 2)
    bits = 1000 * (_KBPS_1 if version == 3 else _KBPS_2)[layer - 1][kbps - 1]
    padding = header[2] >> 1 & 1
    if layer == 1:
        return kind, 4 * (12 * bits // kind.sample_rate + padding)
    return kind, kind.frame_samples // 8 * bits // kind.sample_rate + padding
