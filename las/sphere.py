"""NIST SPHERE files: the header, and PCM, mu-law and a-law samples.

Header: NIST's SPHERE package (`NIST_1A`, the header's size, then `name -type value` lines up to `end_head`).
mu-law and a-law: ITU-T G.711.
"""

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from jaxtyping import Float32

from las.errors import DataError

MAGIC = b"NIST_1A\n"
# Headers are 1024 bytes in practice; a larger number is a damaged header, not one to read into memory.
_MAX_HEADER_BYTES = 1 << 20
_PCM = {(1, "big"): ">i1", (1, "little"): "<i1", (2, "big"): ">i2", (2, "little"): "<i2"}
_LAWS = {"ulaw": "ulaw", "mu-law": "ulaw", "mulaw": "ulaw", "alaw": "alaw", "a-law": "alaw"}


@dataclass(frozen=True)
class SphereHeader:
    """What a SPHERE header says. `num_samples` counts per channel; `fields` holds every field, typed."""

    sample_rate: int
    num_samples: int
    channels: int
    sample_bytes: int
    byte_order: str
    coding: str
    header_bytes: int
    fields: dict[str, int | float | str]


def read_header(path: str | Path) -> SphereHeader:
    """The header of a SPHERE file, checked against the size of the file.

    Bytes after the samples that the header promises are allowed. Raises DataError for a file that is not SPHERE, a
    damaged header, samples compressed with shorten, and a file that ends before its last sample.
    """
    try:
        with open(path, "rb") as file:
            fields, header_bytes = _read_fields(file, path)
            file_bytes = file.seek(0, 2)
    except OSError as error:
        raise DataError(f"{path}: cannot read the file ({error.strerror})") from error
    coding = str(fields.get("sample_coding", "pcm"))
    if "shorten" in coding:
        raise DataError(
            f"{path}: the samples are compressed ({coding}), which las does not read. Uncompress the file with NIST's "
            "sph2pipe (sph2pipe -f sph in.sph out.sph) or w_decode, and try again"
        )
    header = SphereHeader(
        sample_rate=_positive(fields, "sample_rate", path),
        num_samples=_positive(fields, "sample_count", path, least=0),
        channels=_positive(fields | {"channel_count": fields.get("channel_count", 1)}, "channel_count", path),
        sample_bytes=_positive(fields, "sample_n_bytes", path),
        byte_order="big" if str(fields.get("sample_byte_format", "01")) == "10" else "little",
        coding=_LAWS.get(coding.lower(), coding.lower()),
        header_bytes=header_bytes,
        fields=fields,
    )
    _check_coding(header, path)
    found = max(file_bytes - header_bytes, 0) // (header.channels * header.sample_bytes)
    if found < header.num_samples:
        raise DataError(
            f"{path}: the file is cut short: its header promises {header.num_samples} samples, {found} are there. "
            "Copy it again"
        )
    return header


def read(
    path: str | Path, start: int = 0, count: int | None = None, header: SphereHeader | None = None
) -> Float32[np.ndarray, "samples channels"]:
    """`count` samples (all that are left by default) of every channel from sample `start` on, in [-1, 1].

    Raises DataError as `read_header` does.
    """
    header = header or read_header(path)
    count = header.num_samples - start if count is None else count
    row_bytes = header.channels * header.sample_bytes
    kind = np.dtype(np.uint8 if header.coding != "pcm" else _PCM[header.sample_bytes, header.byte_order])
    try:
        values = np.fromfile(path, kind, count * header.channels, offset=header.header_bytes + start * row_bytes)
    except OSError as error:
        raise DataError(f"{path}: cannot read the file ({error.strerror})") from error
    if header.coding == "pcm":
        samples = values.astype(np.float32) / np.float32(1 << (8 * header.sample_bytes - 1))
    else:
        samples = _law_table(header.coding)[values]
    return samples.reshape(-1, header.channels)


def _read_fields(file: BinaryIO, path: str | Path) -> tuple[dict[str, int | float | str], int]:
    if file.read(len(MAGIC)) != MAGIC:
        raise DataError(f"{path}: not a NIST SPHERE file: it does not begin with NIST_1A")
    size = file.read(8).strip()
    if not size.isdigit() or not 16 <= int(size) <= _MAX_HEADER_BYTES:
        raise DataError(f"{path}: damaged SPHERE header: its second line should be the header's size, not {size!r}")
    header = file.read(int(size) - 16)
    fields: dict[str, int | float | str] = {}
    at = 0
    while at < len(header):
        line = header[at:].split(b"\n", 1)[0]
        words = line.split(None, 2)
        if words[:1] == [b"end_head"]:
            return fields, int(size)
        at += len(line) + 1
        if len(words) < 2 or line.startswith(b";"):
            continue
        name, kind = words[0].decode("latin-1"), words[1]
        value = words[2] if len(words) == 3 else b""
        try:
            if kind == b"-i":
                fields[name] = int(value)
            elif kind == b"-r":
                fields[name] = float(value)
            elif kind.startswith(b"-s"):
                fields[name] = value[: int(kind[2:])].decode("latin-1")
        except ValueError as error:
            raise DataError(f"{path}: damaged SPHERE header: {line.decode('latin-1')!r}") from error
    raise DataError(f"{path}: damaged SPHERE header: it has no end_head within its {int(size)} bytes")


def _positive(fields: dict[str, int | float | str], name: str, path: str | Path, least: int = 1) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or value < least:
        found = "is missing" if value is None else f"is {value!r}"
        raise DataError(f"{path}: damaged SPHERE header: {name} {found}, expected a whole number of at least {least}")
    return value


def _check_coding(header: SphereHeader, path: str | Path) -> None:
    known = (header.sample_bytes, header.byte_order) in _PCM if header.coding == "pcm" else header.sample_bytes == 1
    if header.coding not in ("pcm", "ulaw", "alaw") or not known:
        raise DataError(
            f"{path}: {header.coding} samples of {header.sample_bytes} bytes are not supported: las reads pcm of 1 or "
            "2 bytes, ulaw and alaw. Convert the file to wav or flac"
        )


@functools.cache
def _law_table(coding: str) -> Float32[np.ndarray, "256"]:
    """The amplitude of each of the 256 codes of G.711, as a fraction of 16-bit full scale."""
    codes = np.arange(256)
    if coding == "ulaw":
        codes = codes ^ 0xFF
        exponent, mantissa = (codes >> 4) & 7, codes & 15
        magnitude = (((mantissa << 3) + 0x84) << exponent) - 0x84
        sign = np.where(codes & 0x80, -1, 1)
    else:
        codes = codes ^ 0x55
        exponent, mantissa = (codes >> 4) & 7, codes & 15
        magnitude = np.where(
            exponent == 0, (mantissa << 4) + 8, ((mantissa << 4) + 0x108) << np.maximum(exponent - 1, 0)
        )
        sign = np.where(codes & 0x80, 1, -1)
    return (sign * magnitude / 32768).astype(np.float32)
