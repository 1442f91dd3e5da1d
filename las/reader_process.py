"""The process that reads audio for `las.reader`: answers requests until its other end closes.

It imports no torch, so that it starts in a quarter of a second.
"""

import signal
import threading
from multiprocessing.connection import Connection

BEAT_S = 0.5
"""Between two signs of life while a request is worked on: a process that was stopped gives none, a slow one does."""
SIGN = "alive"


def serve(descriptor: int) -> None:
    """Each request is (function, arguments); each answer is (result, None) or (None, what was raised)."""
    # Its parent decides when it ends: what asks the parent to stop must not look like a crash here.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    connection = Connection(descriptor)
    connection.send(SIGN)
    while True:
        try:
            function, arguments = connection.recv()
        except EOFError:
            return
        done = threading.Event()
        beats = threading.Thread(target=_beat, args=(connection, done))
        beats.start()
        result, raised = None, None
        try:
            result = function(*arguments)
        except Exception as error:
            raised = error
        done.set()
        beats.join()
        connection.send((result, raised))


def _beat(connection: Connection, done: threading.Event) -> None:
    while not done.wait(BEAT_S):
        connection.send(SIGN)
