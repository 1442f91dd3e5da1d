"""Process that reads audio for `las.data.audio.worker_pool`, and the levels that it measures.

It answers requests until the connection closes, and imports no torch, so that it starts in a quarter of a second.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterable
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32

from las.data.audio import files, shards

FULL_SCALE = 0.98
"""Amplitude from which a sample counts as clipped: mu-law ends at 0.980, A-law at 0.984, 16 bits at 1."""

BEAT_S = 0.5
"""Seconds between two heartbeats during a request: a stopped process sends none, a slow one does."""
SIGN = "alive"


class Array(NamedTuple):
    """Header that precedes the bytes of an array; pickling them would take as long as reading a short file."""

    shape: tuple[int, ...]
    dtype: str


class Answers:
    """Sender of results and heartbeats."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._lock, self.working = connection, threading.Lock(), False
        connection.send(SIGN)
        threading.Thread(target=self._beat, daemon=True).start()

    def send(self, result: Any, raised: Exception | None) -> None:
        """Send the result of a request, or the exception it raised."""
        with self._lock:
            self.working = False
            if isinstance(result, np.ndarray) and result.size:
                self._connection.send((Array(result.shape, result.dtype.str), None))
                self._connection.send_bytes(np.ascontiguousarray(result).data)
            else:
                self._connection.send((result, raised))

    def _beat(self) -> None:
        while True:
            time.sleep(BEAT_S)
            with self._lock, contextlib.suppress(OSError):  # a closed connection ends `serve`
                if self.working:
                    self._connection.send(SIGN)


def serve(descriptor: int) -> None:
    """Answer requests (function, arguments) with (result, None) or (None, exception) over a connection."""
    # The parent decides when this process ends: a signal to the whole group must not look like a crash here.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    connection = Connection(descriptor)
    with contextlib.suppress(EOFError, ConnectionError):
        answers = Answers(connection)
        while True:
            function, arguments = connection.recv()
            answers.working = True
            result, raised = None, None
            try:
                result = function(*arguments)
            except Exception as error:
                raised = error
            answers.send(result, raised)


class AudioLevels(NamedTuple):
    """Levels of a stretch of audio: largest amplitude, and share of samples at full scale."""

    peak: float
    clipped: float


class AudioScan(NamedTuple):
    """Result of reading an audio file: its header, and levels by stretch: `channel start duration` in seconds."""

    info: files.AudioInfo
    sounds: dict[str, AudioLevels]


def measure(name: str, stretches: Iterable[str]) -> tuple[AudioScan, list[int]]:
    """Read a file completely. Returns the scan and the file's `state` before it. Raises DataError as `files.read`."""
    state_before = state(name)
    info, samples = files.read(name)
    return AudioScan(info, {stretch: _levels(stretch, info, samples) for stretch in stretches}), state_before


def _levels(stretch: str, info: files.AudioInfo, samples: Float32[np.ndarray, "samples channels"]) -> AudioLevels:
    """Levels of a stretch; peak 0 if it lies outside the file, which `AudioInfo.require` reports."""
    channel, start_s, duration_s = stretch.split()
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
