"""Reading of audio files of all formats: headers, whole files, stretches of one channel, all checked.

A path may also name a file in a shard (`las.data.audio.shards`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float32

from las.data.audio import shards, sphere, streams
from las.runtime.errors import DataError

LOWEST_RATE, HIGHEST_RATE = 1_000, 768_000
"""Range of sample rates in Hz. A header outside it is damaged or hostile: at 1 Hz, short files would last for hours."""
_Source = sphere.SphereHeader | Sequence[streams.Stream]


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
    audio_info, source = _open(path)
    return audio_info, _read(path, source, 0, audio_info.num_samples)


def blocks(path: str | Path, block_s: float = 30.0) -> Iterator[Float32[np.ndarray, "samples channels"]]:
    """Read all samples of all channels in blocks of at most `block_s` seconds, so that memory does not grow with them.

    Raises DataError as `info` does, and for damage and samples that are not finite at the block that has them.
    """
    audio_info, source = _open(path)
    yield from _blocks(path, source, 0, audio_info.num_samples, max(round(block_s * audio_info.sample_rate), 1))


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
    audio_info, source = _open(path)
    if sample_rate is not None:
        audio_info.require(path, sample_rate, start_s + (duration_s or 0.0))
    require_channel(path, channel, audio_info.channels)
    start = round(start_s * audio_info.sample_rate)
    end = audio_info.num_samples if duration_s is None else start + round(duration_s * audio_info.sample_rate)
    if end == audio_info.num_samples + 1:  # start and duration were rounded apart
        end = audio_info.num_samples
    if not 0 <= start < end <= audio_info.num_samples:
        stretch = f"{start_s} s to {end / audio_info.sample_rate} s"
        raise DataError(f"{path}: {stretch} is not a stretch of a file of {audio_info.duration_s} s")
    return np.ascontiguousarray(_read(path, source, start, end - start)[:, channel])


def require_channel(name: str | Path, channel: int, channels: int) -> None:
    """Raise DataError unless a recording of so many channels has this one."""
    if not 0 <= channel < channels:
        raise DataError(f"{name}: there is no channel {channel}: the file has {channels}, counted from 0", "channels")


def _open(path: str | Path) -> tuple[AudioInfo, _Source]:
    """Read the header of a SPHERE file, or find the streams of another one."""
    path, on_disk = Path(path), Path(shards.file_of(path))
    with shards.naming(path):
        if not on_disk.is_file():
            exists = on_disk.exists()
            found = "is a folder" if on_disk.is_dir() else "is not a regular file" if exists else "does not exist"
            raise DataError(f"{on_disk}: {found}, expected an audio file", kind="not a file" if exists else "missing")
        with shards.open_binary(path) as file:
            beginning = file.read(len(sphere.MAGIC))
            if not beginning:
                raise DataError(f"{path}: the file is empty (0 bytes). Copy it again", kind="empty file")
            source = sphere.read_header(path) if beginning == sphere.MAGIC else streams.find(path, file)
    audio_info = _info(path, [source] if isinstance(source, sphere.SphereHeader) else source)
    if audio_info.num_samples == 0:
        raise DataError(f"{path}: the file has a header but no samples. Copy it again", kind="no samples")
    if not LOWEST_RATE <= audio_info.sample_rate <= HIGHEST_RATE:
        raise DataError(
            f"{path}: its header says {audio_info.sample_rate:,} Hz, las reads {LOWEST_RATE:,} to {HIGHEST_RATE:,} Hz: "
            "the header is damaged, copy the file again",
            kind="sample rate",
        )
    return audio_info, source


def _info(path: Path, parts: Sequence[sphere.SphereHeader | streams.Stream]) -> AudioInfo:
    """Properties of a file of these parts. Raises DataError unless all have one sample rate and number of channels."""
    first, num_samples = parts[0], 0
    for part in parts:
        if (part.sample_rate, part.channels) != (first.sample_rate, first.channels):
            raise DataError(
                f"{path}: recordings of several kinds, joined: {first.sample_rate} Hz with {first.channels} channels, "
                f"from {num_samples / first.sample_rate:.2f} s on {part.sample_rate} Hz with {part.channels}. Convert "
                f"it: {streams.conversion(path)}",
                kind="joined",
            )
        num_samples += part.num_samples
    return AudioInfo(first.sample_rate, num_samples, first.channels)


def _blocks(
    path: str | Path, source: _Source, start: int, count: int, block: int
) -> Iterator[Float32[np.ndarray, "samples channels"]]:
    """Read a stretch of all channels in blocks of at most `block` samples; a stream begins a new one."""
    if isinstance(source, sphere.SphereHeader):
        for first in range(start, start + count, block):
            yield sphere.read(path, first, min(block, start + count - first), source)
        return
    place = 0  # of a stream's first sample in the file
    for stream in source:
        first, last = max(start - place, 0), min(start + count - place, stream.num_samples)
        if first < last:
            yield from streams.decode(path, stream, first, last - first, block)
        place += stream.num_samples


def _read(path: str | Path, source: _Source, start: int, count: int) -> Float32[np.ndarray, "samples channels"]:
    read = list(_blocks(path, source, start, count, count))
    return read[0] if len(read) == 1 else np.concatenate(read)
