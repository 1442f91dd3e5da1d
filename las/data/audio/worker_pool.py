"""Reading of audio in worker processes: a file that crashes or blocks its reader does not end a training.

A process that ends, or sends no heartbeat, is replaced, and the new one gets the same request.
"""

import atexit
import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from las.data.audio.worker import BEAT_S, SIGN, Array
from las.runtime import progress
from las.runtime.errors import DataError, LasError

R = TypeVar("R")

TRIES = 3
"""Number of processes that one request may end before its file is reported as the cause."""
SILENT_BEATS = 6
"""Number of successive heartbeats that a working process may miss before it is replaced."""
START_S = 60.0
"""Maximum time for the start of a process, in seconds, generous for busy machines."""
SLOW_S = 60.0
"""Seconds between two messages about a file that is still being read."""


class ReaderLost(Exception):
    """End or standstill of a worker process, with a description."""


class AudioWorker:
    """Worker process. Raises LasError if it cannot be started."""

    def __init__(self) -> None:
        self._connection, other_end = multiprocessing.Pipe()
        descriptor = other_end.fileno()
        code = f"import sys; sys.path[:] = {sys.path!r}; from las.data.audio import worker as w; w.serve({descriptor})"
        command = [sys.executable, "-c", code]
        try:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, pass_fds=[descriptor], start_new_session=True
            )
            other_end.close()
            self._wait(START_S)
        except (OSError, ReaderLost) as error:
            message = f"the process that reads audio does not start: {error}"
            raise LasError(f"{message}. What it printed is above; las doctor looks at this machine") from error

    def ask(self, name: str, function: Callable[..., R], *arguments: object) -> R:
        """Call a function of this package in the process and return its result, or raise its exception.

        `name` is the file in messages about slow reading. Raises ReaderLost.
        """
        began = last_report = time.monotonic()
        try:
            self._connection.send((function, arguments))
        except OSError as error:
            raise ReaderLost(self._end()) from error
        while (answer := self._wait(SILENT_BEATS * BEAT_S)) == SIGN:
            if (now := time.monotonic()) - last_report > SLOW_S:
                last_report = now
                progress.say(f"{name}: still being read after {progress.duration(now - began)}")
        result: R
        result, raised = answer
        if raised is not None:
            raise raised
        return result

    def close(self) -> None:
        """Close the connection, which ends the process, and wait for its end."""
        self._connection.close()
        self.process.wait()

    def _wait(self, seconds: float) -> Any:
        """Receive the next message. Counts polls, not clock time: while a machine sleeps, nobody sends heartbeats."""
        try:
            for _ in range(round(seconds / BEAT_S)):
                if self._connection.poll(BEAT_S):
                    return self._receive()
        except (EOFError, OSError) as error:
            raise ReaderLost(self._end()) from error
        self._end()
        raise ReaderLost(f"gave no sign of life for {seconds:g} s")

    def _receive(self) -> Any:
        message = self._connection.recv()
        if isinstance(message, tuple) and isinstance(message[0], Array):
            array = np.empty(*message[0])
            self._connection.recv_bytes_into(array.reshape(-1).view(np.uint8))
            return array, None
        return message

    def _end(self) -> str:
        """End the process. Returns a description of its end."""
        self._connection.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(BEAT_S)
        if self.process.returncode is None:
            self.process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # the kernel may not let go of it yet
                self.process.wait(BEAT_S)
        code = self.process.returncode
        if code is None or code >= 0:
            return f"ended with {code}"
        known = -code in set(signal.Signals)  # real-time signals have no names
        return f"was killed by {signal.Signals(-code).name if known else f'signal {-code}'}"


_idle: list[AudioWorker] = []
"""Processes without a request, for all threads."""
_lock = threading.Lock()


def run_in_worker(name: str, function: Callable[..., R], *arguments: object) -> R:
    """Call a function of this package in a worker process, and in another one if that process is lost.

    Concurrent threads have a process each. `name` is the file in messages.
    Raises DataError when the same request has ended three processes.
    """
    ends: list[str] = []
    while len(ends) < TRIES:
        reader = _idle_worker() or AudioWorker()
        try:
            answer = reader.ask(name, function, *arguments)
        except ReaderLost as lost:
            ends.append(str(lost))
            progress.say(f"{name}: the process that read it {lost}")
            continue
        except Exception:
            _put_back(reader)
            raise
        _put_back(reader)
        return answer
    message = f"{name}: reading it failed {TRIES} times: the process that read it {ends[-1]}"
    raise DataError(f"{message}. Copy the file again, or leave it out", kind="kills its reader")


def run_here(_: str, function: Callable[..., R], *arguments: object) -> R:
    """Call a function in this process, with the signature of `run_in_worker`."""
    return function(*arguments)


def _idle_worker() -> AudioWorker | None:
    """Idle process; None without one. Those that ended while idle are dropped: the system may kill any of them."""
    with _lock:
        while _idle:
            if (reader := _idle.pop()).process.poll() is None:
                return reader
    return None


def _put_back(reader: AudioWorker) -> None:
    with _lock:
        _idle.append(reader)


@atexit.register
def _close() -> None:
    for reader in _idle:
        reader.close()


os.register_at_fork(after_in_child=_idle.clear)  # a forked child must not use its parent's processes
