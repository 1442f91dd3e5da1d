"""The process that reads audio for `las.data.audio.worker_pool`: answers requests until its other end closes.

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
"""Between two signs of life while a request is worked on: a process that was stopped gives none, a slow one does."""
SIGN = "alive"


class Array(NamedTuple):
    """What comes before the bytes of an array, which are not pickled: that takes as long as reading a short file."""

    shape: tuple[int, ...]
    dtype: str


class Answers:
    """Where results and signs of life are sent."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._lock, self.working = connection, threading.Lock(), False
        connection.send(SIGN)
        threading.Thread(target=self._beat, daemon=True).start()

    def send(self, result: Any, raised: Exception | None) -> None:
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
            with self._lock, contextlib.suppress(OSError):  # that nobody hears any more ends `serve`
                if self.working:
                    self._connection.send(SIGN)


def serve(descriptor: int) -> None:
    """Each request is (function, arguments); each answer is (result, None) or (None, what was raised)."""
    # Its parent decides when it ends: what asks the parent to stop must not look like a crash here.
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
