"""Resampled copies of audio files, so that a corpus of mixed rates is read at one."""

import hashlib
import os
from pathlib import Path

import numpy as np
import soundfile

from las.data.audio import files, shards
from las.storage import atomic


def copy(path: Path, sample_rate: int, folder: Path) -> Path:
    """Write an audio file at another sample rate (Hz) into `folder`, as flac with 16 bits; returns the copy.

    An existing copy of the same file, by its path, size and time, is left as it is. Raises DataError as `files.info`
    and `files.blocks` do.
    """
    from las.data.audio import streaming  # imports torch

    status = os.stat(shards.file_of(path))
    key = hashlib.sha256(f"{path.absolute()} {status.st_size} {status.st_mtime_ns}".encode()).hexdigest()[:12]
    resampled = folder / str(sample_rate) / key / f"{path.stem}.flac"
    if resampled.exists():
        return resampled
    channels = range(files.info(path).channels)
    streams = [streaming.open_blocks(path, sample_rate, channel)[1] for channel in channels]
    with (
        atomic.opened(resampled) as file,
        soundfile.SoundFile(file, "w", sample_rate, len(channels), subtype="PCM_16", format="FLAC") as output,
    ):
        for blocks in zip(*streams, strict=True):
            output.write(np.stack([block.numpy() for block in blocks], axis=1))
    return resampled
