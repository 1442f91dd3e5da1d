"""Levels of audio files read to their end: header, and peak and clipping of each utterance."""

import os
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32

from las.data.audio import files, shards
from las.data.manifest import Utterance

FULL_SCALE = 0.98
"""Amplitude from which a sample counts as clipped: mu-law ends at 0.980, A-law at 0.984, 16 bits at 1."""


class AudioLevels(NamedTuple):
    """Levels of an utterance: largest amplitude, and share of samples at full scale."""

    peak: float
    clipped: float


class AudioScan(NamedTuple):
    """Result of reading an audio file: its header, and the levels of its utterances by `segment_key`."""

    info: files.AudioInfo
    sounds: dict[str, AudioLevels]


def segment_key(utterance: Utterance) -> str:
    """Key of an utterance within its file: channel, start and duration in seconds."""
    return f"{utterance.channel} {utterance.start_s:.6f} {utterance.duration_s:.6f}"


def measure(name: str, stretches: Iterable[str]) -> tuple[AudioScan, list[int]]:
    """Read a file completely. Returns the scan and the file's `state` before it. Raises DataError as `files.read`."""
    state_before = state(name)
    info, samples = files.read(name)
    return AudioScan(info, {key: _sound(key, info, samples) for key in stretches}), state_before


def _sound(key: str, info: files.AudioInfo, samples: Float32[np.ndarray, "samples channels"]) -> AudioLevels:
    """Levels of a stretch; peak 0 if it lies outside the file, which `AudioInfo.require` reports."""
    channel, start_s, duration_s = key.split()
    start = round(float(start_s) * info.sample_rate)
    end = start + round(float(duration_s) * info.sample_rate)
    amplitudes = np.abs(samples[start:end, int(channel) : int(channel) + 1])
    if amplitudes.size == 0:
        return AudioLevels(0.0, 0.0)
    return AudioLevels(float(amplitudes.max()), float(np.mean(amplitudes >= FULL_SCALE)))


def state(name: str) -> list[int]:
    """Size in bytes and modification time in ns of a file (of its shard, if it is in one); zeros for a missing one."""
    try:
        status = os.stat(shards.file_of(name))
    except OSError:
        return [0, 0]
    return [status.st_size, status.st_mtime_ns]
