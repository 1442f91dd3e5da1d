"""Signals that end a training early, answered between two updates.

SIGTERM and SIGUSR1 come from a cluster that wants its machine back: the run saves and exits with code 75, and a SLURM
job is queued again. SIGINT is a person's Ctrl-C: the run saves and exits with code 130. A second Ctrl-C stops at once;
checkpoints appear whole or not at all, so nothing is lost but the updates since the last one.
"""

import os
import signal
import subprocess
from types import FrameType, TracebackType

from las.errors import LasError

REQUEUE, BY_HAND = 75, 130
"""Exit codes: sysexits' EX_TEMPFAIL, and the shell's for SIGINT."""

WATCHED = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


class Interrupted(LasError):
    """A training that saved its state and stopped because a signal asked for it."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Signals:
    """Within it signals are noted and nothing else. Use it as a context manager in the main thread."""

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
