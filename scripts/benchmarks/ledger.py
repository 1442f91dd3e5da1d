"""Rows of measurements on a GPU, written as they come within a number of seconds."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path

import torch

from benchmarks import records
from benchmarks.records import Row
from benchmarks.settings import Settings
from las.runtime import progress

KEY = ("suite", "implementation", "cell", "shape", "work", "dtype", "machine")
"""Columns of a measurement: its new rows take the place of the older ones."""


class Ledger:
    """A file of rows to which measurements add theirs, one after the other, until the time is used up.

    Args:
        path: the file. Its rows stay until they are measured anew; `before` is where they lie if it does not exist.
        budget_s: seconds in which measurements may begin.
    """

    def __init__(self, path: Path, before: Path, settings: Settings, budget_s: float) -> None:
        self.path, self.settings = path, settings
        existing = path if path.exists() else before
        self.older = records.read(existing) if existing.exists() else []
        self.rows: list[Row] = []
        self.began, self.budget_s, self.longest_s = time.monotonic(), budget_s, 0.0
        self.not_run: list[str] = []
        self.failed: list[str] = []

    @property
    def elapsed_s(self) -> float:
        """Seconds since the first measurement."""
        return time.monotonic() - self.began

    def measure(self, name: str, rows: Callable[[], Iterable[Row]]) -> None:
        """Add the rows of a measurement if there is time for one as long as the longest so far, and say what happened.

        An error is a line too: it ends this measurement alone, unless the GPU computes nothing more.
        """
        began = self.elapsed_s
        if began + min(self.longest_s, self.budget_s / 3) > self.budget_s:
            self.not_run.append(name)
            return
        try:
            for row in rows():
                self.add(row)
        except Exception as error:
            lines = str(error).strip().splitlines() or [""]
            self.failed.append(f"{name}: {type(error).__name__}: {lines[0]}")
            progress.say(f"failed: {self.failed[-1]}")
            self._recover()
        took_s = self.elapsed_s - began
        self.longest_s = max(self.longest_s, took_s)
        progress.say(f"{name}: {took_s:.1f} s")

    def _recover(self) -> None:
        if self.settings.device.type == "cuda":
            try:
                torch.cuda.synchronize()
                torch.cuda.empty_cache()
            except RuntimeError as error:
                progress.say(f"the GPU computes nothing more in this process: {error}")
                self.budget_s = 0.0

    def add(self, row: Row) -> None:
        """Write a row, in place of those that an earlier run wrote of the same measurement on the same machine."""
        key = [row.get(each) for each in KEY]
        self.older = [other for other in self.older if [other.get(each) for each in KEY] != key]
        self.rows.append(row)
        records.write(self.path, [*self.older, *self.rows])

    def close(self, part: str) -> None:
        """Say how long the part took, and what was not run."""
        progress.say(f"{part}: {self.elapsed_s:.0f} s, {self.path}")
        for name in self.not_run:
            progress.say(f"not run within {self.budget_s:.0f} s: {part}, {name}")
