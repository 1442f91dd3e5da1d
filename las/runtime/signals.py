"""Signals that end a command early: handled between two updates of a training, at once anywhere else.

SIGTERM and SIGUSR1 come from a cluster that wants its machine back: the run saves and exits with code 75, and a SLURM
job is queued again. SIGINT is a person's Ctrl-C: the run saves and exits with code 130. A second Ctrl-C stops at once;
checkpoints appear whole or not at all, so nothing is lost but the updates since the last one.
"""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import TypeVar

from las.runtime.errors import LasError

REQUEUE, INTERRUPT, UNREAD = 75, 130, 141
"""Exit codes: sysexits' EX_TEMPFAIL, and the shell's for SIGINT and SIGPIPE."""

CLUSTER_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
HANDLED_SIGNALS = (*CLUSTER_SIGNALS, signal.SIGINT)
T = TypeVar("T")


class Stopped(KeyboardInterrupt):
    """SIGTERM or SIGUSR1 where nothing is to be saved; propagates like KeyboardInterrupt."""

    exit_code = REQUEUE


class Interrupted(LasError):
    """End of a training that a signal stopped after it saved its state."""


@contextmanager
def at_once() -> Iterator[None]:
    """Raise Stopped in the body at the first SIGTERM or SIGUSR1; later ones are ignored while the body cleans up.

    For the main thread. Handlers of a `Signals` inside the body take precedence.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        for each in CLUSTER_SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        raise Stopped(f"stopped by {signal.Signals(number).name}")

    before = {number: signal.signal(number, stop) for number in CLUSTER_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def queued_again() -> Iterator[None]:
    """Requeue the SLURM job when the body raises Stopped, and say so in the error."""
    try:
        yield
    except Stopped as error:
        message = requeue()
        raise Stopped(f"{error}. {message}" if message else str(error)) from error


class Signals:
    """Context manager that records signals instead of acting on them, for the main thread.

    A signal that was not handled by the end of the body is raised again there.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._breaks_off = False

    def __enter__(self) -> "Signals":
        self._before = {number: signal.signal(number, self._record) for number in HANDLED_SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if kind is None and self.received is not None:
            signal.raise_signal(self.received)

    def _record(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.received == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = signal.Signals(number)
        if self._breaks_off:
            raise Stopped(f"stopped by {self.received.name}")

    def unless_received(self, compute: Callable[[], T]) -> T | None:
        """Return what a function computes; None where a signal came before or broke it off, which stays recorded."""
        try:
            self._breaks_off = True
            try:
                return None if self.received else compute()
            finally:
                self._breaks_off = False
        except Stopped:
            return None

    @property
    def exit_code(self) -> int:
        """Exit code for the received signal: 130 for SIGINT, else 75."""
        return INTERRUPT if self.received == signal.SIGINT else REQUEUE


def requeue() -> str:
    """Requeue this SLURM job. Returns a sentence about it, empty outside SLURM."""
    job = os.environ.get("SLURM_JOB_ID")
    if job is None:
        return ""
    try:
        subprocess.run(["scontrol", "requeue", job], check=True, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.SubprocessError) as error:
        reason = (getattr(error, "stderr", None) or str(error)).strip()
        return f"SLURM did not queue job {job} again ({reason}): start it with the same command"
    return f"SLURM queued job {job} again"
