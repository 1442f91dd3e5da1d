"""Reading of wav, flac, ogg and NIST SPHERE files: headers, whole files, stretches of one channel, all checked.

A path may also name a file in a shard (`las.data.audio.shards`).
"""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import soundfile
from jaxtyping import Float32

from las.data.audio import shards, sphere
from las.runtime.errors import DataError

LOWEST_RATE, HIGHEST_RATE = 1_000, 768_000
"""Range of sample rates in Hz. A header outside it is damaged or hostile: at 1 Hz, short files would last for hours."""
_UNKNOWN_SIZE = 0xFFFFFFFF
_OPEN_LENGTH = (1 << 63) - 1  # length that libsndfile gives a flac file whose header does not state one
# Silence in flac is the densest audio: a frame of 9 bytes holds a block of at most 65,535 samples.
_FLAC_FRAME_BYTES, _FLAC_BLOCK = 9, 65_535


@dataclass(frozen=True, slots=True)
class AudioInfo:
    """Properties of an audio file: `sample_rate` in Hz, `num_samples` of each channel, number of `channels`."""

    sample_rate: int
    num_samples: int
    channels: int

    @property
    def duration_s(self) -> float:
        """Duration in seconds."""
        return self.num_samples / self.sample_rate

    def require(self, path: str | Path, sample_rate: int, end_s: float = 0.0, channels: int | None = None) -> None:
        """Raise DataError naming the file unless it has this rate, reaches `end_s` and has `channels` channels."""
        if self.sample_rate != sample_rate:
            message = f"{path}: sampled at {self.sample_rate} Hz, the corpus is at {sample_rate} Hz"
            raise DataError(message, kind="sample rate")
        if channels is not None and self.channels != channels:
            raise DataError(f"{path}: {self.channels} channels, expected {channels}", kind="channels")
        if end_s > self.duration_s + 1 / sample_rate:
            message = f"{path}: ends at {self.duration_s:.3f} s, the utterance at {end_s:.3f} s"
            raise DataError(message, kind="ends too early")


def info(path: str | Path) -> AudioInfo:
    """Read the header of an audio file and check it against the size of the file.

    SPHERE is recognised by the file's first bytes, whatever its name. Raises DataError for a file that is missing,
    not a regular file, empty, unreadable, without samples, or cut short (with the samples promised and found), for a
    sample rate outside 1 to 768 kHz, and for a header that promises more samples than its bytes can hold.
    """
    return _open(path)[0]


def read(path: str | Path) -> tuple[AudioInfo, Float32[np.ndarray, "samples channels"]]:
    """Read the header and all samples of all channels. Raises DataError as `info` and `load` do."""
    audio_info, header = _open(path)
    return audio_info, _read(path, audio_info, header, 0, audio_info.num_samples)


def blocks(path: str | Path, block_s: float = 30.0) -> Iterator[Float32[np.ndarray, "samples channels"]]:
    """Read all samples of all channels in blocks of `block_s` seconds, so that memory does not grow with the file.

    Raises DataError as `info` does, and for damage and samples that are not finite at the block that has them.
    """
    audio_info, header = _open(path)
    size = max(round(block_s * audio_info.sample_rate), 1)
    if header is not None:
        for start in range(0, audio_info.num_samples, size):
            yield sphere.read(path, start, min(size, audio_info.num_samples - start), header)
        return
    num_decoded = 0
    try:
        with _decoder(path) as file:
            while len(samples := file.read(size, dtype="float32", always_2d=True)):
                _require_finite(path, samples)
                num_decoded += len(samples)
                yield samples
    except soundfile.SoundFileError as error:
        raise _damaged(path, error) from error
    _require_whole(path, audio_info, num_decoded)


def load(
    path: str | Path,
    channel: int = 0,
    start_s: float = 0.0,
    duration_s: float | None = None,
    sample_rate: int | None = None,
) -> Float32[np.ndarray, "samples"]:
    """Read amplitudes of one channel: integer samples scaled to [-1, 1], floating-point samples unchanged.

    `channel` counts from 0, `duration_s=None` reads to the end, `sample_rate` (Hz) is the rate the file must have.
    Raises DataError as `info` does, and for another rate, samples that are not finite, a channel that does not exist,
    and a stretch that does not lie within the file.
    """
    audio_info, header = _open(path)
    if sample_rate is not None:
        audio_info.require(path, sample_rate, start_s + (duration_s or 0.0))
    if not 0 <= channel < audio_info.channels:
        raise DataError(f"{path}: there is no channel {channel}: the file has {audio_info.channels}, counted from 0")
    start = round(start_s * audio_info.sample_rate)
    end = audio_info.num_samples if duration_s is None else start + round(duration_s * audio_info.sample_rate)
    if end == audio_info.num_samples + 1:  # start and duration were rounded apart
        end = audio_info.num_samples
    if not 0 <= start < end <= audio_info.num_samples:
        raise DataError(
            f"{path}: {start_s} s to {end / audio_info.sample_rate} s is not a stretch of a file of "
            f"{audio_info.duration_s} s"
        )
    return np.ascontiguousarray(_read(path, audio_info, header, start, end - start)[:, channel])


def _open(path: str | Path) -> tuple[AudioInfo, sphere.SphereHeader | None]:
    """Read the header; the second value is the SPHERE header, or None for other formats."""
    path, on_disk = Path(path), Path(shards.file_of(path))
    try:
        if not on_disk.is_file():
            exists, folder = on_disk.exists(), on_disk.is_dir()
            kind = "is a folder" if folder else "is not a regular file" if exists else "does not exist"
            raise DataError(f"{on_disk}: {kind}, expected an audio file", kind="not a file" if exists else "missing")
        with shards.open_binary(path) as file:
            beginning = file.read(12)
            if not beginning:
                raise DataError(f"{path}: the file is empty (0 bytes). Copy it again", kind="empty file")
            header = sphere.read_header(path) if beginning.startswith(sphere.MAGIC) else None
            declared = _declared_data(file, beginning)
            max_samples = _max_samples(beginning, file.seek(0, 2))
    except OSError as error:
        raise DataError(f"{path}: cannot read the file ({error.strerror})") from error
    if header is not None:
        audio_info = AudioInfo(header.sample_rate, header.num_samples, header.channels)
    else:
        audio_info = _soundfile_info(path, declared)
        _require_capacity(path, audio_info, max_samples)
    if audio_info.num_samples == 0:
        raise DataError(f"{path}: the file has a header but no samples. Copy it again", kind="no samples")
    if not LOWEST_RATE <= audio_info.sample_rate <= HIGHEST_RATE:
        raise DataError(
            f"{path}: its header says {audio_info.sample_rate:,} Hz, las reads {LOWEST_RATE:,} to {HIGHEST_RATE:,} Hz: "
            "the header is damaged, copy the file again",
            kind="sample rate",
        )
    return audio_info, header


def _max_samples(beginning: bytes, file_bytes: int) -> int:
    """Maximum number of samples per channel in a file of this size, in any format; flac states its block length."""
    block = int.from_bytes(beginning[10:12], "big") if beginning.startswith(b"fLaC") else _FLAC_BLOCK
    return file_bytes * block // _FLAC_FRAME_BYTES


def _require_capacity(path: Path, audio_info: AudioInfo, max_samples: int) -> None:
    """Raise DataError if the file is too small for the samples its header promises (libsndfile does not)."""
    if audio_info.num_samples == _OPEN_LENGTH:
        raise DataError(
            f"{path}: its header does not say how many samples there are, as when flac is written to a pipe: write it "
            "to a file, or convert it to wav",
            kind="no length",
        )
    if audio_info.num_samples > max_samples:
        raise DataError(
            f"{path}: the file is cut short or damaged: its header promises {audio_info.num_samples} samples, its "
            f"bytes hold at most {max_samples}. Copy it again",
            kind="cut short",
        )


def _soundfile_info(path: Path, declared: tuple[int, int, int] | None) -> AudioInfo:
    if declared is not None:
        promised, present, row_bytes = declared
        if present < promised:
            raise DataError(
                f"{path}: the file is cut short: its header promises {promised // row_bytes} samples, "
                f"{present // row_bytes} are there. Copy it again",
                kind="cut short",
            )
    try:
        with _decoder(path) as file:
            return AudioInfo(file.samplerate, file.frames, file.channels)
    except soundfile.SoundFileError as error:
        message = f"{path}: not audio that las can read ({error}): wav, flac, ogg or NIST SPHERE"
        raise DataError(message, kind="not audio") from error


@contextmanager
def _decoder(path: str | Path) -> Iterator[soundfile.SoundFile]:
    """Open an audio file with libsndfile: by its path, or the bytes of a file in a shard."""
    if shards.member(path) is None:
        with soundfile.SoundFile(str(path)) as file:
            yield file
        return
    with shards.open_binary(path) as stream, soundfile.SoundFile(stream) as file:
        yield file


def _declared_data(file: BinaryIO, beginning: bytes) -> tuple[int, int, int] | None:
    """Read from a wav file: bytes of samples promised, bytes present, bytes of one sample of all channels.

    None for other formats and for a size left open (a wav written to a pipe). libsndfile reads a file that is cut
    short without an error.
    """
    order = {b"RIFF": "<", b"RF64": "<", b"RIFX": ">"}.get(beginning[:4])
    if order is None or beginning[8:12] != b"WAVE":
        return None
    file_bytes = file.seek(0, 2)
    offset, row_bytes, size_64 = 12, 1, None
    while offset + 8 <= file_bytes:
        file.seek(offset)
        name, size = struct.unpack(order + "4sI", file.read(8))
        if name == b"data":
            promised = size_64 if size_64 is not None and size == _UNKNOWN_SIZE else size
            return None if promised == _UNKNOWN_SIZE else (promised, file_bytes - offset - 8, row_bytes)
        content = file.read(min(size, 24))
        if name == b"fmt " and len(content) >= 14:
            row_bytes = max(struct.unpack(order + "H", content[12:14])[0], 1)
        elif name == b"ds64" and len(content) >= 16:
            size_64 = struct.unpack(order + "Q", content[8:16])[0]
        offset += 8 + size + size % 2
    return None


def _read(
    path: str | Path, audio_info: AudioInfo, header: sphere.SphereHeader | None, start: int, count: int
) -> Float32[np.ndarray, "samples channels"]:
    if header is not None:
        return sphere.read(path, start, count, header)
    try:
        with _decoder(path) as file:
            file.seek(start)
            samples = file.read(count, dtype="float32", always_2d=True)
    except soundfile.SoundFileError as error:
        raise _damaged(path, error) from error
    if len(samples) < count:
        _require_whole(path, audio_info, start + len(samples))
    _require_finite(path, samples)
    return samples


def _damaged(path: str | Path, error: Exception) -> DataError:
    message = f"{path}: the file is damaged or cut short and cannot be decoded ({error}). Copy it again"
    return DataError(message, kind="damaged")


def _require_whole(path: str | Path, audio_info: AudioInfo, decoded: int) -> None:
    if decoded < audio_info.num_samples:
        raise DataError(
            f"{path}: the file is cut short: its header promises {audio_info.num_samples} samples, {decoded} could be "
            "decoded. Copy it again",
            kind="cut short",
        )


def _require_finite(path: str | Path, samples: Float32[np.ndarray, "samples channels"]) -> None:
    if not np.isfinite(samples).all():
        bad = int(np.count_nonzero(~np.isfinite(samples)))
        raise DataError(f"{path}: {bad} samples are not finite numbers (NaN or infinite)", kind="not finite")
