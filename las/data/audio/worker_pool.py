"""Audio read in processes of their own: a file that kills or holds its reader does neither to a training.

A process that ends, or gives no sign of life, is replaced, and the new one is asked again.
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
"""So often one request may cost a process before its file is at fault."""
SILENT_BEATS = 6
"""A working process that misses so many signs of life in a row is replaced."""
START_S = 60.0
"""A process may take so long to start on a machine that does much else."""
SLOW_S = 60.0
"""After each such time a file that is still being read is named."""


class ReaderLost(Exception):
    """A process that reads has ended or stands still; says which."""


class Reader:
    """One process. Raises LasError if it cannot be started."""

    def __init__(self) -> None:
        self._connection, theirs = multiprocessing.Pipe()
        descriptor = theirs.fileno()
        code = f"import sys; sys.path[:] = {sys.path!r}; from las import reader_process as r; r.serve({descriptor})"
        command = [sys.executable, "-c", code]
        try:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, pass_fds=[descriptor], start_new_session=True
            )
            theirs.close()
            self._wait(START_S)
        except (OSError, ReaderLost) as error:
            says = f"the process that reads audio does not start: {error}"
            raise LasError(f"{says}. What it printed is above; las doctor looks at this machine") from error

    def ask(self, what: str, function: Callable[..., R], *arguments: object) -> R:
        """What a function of this package returns or raises there; `what` is being read is said when it takes long.

        Raises ReaderLost.
        """
        began = said = time.monotonic()
        try:
            self._connection.send((function, arguments))
        except OSError as error:
            raise ReaderLost(self._end()) from error
        while (answer := self._wait(SILENT_BEATS * BEAT_S)) == SIGN:
            if (now := time.monotonic()) - said > SLOW_S:
                said = now
                progress.say(f"{what}: still being read after {progress.duration(now - began)}")
        result: R
        result, raised = answer
        if raised is not None:
            raise raised
        return result

    def close(self) -> None:
        """The process ends by itself when nothing can ask it any more."""
        self._connection.close()
        self.process.wait()

    def _wait(self, seconds: float) -> Any:
        """The next message. A frozen machine freezes the process as well: only time that this one lives counts."""
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
        """Be rid of the process; how it ended."""
        self._connection.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(BEAT_S)
        if self.process.returncode is None:
            self.process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # the kernel may hold it: then it is left to it
                self.process.wait(BEAT_S)
        code = self.process.returncode
        if code is None or code >= 0:
            return f"ended with {code}"
        known = -code in set(signal.Signals)  # signals of real time have no names
        return f"was killed by {signal.Signals(-code).name if known else f'signal {-code}'}"


_idle: list[Reader] = []
"""Those that wait for the next request, from whichever thread."""
_lock = threading.Lock()


def elsewhere(what: str, function: Callable[..., R], *arguments: object) -> R:
    """What a function of this package returns or raises in a process of its own, as often as that takes.

    Threads that ask at the same time have a process each. `what` names the file in what is printed.
    Raises DataError when the same request has ended three processes.
    """
    ends: list[str] = []
    while len(ends) < TRIES:
        reader = _waiting() or Reader()
        try:
            answer = reader.ask(what, function, *arguments)
        except ReaderLost as lost:
            ends.append(str(lost))
            progress.say(f"{what}: the process that read it {lost}")
            continue
        except Exception:
            _rest(reader)
            raise
        _rest(reader)
        return answer
    says = f"{what}: reading it failed {TRIES} times: the process that read it {ends[-1]}"
    raise DataError(f"{says}. Copy the file again, or leave it out", kind="kills its reader")


def here(_: str, function: Callable[..., R], *arguments: object) -> R:
    """The same in this process."""
    return function(*arguments)


def _waiting() -> Reader | None:
    """One that waits. That others ended while they waited is no file's fault: a machine short of memory kills any."""
    with _lock:
        while _idle:
            if (reader := _idle.pop()).process.poll() is None:
                return reader
    return None


def _rest(reader: Reader) -> None:
    with _lock:
        _idle.append(reader)


@atexit.register
def _close() -> None:
    for reader in _idle:
        reader.close()


os.register_at_fork(after_in_child=_idle.clear)  # a fork has no right to its parent's processes
