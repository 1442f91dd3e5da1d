"""One channel of a wav, flac, ogg or NIST SPHERE file, checked, from `start_s` for `duration_s`."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import soundfile
from jaxtyping import Float32

from las.data.audio import sphere
from las.runtime.errors import DataError

LOWEST_RATE, HIGHEST_RATE = 1_000, 768_000
"""In Hz: a header that says less or more is damaged, or meant to keep the reader busy: at 1 Hz a second is 11 hours."""
_UNKNOWN_SIZE = 0xFFFFFFFF
_OPEN_LENGTH = (1 << 63) - 1  # libsndfile's word for a flac that does not say how long it is
# The densest audio is flac's silence: a frame of these bytes holds a block, of at most so many samples.
_FLAC_FRAME_BYTES, _FLAC_BLOCK = 9, 65_535


@dataclass(frozen=True)
class AudioInfo:
    """`num_samples` counts per channel, at `sample_rate` Hz."""

    sample_rate: int
    num_samples: int
    channels: int

    @property
    def duration_s(self) -> float:
        return self.num_samples / self.sample_rate

    def require(self, path: str | Path, sample_rate: int, end_s: float = 0.0, channels: int | None = None) -> None:
        """Raise DataError naming the file unless it has this rate, reaches `end_s` and has so many channels."""
        if self.sample_rate != sample_rate:
            says = f"{path}: sampled at {self.sample_rate} Hz, the corpus is at {sample_rate} Hz"
            raise DataError(says, kind="sample rate")
        if channels is not None and self.channels != channels:
            raise DataError(f"{path}: {self.channels} channels, expected {channels}", kind="channels")
        if end_s > self.duration_s + 1 / sample_rate:
            says = f"{path}: ends at {self.duration_s:.3f} s, the utterance at {end_s:.3f} s"
            raise DataError(says, kind="ends too early")


def info(path: str | Path) -> AudioInfo:
    """What the header of an audio file says, checked against the size of the file.

    SPHERE is recognised by the file's first bytes, whatever its name. Raises DataError for a file that is missing,
    not a regular file, empty, unreadable, without samples, or cut short (with the samples promised and found), for a
    sample rate outside 1 to 768 kHz, and for a header that promises more samples than its bytes can hold.
    """
    return _open(path)[0]


def read(path: str | Path) -> tuple[AudioInfo, Float32[np.ndarray, "samples channels"]]:
    """What the header says, and every sample of every channel. Raises DataError as `info` and `load` do."""
    found, header = _open(path)
    return found, _read(path, found, header, 0, found.num_samples)


def blocks(path: str | Path, block_s: float = 30.0) -> Iterator[Float32[np.ndarray, "samples channels"]]:
    """Every sample of every channel, `block_s` at a time, so that the length of a file takes no memory.

    Raises DataError as `info` does, and, where it is reached, for damage and for samples that are not finite.
    """
    found, header = _open(path)
    size = max(round(block_s * found.sample_rate), 1)
    if header is not None:
        for start in range(0, found.num_samples, size):
            yield sphere.read(path, start, min(size, found.num_samples - start), header)
        return
    done = 0
    try:
        with soundfile.SoundFile(str(path)) as file:
            while len(samples := file.read(size, dtype="float32", always_2d=True)):
                _require_finite(path, samples)
                done += len(samples)
                yield samples
    except soundfile.SoundFileError as error:
        raise _damaged(path, error) from error
    _require_whole(path, found, done)


def load(
    path: str | Path,
    channel: int = 0,
    start_s: float = 0.0,
    duration_s: float | None = None,
    sample_rate: int | None = None,
) -> Float32[np.ndarray, "samples"]:
    """Amplitudes of one channel: whole numbers scaled to [-1, 1], floating-point files as they are.

    `channel` counts from 0, `duration_s=None` is up to the end, `sample_rate` (Hz) is what the file must have.
    Raises DataError as `info` does, and for another rate, samples that are not finite, a channel that does not exist,
    and a stretch that does not lie within the file.
    """
    found, header = _open(path)
    if sample_rate is not None:
        found.require(path, sample_rate, start_s + (duration_s or 0.0))
    if not 0 <= channel < found.channels:
        raise DataError(f"{path}: there is no channel {channel}: the file has {found.channels}, counted from 0")
    start = round(start_s * found.sample_rate)
    end = found.num_samples if duration_s is None else start + round(duration_s * found.sample_rate)
    if end == found.num_samples + 1:  # start and duration were rounded apart
        end = found.num_samples
    if not 0 <= start < end <= found.num_samples:
        raise DataError(
            f"{path}: {start_s} s to {end / found.sample_rate} s is not a stretch of a file of {found.duration_s} s"
        )
    return np.ascontiguousarray(_read(path, found, header, start, end - start)[:, channel])


def _open(path: str | Path) -> tuple[AudioInfo, sphere.SphereHeader | None]:
    """What the header says, and the SPHERE header if it is one."""
    path = Path(path)
    try:
        if not path.is_file():
            kind = "is a folder" if path.is_dir() else "is not a regular file" if path.exists() else "does not exist"
            missing = kind == "does not exist"
            raise DataError(f"{path}: {kind}, expected an audio file", kind="missing" if missing else "not a file")
        with path.open("rb") as file:
            beginning = file.read(12)
            if not beginning:
                raise DataError(f"{path}: the file is empty (0 bytes). Copy it again", kind="empty file")
            header = sphere.read_header(path) if beginning.startswith(sphere.MAGIC) else None
            declared = _declared_data(file, beginning)
            most_samples = _most_samples(beginning, file.seek(0, 2))
    except OSError as error:
        raise DataError(f"{path}: cannot read the file ({error.strerror})") from error
    if header is not None:
        found = AudioInfo(header.sample_rate, header.num_samples, header.channels)
    else:
        found = _soundfile_info(path, declared)
        _require_room(path, found, most_samples)
    if found.num_samples == 0:
        raise DataError(f"{path}: the file has a header but no samples. Copy it again", kind="no samples")
    if not LOWEST_RATE <= found.sample_rate <= HIGHEST_RATE:
        raise DataError(
            f"{path}: its header says {found.sample_rate:,} Hz, las reads {LOWEST_RATE:,} to {HIGHEST_RATE:,} Hz: the "
            "header is damaged, copy the file again",
            kind="sample rate",
        )
    return found, header


def _most_samples(beginning: bytes, file_bytes: int) -> int:
    """Samples of each channel that a file of this size can hold in any format; a flac says how long its blocks are."""
    block = int.from_bytes(beginning[10:12], "big") if beginning.startswith(b"fLaC") else _FLAC_BLOCK
    return file_bytes * block // _FLAC_FRAME_BYTES


def _require_room(path: Path, found: AudioInfo, most_samples: int) -> None:
    """Raise DataError if there are too few bytes for what the header promises; libsndfile believes every header."""
    if found.num_samples == _OPEN_LENGTH:
        raise DataError(
            f"{path}: its header does not say how many samples there are, as when flac is written to a pipe: write it "
            "to a file, or convert it to wav",
            kind="no length",
        )
    if found.num_samples > most_samples:
        raise DataError(
            f"{path}: the file is cut short or damaged: its header promises {found.num_samples} samples, its bytes "
            f"hold at most {most_samples}. Copy it again",
            kind="cut short",
        )


def _soundfile_info(path: Path, declared: tuple[int, int, int] | None) -> AudioInfo:
    if declared is not None:
        promised, there, row_bytes = declared
        if there < promised:
            raise DataError(
                f"{path}: the file is cut short: its header promises {promised // row_bytes} samples, "
                f"{there // row_bytes} are there. Copy it again",
                kind="cut short",
            )
    try:
        header = soundfile.info(str(path))
    except soundfile.SoundFileError as error:
        says = f"{path}: not audio that las can read ({error}): wav, flac, ogg or NIST SPHERE"
        raise DataError(says, kind="not audio") from error
    return AudioInfo(header.samplerate, header.frames, header.channels)


def _declared_data(file: BinaryIO, beginning: bytes) -> tuple[int, int, int] | None:
    """Bytes of samples that a wav file promises, bytes that are there, bytes a sample of all channels takes.

    None for other formats and for a size left open (a wav written to a pipe). libsndfile reads what is there and says
    nothing.
    """
    order = {b"RIFF": "<", b"RF64": "<", b"RIFX": ">"}.get(beginning[:4])
    if order is None or beginning[8:12] != b"WAVE":
        return None
    file_bytes = file.seek(0, 2)
    at, row_bytes, large = 12, 1, None
    while at + 8 <= file_bytes:
        file.seek(at)
        name, size = struct.unpack(order + "4sI", file.read(8))
        if name == b"data":
            promised = large if large is not None and size == _UNKNOWN_SIZE else size
            return None if promised == _UNKNOWN_SIZE else (promised, file_bytes - at - 8, row_bytes)
        content = file.read(min(size, 24))
        if name == b"fmt " and len(content) >= 14:
            row_bytes = max(struct.unpack(order + "H", content[12:14])[0], 1)
        elif name == b"ds64" and len(content) >= 16:
            large = struct.unpack(order + "Q", content[8:16])[0]
        at += 8 + size + size % 2
    return None


def _read(
    path: str | Path, found: AudioInfo, header: sphere.SphereHeader | None, start: int, count: int
) -> Float32[np.ndarray, "samples channels"]:
    if header is not None:
        return sphere.read(path, start, count, header)
    try:
        with soundfile.SoundFile(str(path)) as file:
            file.seek(start)
            samples = file.read(count, dtype="float32", always_2d=True)
    except soundfile.SoundFileError as error:
        raise _damaged(path, error) from error
    if len(samples) < count:
        _require_whole(path, found, start + len(samples))
    _require_finite(path, samples)
    return samples


def _damaged(path: str | Path, error: Exception) -> DataError:
    says = f"{path}: the file is damaged or cut short and cannot be decoded ({error}). Copy it again"
    return DataError(says, kind="damaged")


def _require_whole(path: str | Path, found: AudioInfo, decoded: int) -> None:
    if decoded < found.num_samples:
        raise DataError(
            f"{path}: the file is cut short: its header promises {found.num_samples} samples, {decoded} could be "
            "decoded. Copy it again",
            kind="cut short",
        )


def _require_finite(path: str | Path, samples: Float32[np.ndarray, "samples channels"]) -> None:
    if not np.isfinite(samples).all():
        bad = int(np.count_nonzero(~np.isfinite(samples)))
        raise DataError(f"{path}: {bad} samples are not finite numbers (NaN or infinite)", kind="not finite")
