"""Console output: progress lines on a terminal of any encoding, plain lines elsewhere, and log files."""

import codecs
import json
import os
import select
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

T = TypeVar("T")
ESCAPED = "las.escaped"
"""Name of the error handler of codecs that writes `\\u4f60` for a character that an encoding lacks, as JSON does."""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave BrokenPipeError to `las.cli.main`, where Rich's own console exits with code 1."""
        raise


console = _Console(highlight=False, soft_wrap=True)


def write_any_character() -> None:
    """Let standard output and error write every text: with escapes where a terminal's encoding lacks a character.

    Names of files that are no text in the terminal's encoding are such characters, too.
    """
    codecs.register_error(ESCAPED, _escaped)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a notebook's own streams take every character
            stream.reconfigure(errors=ESCAPED)


def is_unread() -> bool:
    """Whether the program that reads standard output or error has ended (`las runs | head`).

    What is left to be written there is dropped then: Python would try to write it where it exits.
    """
    poller = select.poll()
    for stream in (sys.stdout, sys.stderr):
        poller.register(stream.fileno(), 0)
    unread = [number for number, _ in poller.poll(0)]
    for number in unread:
        os.dup2(os.open(os.devnull, os.O_WRONLY), number)
    return bool(unread)


def _escaped(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


def duration(seconds: float) -> str:
    """Format seconds as `3:07` or `1:02:45`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def table(first: str, *numbers: str, title: str | None = None) -> Table:
    """Return a table with a column of words, folded where they are long, and columns of numbers."""
    made = Table(title=title)
    made.add_column(first, overflow="fold")  # an ellipsis would hide the end of a path
    for heading in numbers:
        made.add_column(heading, justify="right")
    return made


Line = TypeVar("Line", bound="ProgressLine")


class ProgressLine:
    """A line of text and a bar on a terminal while the body of the context manager runs; nothing elsewhere."""

    def __init__(self, total: float, *columns: ProgressColumn) -> None:
        self.is_live = console.is_terminal
        self.live = Progress(TextColumn("{task.description}"), BarColumn(20), *columns, console=console, transient=True)
        self.task = self.live.add_task("", total=total, visible=self.is_live)

    def __enter__(self: Line) -> Line:
        if self.is_live:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_live:  # else it would print an empty line
            self.live.stop()


class TrainingProgress(ProgressLine):
    """The progress line of a training: epoch, step, loss, dev error, utterances per second, time left at most.

    Away from a terminal it prints only the lines given to `say`, so that a log holds no control characters.
    """

    def __init__(self, max_steps: int, log: Path) -> None:
        super().__init__(float(max_steps), TaskProgressColumn())
        self.max_steps = max_steps
        self.log = log
        self.first_step = 0
        """The step at which this process began."""
        self.dev = "dev -"
        self.started = time.monotonic()
        self.utterances = 0

    def __enter__(self) -> "TrainingProgress":
        self.started = time.monotonic()
        super().__enter__()
        return self

    def expect(self, max_steps: int) -> None:
        """Set the step that training ends at, at the latest."""
        self.max_steps = max_steps
        self.live.update(self.task, total=max_steps)

    def update(self, epoch: int, step: int, loss: float, num_utterances: int) -> None:
        """Advance the line after an update of the model."""
        self.utterances += num_utterances
        if self.is_live:
            self.live.update(self.task, completed=step, description=self.line(epoch, step, loss))

    def line(self, epoch: int, step: int, loss: float) -> str:
        """Format the line: `epoch 3 | step 150 | loss 1.234 | dev PER 23.1 % | 45 utt/s | at most 2:10 left`"""
        elapsed = max(time.monotonic() - self.started, 1e-9)
        left = elapsed / max(step - self.first_step, 1) * (self.max_steps - step)
        return (
            f"epoch {epoch} | step {step} | loss {loss:.3f} | {self.dev} | "
            f"{self.utterances / elapsed:.0f} utt/s | at most {duration(left)} left"
        )

    def say(self, text: str) -> None:
        """Print a line above the progress line, and write it to the log file."""
        say(text, self.log)


def say(text: str, log: Path | None = None) -> None:
    """Print a line and, where a log file is given, append it there."""
    if console.quiet:
        return
    console.print(text, markup=False)
    if log is not None:
        with log.open("a", encoding="utf-8") as file:
            file.write(text + "\n")


@contextmanager
def silent() -> Iterator[None]:
    """Suppress all printing and logging in the body: of many processes that do the same, only one prints."""
    before, console.quiet = console.quiet, True
    try:
        yield
    finally:
        console.quiet = before


def counted(items: Iterable[T], total: int, title: str, every_s: float = 30.0) -> Iterator[T]:
    """Iterate over items with a progress bar on a terminal, elsewhere with a line every `every_s` seconds.

    `total` is the number of items, `what` their description in the output: `train: audio files read`.
    """
    if console.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(20), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, transient=True) as live:
            yield from live.track(items, total, description=title)
        return
    started = last_line = time.monotonic()
    for count, item in enumerate(items, start=1):
        yield item
        now = time.monotonic()
        if now - last_line >= every_s:
            last_line = now
            remaining_s = (now - started) / count * (total - count)
            say(f"{title}: {count:,} of {total:,}, about {duration(remaining_s)} left")
