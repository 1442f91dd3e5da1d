"""Reading of audio files of all formats: headers, whole files, stretches of one channel, all checked.

A path may also name a file in a shard (`las.data.audio.shards`). A file is one stream of samples, as libsndfile decodes
them, or several one after the other: joined mp3 and flac, chained Ogg. What a header promises is compared with the
bytes of the file, and where it leaves the length open, samples are counted.
"""

import functools
import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import soundfile
from jaxtyping import Float32

from las.data.audio import containers, mpeg, shards, sphere
from las.runtime.errors import DataError

LOWEST_RATE, HIGHEST_RATE = 1_000, 768_000
"""Range of sample rates in Hz. A header outside it is damaged or hostile: at 1 Hz, short files would last for hours."""
SUFFIXES = (".wav", ".flac", ".sph", ".ogg", ".opus", ".mp3", ".aiff", ".aif", ".au")
"""Endings by which audio files in a folder are recognised; a file that is named may end in anything."""
NOT_FOUND = f"no audio in this folder (looked for {', '.join(SUFFIXES)}). Convert others: ffmpeg -i FILE FILE.wav"
_OPEN_LENGTH = (1 << 63) - 1
"""Length that libsndfile gives a flac file whose header does not state one."""
# Silence in flac is the densest audio: a frame of 9 bytes holds a block of at most 65,535 samples.
_FLAC_FRAME_BYTES, _FLAC_BLOCK = 9, 65_535
_FEW_BYTES = 1 << 12
"""Number of bytes after the samples that may be anything, as programs and disks leave some."""
_RUN_UP = 1 << 16
"""Number of samples of mp3 that are decoded before those that are wanted, from 57 frames on; of others, at once."""


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


class Stream(NamedTuple):
    """Stream: sample rate in Hz, samples of each channel, channels, and the pieces of the file; () for all of it."""

    sample_rate: int
    num_samples: int
    channels: int
    pieces: tuple[shards.Piece, ...] = ()


_Source = sphere.SphereHeader | Sequence[Stream]


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
) -> Float32[np.ndarray, " samples"]:
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


def conversion(path: str | Path) -> str:
    """Return the command that converts an audio file of any kind to wav, under another name."""
    return f"ffmpeg -i {shlex.quote(str(path))} {shlex.quote(f'converted_{Path(path).stem}.wav')}"


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
            source = sphere.read_header(path) if beginning == sphere.MAGIC else _find(path, file)
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


def _info(path: Path, parts: Sequence[sphere.SphereHeader | Stream]) -> AudioInfo:
    """Properties of a file of these parts. Raises DataError unless all have one sample rate and number of channels."""
    first, num_samples = parts[0], 0
    for part in parts:
        if (part.sample_rate, part.channels) != (first.sample_rate, first.channels):
            raise DataError(
                f"{path}: recordings of several kinds, joined: {first.sample_rate} Hz with {first.channels} channels, "
                f"from {num_samples / first.sample_rate:.2f} s on {part.sample_rate} Hz with {part.channels}. Convert "
                f"it: {conversion(path)}",
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
            yield from _decode(path, stream, first, last - first, block)
        place += stream.num_samples


def _read(path: str | Path, source: _Source, start: int, count: int) -> Float32[np.ndarray, "samples channels"]:
    read = list(_blocks(path, source, start, count, count))
    return read[0] if len(read) == 1 else np.concatenate(read)


def _find(path: str | Path, file: BinaryIO) -> Sequence[Stream]:
    """Find the streams of an audio file that is open as `file`, at least one.

    Raises DataError for a file that is not audio or cut short, for a header that promises more than its bytes can hold,
    and for samples that it does not promise.
    """
    file.seek(0)
    beginning = file.read(12)
    file_bytes = file.seek(0, os.SEEK_END)
    declared = containers.sample_bytes(file, beginning, file_bytes)
    if declared is None:
        place = range(mpeg.after_id3(file), file_bytes)
    else:
        pieces = _pieces(path, declared)
        if not declared.is_mpeg:
            appended = _appended(path, file, range(declared.rest, file_bytes))
            return [_opened(path, (range(declared.rest),) if appended else pieces, file_bytes), *appended]
        place = range(declared.start, file_bytes if declared.promised is None else declared.start + declared.promised)
    status = os.stat(shards.file_of(path))
    return _compressed(str(path), place, status.st_size, status.st_mtime_ns)


def _appended(path: str | Path, file: BinaryIO, place: range) -> list[Stream]:
    """Return the streams of a file that was appended to another one, in a range of its bytes that the first does not
    promise.

    Raises DataError for other bytes there, unless they are few, or zeros.
    """
    file.seek(place.start)
    beginning = file.read(_FEW_BYTES)
    if beginning[:4] not in containers.MAGICS:
        if len(place) <= _FEW_BYTES or not any(beginning):
            return []
        raise DataError(
            f"{path}: {len(place):,} bytes follow the samples that its header promises: the header is wrong, or "
            f"something was appended. Copy it again, or convert it: {conversion(path)}",
            kind="more than promised",
        )
    with shards.opened(shards.open_binary(path), [place]) as window:
        declared = containers.sample_bytes(window, beginning[:12], len(place))
    if declared is None or declared.is_mpeg:
        raise _not_audio(path, f"what begins at byte {place.start:,} cannot be read")
    pieces = tuple(
        range(place.start + piece.start, place.start + piece.stop) if isinstance(piece, range) else piece
        for piece in _pieces(path, declared) or (range(declared.rest),)
    )
    rest = range(place.start + declared.rest, place.stop)
    return [_opened(path, pieces, len(place)), *_appended(path, file, rest)]


def _pieces(path: str | Path, declared: containers.SampleBytes) -> tuple[shards.Piece, ...]:
    """Pieces of a file of uncompressed samples for libsndfile: () for all, or with the size that its header lacks."""
    if declared.promised is None:
        pieces = declared.pieces()
        if pieces is None:
            raise DataError(
                f"{path}: more than 4 GiB after a header without the length. Convert it: {conversion(path)}"
            )
        return pieces
    if declared.present < declared.promised:
        promised, present = map(declared.described, (declared.promised, max(declared.present, 0)))
        raise _cut_short(path, promised, f"{present.split()[0]} are there")
    return ()


@functools.lru_cache(maxsize=4096)
def _compressed(path: str, place: range, size: int, modified_ns: int) -> Sequence[Stream]:
    """Return the streams in a range of a file's bytes, which is searched once while the file has this size and time."""
    with shards.open_binary(path) as file:
        file.seek(place.start)
        mark = file.read(4)
        if mark == b"fLaC":
            parts = containers.flac_streams(file, place.start, place.stop)
            return [_flac_stream(path, file, each, (each,) if len(parts) > 1 else ()) for each in parts]
        is_mpeg = mark[:1] == b"\xff" or path.lower().endswith(".mp3")
        try:
            links = containers.ogg_streams(file, place.start, place.stop) if mark == b"OggS" else []
            recordings = mpeg.recordings(file, place.start, place.stop) if is_mpeg else []
        except DataError as error:
            raise DataError(f"{path}: {error}. Copy it again", kind=error.kind) from error
    if recordings:
        return [_mpeg_stream(path, each) for each in recordings]
    if len(links) > 1:
        return [_opened(path, (each,), len(each)) for each in links]
    if mark[:1] == b"\xff":
        raise _not_audio(path, "no two frames of mp3 in succession")
    # By the ending .mp3 libsndfile would take anything for mp3: it gets the bytes without the name.
    return [_opened(path, (place,) if is_mpeg else (), len(place))]


def _flac_stream(path: str, file: BinaryIO, place: range, pieces: tuple[shards.Piece, ...]) -> Stream:
    """Return a stream of flac; samples are counted where its header does not say, as when it was written to a pipe."""
    file.seek(place.start)
    stream = _opened(path, pieces, len(place), block=int.from_bytes(file.read(12)[10:], "big"))
    if stream.num_samples != _OPEN_LENGTH:
        return stream
    try:
        with _decoder(path, pieces) as decoder:
            num_samples = sum(iter(lambda: len(decoder.read(_RUN_UP, dtype="float32")), 0))
    except soundfile.SoundFileError as error:
        raise _damaged(path, error) from error
    return stream._replace(num_samples=num_samples, pieces=containers.with_length(file, place, num_samples))


def _mpeg_stream(path: str, recording: mpeg.Recording) -> Stream:
    """Return the stream of a recording of mp3. Raises DataError where not all of its frames can be reached."""
    if recording.promised > recording.num_frames:
        promised = recording.promised * recording.format.frame_samples
        raise _cut_short(path, f"{promised} samples", f"{recording.num_samples} are there")
    stream = _opened(path, recording.pieces(), recording.num_samples)
    if recording.format.layer == 3:
        return stream
    if stream.num_samples < recording.num_samples:
        raise DataError(f"{path}: layer {recording.format.layer} of several bit rates. Convert it: {conversion(path)}")
    return stream._replace(num_samples=recording.num_samples)


def _opened(path: str | Path, pieces: tuple[shards.Piece, ...], num_bytes: int, block: int = _FLAC_BLOCK) -> Stream:
    """Open a stream of `num_bytes` for its properties. `block` is the largest number of samples in a frame of flac."""
    try:
        with _decoder(path, pieces) as file:
            stream = Stream(file.samplerate, file.frames, file.channels, pieces)
    except (soundfile.SoundFileError, TypeError) as error:  # TypeError: by its ending it has no header, as .raw
        raise _not_audio(path, str(getattr(error, "error_string", error)).rstrip(".")) from error
    if _OPEN_LENGTH > stream.num_samples > (largest := num_bytes * block // _FLAC_FRAME_BYTES):
        raise _cut_short(path, f"{stream.num_samples} samples", f"its bytes hold at most {largest}")
    return stream


class _Decoder(soundfile.SoundFile):
    """Decoder that reads on from one place.

    soundfile seeks after every block that it reads of a seekable file. Frames of mp3 need bytes of those before, which
    a seek loses, and flac of unknown length has no end to measure a place by.
    """

    def seekable(self) -> bool:
        return False

    def skip(self, count: int) -> None:
        """Move on to sample `count`, by decoding where a coding cannot seek or needs what went before."""
        run_up = 0
        if not super().seekable() or self.subtype.startswith("DWVW"):  # which says that it can, and fails
            run_up = count
        elif self.format == "MP3":
            run_up = min(count, _RUN_UP)
        if count > run_up:
            self.seek(count - run_up)
        while run_up > 0 and (skipped := len(self.read(min(run_up, _RUN_UP), dtype="float32"))):
            run_up -= skipped


@contextmanager
def _decoder(path: str | Path, pieces: tuple[shards.Piece, ...]) -> Iterator[_Decoder]:
    """Open a stream with libsndfile: by the file's path, or the bytes of pieces of it or of a file in a shard."""
    if not pieces and shards.member(path) is None:
        with _Decoder(str(path)) as file:
            yield file
        return
    with shards.open_binary(path) as stream, _Decoder(shards.opened(stream, pieces) if pieces else stream) as file:
        yield file


def _decode(
    path: str | Path, stream: Stream, start: int, count: int, block: int
) -> Iterator[Float32[np.ndarray, "samples channels"]]:
    """Decode `count` samples of all channels from sample `start` of a stream on, in blocks of at most `block` samples.

    Raises DataError for damage, samples that are not there, and samples that are not finite, at the block with them.
    """
    num_decoded = 0
    try:
        with _decoder(path, stream.pieces) as file:
            file.skip(start)
            while num_decoded < count:
                samples = file.read(min(block, count - num_decoded), dtype="float32", always_2d=True)
                if not len(samples):
                    found = f"{start + num_decoded} could be decoded"
                    raise _cut_short(path, f"{stream.num_samples} samples", found)
                if num_bad := int(np.count_nonzero(~np.isfinite(samples))):
                    message = f"{path}: {num_bad} samples are not finite numbers (NaN or infinite)"
                    raise DataError(message, kind="not finite")
                num_decoded += len(samples)
                yield samples
    except soundfile.SoundFileError as error:
        raise _damaged(path, error) from error


def _not_audio(path: str | Path, reason: str) -> DataError:
    message = f"{path}: not audio that las can read ({reason}). It reads {', '.join(SUFFIXES)}"
    return DataError(f"{message}; convert it: {conversion(path)}", kind="not audio")


def _cut_short(path: str | Path, promised: str, found: str) -> DataError:
    message = f"{path}: the file is cut short: its header promises {promised}, {found}. Copy it again"
    return DataError(message, kind="cut short")


def _damaged(path: str | Path, error: Exception) -> DataError:
    message = f"{path}: the file is damaged or cut short and cannot be decoded ({error}). Copy it again"
    return DataError(message, kind="damaged")
