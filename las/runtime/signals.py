"""Signals that end a command early: answered between two updates of a training, and at once anywhere else.

SIGTERM and SIGUSR1 come from a cluster that wants its machine back: the run saves and exits with code 75, and a SLURM
job is queued again. SIGINT is a person's Ctrl-C: the run saves and exits with code 130. A second Ctrl-C stops at once;
checkpoints appear whole or not at all, so nothing is lost but the updates since the last one.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType

from las.runtime.errors import LasError

REQUEUE, BY_HAND = 75, 130
"""Exit codes: sysexits' EX_TEMPFAIL, and the shell's for SIGINT."""

OF_CLUSTERS = (signal.SIGTERM, signal.SIGUSR1)
WATCHED = (*OF_CLUSTERS, signal.SIGINT)


class Stopped(KeyboardInterrupt):
    """SIGTERM or SIGUSR1 where nothing is to be saved: it goes through everything, as a Ctrl-C does."""

    exit_code = REQUEUE


class Interrupted(LasError):
    """A training that saved its state and stopped because a signal asked for it."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@contextmanager
def at_once() -> Iterator[None]:
    """Within it, the first SIGTERM or SIGUSR1 raises Stopped in the main thread, and later ones disturb no cleaning up.

    Use it in the main thread. `Signals`, inside it, answers in its place.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        for each in OF_CLUSTERS:
            signal.signal(each, signal.SIG_IGN)
        raise Stopped(f"stopped by {signal.Signals(number).name}")

    before = {number: signal.signal(number, stop) for number in OF_CLUSTERS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def queued_again() -> Iterator[None]:
    """SLURM queues the job again when a signal stops the body where nothing is to be saved."""
    try:
        yield
    except Stopped as error:
        again = requeue()
        raise Stopped(f"{error}. {again}" if again else str(error)) from error


class Signals:
    """Within it signals are noted and nothing else. Use it as a context manager in the main thread.

    One that nobody answered until its end is sent again, to be answered as outside.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None

    def __enter__(self) -> "Signals":
        self._before = {number: signal.signal(number, self._note) for number in WATCHED}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if kind is None and self.received is not None:
            signal.raise_signal(self.received)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.received == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = signal.Signals(number)

    @property
    def exit_code(self) -> int:
        """What the process ends with, given what was received."""
        return BY_HAND if self.received == signal.SIGINT else REQUEUE


def requeue() -> str:
    """Queue this SLURM job again, and say so; outside SLURM, say nothing."""
    job = os.environ.get("SLURM_JOB_ID")
    if job is None:
        return ""
    try:
        subprocess.run(["scontrol", "requeue", job], check=True, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip()
        return f"SLURM did not queue job {job} again ({said}): start it with the same command"
    return f"SLURM queued job {job} again"
