"""Reading of NIST SPHERE files: the header, and PCM, mu-law and a-law samples, plain or compressed with shorten.

Header: NIST's SPHERE package (`NIST_1A`, the header's size, then `name -type value` lines up to `end_head`).
mu-law and a-law: ITU-T G.711.
"""

import functools
import io
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import numpy as np
import soundfile
from jaxtyping import Float32

from las.data.audio import shards, shorten
from las.runtime.errors import DataError
from las.storage import text_files

MAGIC = b"NIST_1A\n"
# Headers have 1024 bytes in practice; a much larger size is a damaged header and is not read into memory.
_MAX_HEADER_BYTES = 1 << 20
_PCM = {(1, "big"): ">i1", (1, "little"): "<i1", (2, "big"): ">i2", (2, "little"): "<i2"}
_LAWS = {"ulaw": "ulaw", "mu-law": "ulaw", "mulaw": "ulaw", "alaw": "alaw", "a-law": "alaw"}
_SHORTEN = ("embedded-shorten-v1", "embedded-shorten-v2")
_ORDERS = {"01": "little", "10": "big"}
# Maximum number of compressed samples a header may promise: 4.6 hours of two channels at 8 kHz.
_MAX_SHORTENED = 1 << 28


@dataclass(frozen=True)
class SphereHeader:
    """Header of a SPHERE file. `num_samples` counts per channel; `fields` has all fields with their types.

    `compression` is `none` or `shorten`; `checksum` is 0 where the file has none.
    """

    sample_rate: int
    num_samples: int
    channels: int
    sample_bytes: int
    byte_order: str
    coding: str
    compression: str
    checksum: int
    header_bytes: int
    fields: dict[str, int | float | str]


def read_header(path: str | Path) -> SphereHeader:
    """Read the header of a SPHERE file and check it against the size of the file.

    Bytes after the samples that the header promises are allowed. Raises DataError for a file that is not SPHERE, a
    damaged header, a coding that las does not read, a file without samples, and one that ends before its last sample;
    compressed samples are counted when they are decoded.
    """
    with shards.naming(path), shards.open_binary(path) as file:
        fields, header_bytes = _read_fields(file, path)
        file_bytes = file.seek(0, 2)
    coding, _, compression = str(fields.get("sample_coding", "pcm")).lower().partition(",")
    header = SphereHeader(
        sample_rate=_positive(fields, "sample_rate", path),
        num_samples=_positive(fields, "sample_count", path, minimum=0),
        channels=_positive(fields | {"channel_count": fields.get("channel_count", 1)}, "channel_count", path),
        sample_bytes=_positive(fields, "sample_n_bytes", path),
        byte_order=str(fields.get("sample_byte_format", "01")),
        coding=_LAWS.get(coding, coding),
        compression="shorten" if compression.startswith(_SHORTEN) else compression or "none",
        checksum=_positive({"sample_checksum": 0} | fields, "sample_checksum", path, minimum=0),
        header_bytes=header_bytes,
        fields=fields,
    )
    header = _checked(header, path)
    _require_samples(header, path, max(file_bytes - header_bytes, 0))
    if header.compression == "none":
        with shards.naming(path), shards.open_binary(path) as file:
            file.seek(header_bytes + header.num_samples * header.channels * header.sample_bytes)
            _require_single(file.read(len(MAGIC)), header, path)
    return header


def read(
    path: str | Path, start: int = 0, count: int | None = None, header: SphereHeader | None = None
) -> Float32[np.ndarray, "samples channels"]:
    """Read `count` samples (by default up to the end) of all channels from sample `start`, in [-1, 1].

    Compressed files are decoded whole and cached, so that the segments of a conversation do not decode it again. A
    checksum is verified whenever the whole file is read.
    Raises DataError as `read_header` does, and for a stretch that is not within the file.
    """
    header = header or read_header(path)
    count = header.num_samples - start if count is None else count
    if not 0 <= start <= start + count <= header.num_samples:
        raise DataError(f"{path}: samples {start} to {start + count} are not within its {header.num_samples} samples")
    if header.compression == "shorten":
        values = _shortened(path, header)[start : start + count]
    else:
        values = _plain(path, start, count, header)
    if header.coding == "pcm":
        return values.astype(np.float32) / np.float32(1 << (8 * header.sample_bytes - 1))
    return _law_table(header.coding)[values]


def _plain(path: str | Path, start: int, count: int, header: SphereHeader) -> np.ndarray:
    kind = np.dtype(np.uint8 if header.coding != "pcm" else _PCM[header.sample_bytes, header.byte_order])
    row_bytes = header.channels * header.sample_bytes
    with shards.naming(path), shards.open_binary(path) as file:
        file.seek(header.header_bytes + start * row_bytes)
        values = np.frombuffer(file.read(count * row_bytes), kind).reshape(-1, header.channels)
    if count == header.num_samples:
        _verify(values, header, path)
    return values


def _shortened(path: str | Path, header: SphereHeader) -> np.ndarray:
    with shards.naming(path):
        status = os.stat(shards.file_of(path))
    key = (os.path.abspath(path), status.st_size, status.st_mtime_ns, header.num_samples)
    return _decoded.get(key, lambda: _decode(path, header))


def _decode(path: str | Path, header: SphereHeader) -> np.ndarray:
    kind = header.coding if header.coding != "pcm" else f"pcm{8 * header.sample_bytes}"
    with shards.naming(path), shards.open_binary(path) as file:
        file.seek(header.header_bytes)
        data = file.read()
    _require_single(data, header, path)
    try:
        values = shorten.decode(data, header.num_samples, header.channels, kind)
    except shorten.Damaged as error:
        message = f"{path}: the file is cut short or damaged: its header {error}. Copy it again"
        raise DataError(message, kind="damaged") from error
    _verify(values, header, path)
    return values


class _Decoded:
    """Thread-safe cache of decoded files, least recently used first out: up to `max_bytes`, but at least one file."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._arrays: OrderedDict[tuple[str, int, int, int], np.ndarray] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: tuple[str, int, int, int], decode: Callable[[], np.ndarray]) -> np.ndarray:
        """Look up an array; `decode` makes one that is not in the cache."""
        with self._lock:  # also while decoding: of two threads that want one file, one decodes it
            if key not in self._arrays:
                self._arrays[key] = decode()
                while len(self._arrays) > 1 and sum(each.nbytes for each in self._arrays.values()) > self._max_bytes:
                    self._arrays.popitem(last=False)
            self._arrays.move_to_end(key)
            return self._arrays[key]


_decoded = _Decoded(max_bytes=256 << 20)  # holds the 20 conversations of CallHome that are in Hub5'00: 192 MB


def _read_fields(file: BinaryIO, path: str | Path) -> tuple[dict[str, int | float | str], int]:
    if file.read(len(MAGIC)) != MAGIC:
        raise DataError(f"{path}: not a NIST SPHERE file: it does not begin with NIST_1A")
    size = file.read(8).strip()
    if not size.isdigit() or not 16 <= int(size) <= _MAX_HEADER_BYTES:
        raise DataError(f"{path}: damaged SPHERE header: its second line should be the header's size, not {size!r}")
    header = file.read(int(size) - 16)
    fields: dict[str, int | float | str] = {}
    offset = 0
    while offset < len(header):
        line = header[offset:].split(b"\n", 1)[0]
        words = line.split(None, 2)
        if words[:1] == [b"end_head"]:
            return fields, int(size)
        offset += len(line) + 1
        if len(words) < 2 or line.startswith(b";"):
            continue
        name, kind = words[0].decode("latin-1"), words[1]
        value = words[2] if len(words) == 3 else b""
        try:
            if kind in (b"-i", b"-r"):
                number = text_files.number(value.strip().decode("latin-1"))
                fields[name] = int(value) if kind == b"-i" else number
            elif kind.startswith(b"-s"):
                fields[name] = value[: int(kind[2:])].decode("latin-1")
        except ValueError as error:
            raise DataError(f"{path}: damaged SPHERE header: {line.decode('latin-1')!r}") from error
    raise DataError(f"{path}: damaged SPHERE header: it has no end_head within its {int(size)} bytes")


def _positive(fields: dict[str, int | float | str], name: str, path: str | Path, minimum: int = 1) -> int:
    value = fields.get(name)
    if isinstance(value, str) and text_files.is_integer(value):  # libsndfile writes bytes of mu-law samples as text
        value = int(value)
    if not isinstance(value, int) or value < minimum:
        problem = "is missing" if value is None else f"is {value!r}"
        message = f"{path}: damaged SPHERE header: {name} {problem}, expected a whole number of at least {minimum}"
        raise DataError(message)
    return value


def _checked(header: SphereHeader, path: str | Path) -> SphereHeader:
    """Check the coding, and name the byte order. Raises DataError for samples that las does not read."""
    one_byte = header.sample_bytes == 1
    order = "little" if one_byte else _ORDERS.get(header.byte_order)
    if order is None:
        found = f"sample_byte_format is {header.byte_order!r}"
        raise DataError(f"{path}: damaged SPHERE header: {found}, expected 01 or 10")
    known = (header.sample_bytes, order) in _PCM if header.coding == "pcm" else one_byte
    shortened = header.compression == "shorten" and header.coding in ("pcm", "ulaw")
    if header.coding not in ("pcm", "ulaw", "alaw") or not known or not (shortened or header.compression == "none"):
        compressed = "" if header.compression == "none" else f", compressed ({header.compression}),"
        raise DataError(
            f"{path}: {header.coding} samples of {header.sample_bytes} bytes{compressed} are not supported: las reads "
            "pcm of 1 or 2 bytes, ulaw and alaw, and shorten of pcm and ulaw. Convert the file to wav or flac"
        )
    return replace(header, byte_order=order)


def _require_samples(header: SphereHeader, path: str | Path, data_bytes: int) -> None:
    if header.num_samples == 0:
        raise DataError(
            f"{path}: the file has a header but no samples: its sample_count is 0. Copy it again", kind="no samples"
        )
    if header.compression == "shorten":
        if header.num_samples * header.channels > _MAX_SHORTENED:
            raise DataError(
                f"{path}: its header promises {header.num_samples} samples of {header.channels} channels, las reads at "
                f"most {_MAX_SHORTENED} compressed ones: the header is damaged, or the file is better cut up"
            )
        return
    num_present = data_bytes // (header.channels * header.sample_bytes)
    if num_present < header.num_samples:
        raise DataError(
            f"{path}: the file is cut short: its header promises {header.num_samples} samples, {num_present} are "
            "there. Copy it again",
            kind="cut short",
        )


def _require_single(after: bytes, header: SphereHeader, path: str | Path) -> None:
    """Raise DataError if another SPHERE file begins in the bytes after the header, or after plain samples."""
    if MAGIC in after:
        seconds = header.num_samples / header.sample_rate
        raise DataError(
            f"{path}: another SPHERE file was appended after {seconds:.2f} s: cut it up where it says NIST_1A",
            kind="joined",
        )


def _verify(values: np.ndarray, header: SphereHeader, path: str | Path) -> None:
    """Raise DataError unless the checksum is right: the sum of all samples as unsigned numbers, modulo 2^16."""
    if header.checksum == 0:
        return
    checksum = int(values.view(f"{values.dtype.byteorder}u{header.sample_bytes}").sum(dtype=np.uint64)) % (1 << 16)
    if checksum != header.checksum:
        raise DataError(
            f"{path}: the samples are damaged: their checksum is {checksum}, the header says {header.checksum}. "
            "Copy it again",
            kind="damaged",
        )


@functools.cache
def _law_table(coding: str) -> Float32[np.ndarray, "256"]:
    """Amplitudes of the 256 codes of G.711, as fractions of 16-bit full scale."""
    every_code = io.BytesIO(bytes(range(256)))
    options = {"samplerate": 8000, "channels": 1, "format": "RAW", "subtype": coding.upper(), "dtype": "float32"}
    return np.asarray(soundfile.read(every_code, **options)[0])
