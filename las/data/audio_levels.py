"""What an audio file holds, read to its end: what its header says, and how loud its utterances are."""

import os
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32

from las.data.audio import files
from las.data.manifest import Utterance

FULL_SCALE = 0.98
"""Amplitude from which a sample counts as clipped: mu-law ends at 0.980, A-law at 0.984, 16 bits at 1."""


class Sound(NamedTuple):
    """One utterance's samples: the largest amplitude, and the share of samples at full scale."""

    peak: float
    clipped: float


class Reading(NamedTuple):
    """What was found in a sound file: what its header says, and its utterances' sounds by `stretch`."""

    info: files.AudioInfo
    sounds: dict[str, Sound]


def stretch(utterance: Utterance) -> str:
    """Which part of its file an utterance is."""
    return f"{utterance.channel} {utterance.start_s:.6f} {utterance.duration_s:.6f}"


def measure(name: str, stretches: Iterable[str]) -> tuple[Reading, list[int]]:
    """A file read completely, and its size and time of change before that. Raises DataError as `audio.read` does."""
    before = state(name)
    info, samples = files.read(name)
    return Reading(info, {key: _sound(key, info, samples) for key in stretches}), before


def _sound(key: str, info: files.AudioInfo, samples: Float32[np.ndarray, "samples channels"]) -> Sound:
    """Peak 0 also for a stretch that is not in the file: that the file ends too early is said elsewhere."""
    channel, start_s, duration_s = key.split()
    start = round(float(start_s) * info.sample_rate)
    end = start + round(float(duration_s) * info.sample_rate)
    heard = np.abs(samples[start:end, int(channel) : int(channel) + 1])
    if heard.size == 0:
        return Sound(0.0, 0.0)
    return Sound(float(heard.max()), float(np.mean(heard >= FULL_SCALE)))


def state(name: str) -> list[int]:
    """Size and time of change; none of both for what is not there."""
    try:
        status = os.stat(name)
    except OSError:
        return [0, 0]
    return [status.st_size, status.st_mtime_ns]
