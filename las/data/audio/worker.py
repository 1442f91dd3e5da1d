"""Process that reads audio for `las.data.audio.worker_pool`: it answers requests until the connection closes.

It imports no torch, so that it starts in a quarter of a second.
"""

import contextlib
import signal
import threading
import time
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

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
