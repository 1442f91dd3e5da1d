"""Streams of samples in a file, as libsndfile decodes them, with the number of samples that is there.

A file is one stream, or several one after the other: joined mp3 and flac, chained Ogg. What a header promises is
compared with the bytes of the file, and where it leaves the length open, samples are counted.
"""

import functools
import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import soundfile
from jaxtyping import Float32

from las.data.audio import chained, containers, mpeg, shards
from las.data.audio.byte_ranges import Piece
from las.runtime.errors import DataError

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


class Stream(NamedTuple):
    """Stream: sample rate in Hz, samples of each channel, channels, and the pieces of the file; () for all of it."""

    sample_rate: int
    num_samples: int
    channels: int
    pieces: tuple[Piece, ...] = ()


def conversion(path: str | Path) -> str:
    """The command that converts an audio file of any kind to wav."""
    return f"ffmpeg -i {shlex.quote(str(path))} {shlex.quote(str(Path(path).with_suffix('.wav').name))}"


def find(path: str | Path, file: BinaryIO) -> Sequence[Stream]:
    """Find the streams of an audio file that is open as `file`, at least one.

    Raises DataError for a file that is not audio or cut short, for a header that promises more than its bytes can hold,
    and for samples that it does not promise.
    """
    file.seek(0)
    beginning = file.read(12)
    file_bytes = file.seek(0, os.SEEK_END)
    declared = containers.sample_bytes(file, beginning, file_bytes)
    if declared is None:
        place = range(_after_id3(file), file_bytes)
    else:
        pieces = _pieces(path, declared)
        if not declared.is_mpeg:
            appended = _appended(path, file, range(declared.rest, file_bytes))
            return [_opened(path, (range(declared.rest),) if appended else pieces, file_bytes), *appended]
        place = range(declared.start, file_bytes if declared.promised is None else declared.start + declared.promised)
    status = os.stat(shards.file_of(path))
    return _compressed(str(path), place, status.st_size, status.st_mtime_ns)


def _appended(path: str | Path, file: BinaryIO, place: range) -> list[Stream]:
    """The streams of a file that was appended to another one, in a range of its bytes that the first does not promise.

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
    pieces = tuple(_moved(piece, place.start) for piece in _pieces(path, declared) or (range(declared.rest),))
    rest = range(place.start + declared.rest, place.stop)
    return [_opened(path, pieces, len(place)), *_appended(path, file, rest)]


def _moved(piece: Piece, offset: int) -> Piece:
    return range(piece.start + offset, piece.stop + offset) if isinstance(piece, range) else piece


def _pieces(path: str | Path, declared: containers.SampleBytes) -> tuple[Piece, ...]:
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
    """The streams in a range of a file's bytes, which is searched once while the file has this size and time."""
    with shards.open_binary(path) as file:
        file.seek(place.start)
        mark = file.read(4)
        if mark == b"fLaC":
            parts = chained.flac_streams(file, place.start, place.stop)
            return [_flac_stream(path, file, each, (each,) if len(parts) > 1 else ()) for each in parts]
        is_mpeg = mark[:1] == b"\xff" or path.lower().endswith(".mp3")
        try:
            links = chained.ogg_streams(file, place.start, place.stop) if mark == b"OggS" else []
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


def _after_id3(file: BinaryIO) -> int:
    place = file.seek(0)
    while skipped := mpeg.id3_bytes(file.read(10)):
        place = file.seek(place + skipped)
    return place


def _flac_stream(path: str, file: BinaryIO, place: range, pieces: tuple[Piece, ...]) -> Stream:
    """A stream of flac; its samples are counted where its header does not say, as when it was written to a pipe."""
    file.seek(place.start)
    stream = _opened(path, pieces, len(place), block=int.from_bytes(file.read(12)[10:], "big"))
    if stream.num_samples != _OPEN_LENGTH:
        return stream
    try:
        with _decoder(path, pieces) as decoder:
            num_samples = sum(iter(lambda: len(decoder.read(_RUN_UP, dtype="float32")), 0))
    except soundfile.SoundFileError as error:
        raise _damaged(path, error) from error
    return stream._replace(num_samples=num_samples, pieces=chained.with_length(file, place, num_samples))


def _mpeg_stream(path: str, recording: mpeg.Recording) -> Stream:
    """The stream of a recording of mp3. Raises DataError where not all of its frames can be reached."""
    if recording.promised > recording.num_frames:
        promised = recording.promised * recording.format.frame_samples
        raise _cut_short(path, f"{promised} samples", f"{recording.num_samples} are there")
    stream = _opened(path, recording.pieces(), recording.num_samples)
    if recording.format.layer == 3:
        return stream
    if stream.num_samples < recording.num_samples:
        raise DataError(f"{path}: layer {recording.format.layer} of several bit rates. Convert it: {conversion(path)}")
    return stream._replace(num_samples=recording.num_samples)


def _opened(path: str | Path, pieces: tuple[Piece, ...], num_bytes: int, block: int = _FLAC_BLOCK) -> Stream:
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
def _decoder(path: str | Path, pieces: tuple[Piece, ...]) -> Iterator[_Decoder]:
    """Open a stream with libsndfile: by the file's path, or the bytes of pieces of it or of a file in a shard."""
    if not pieces and shards.member(path) is None:
        with _Decoder(str(path)) as file:
            yield file
        return
    with shards.open_binary(path) as stream:
        source = shards.opened(stream, pieces) if pieces else stream
        with _Decoder(source) as file:
            yield file


def decode(
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
