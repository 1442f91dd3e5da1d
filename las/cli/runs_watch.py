"""`las runs watch`: the runs that train now, in a table that follows them; away from a terminal in plain lines."""

import time
from collections.abc import Sequence
from pathlib import Path

from rich.live import Live
from rich.table import Table

from las.cli import runs_list
from las.runtime import progress
from las.storage import run_summary
from las.storage.run_summary import RunSummary

HEADINGS = ("run", "state", "step", "loss", "dev", "minutes", "at most left")


def watch(folder: Path, every_s: float) -> None:
    """Follow the trainings of a folder until none trains any more, or Ctrl-C; a look every `every_s` seconds."""
    watched = _training(folder)
    if not watched:
        progress.say(f"nothing trains in {folder} now: las runs {folder} lists what is there")
        return
    if progress.console.is_terminal:
        with Live(_table(watched), console=progress.console, auto_refresh=False) as live:
            while _trains(watched):
                time.sleep(every_s)
                watched = _looked_at(folder, watched)
                live.update(_table(watched), refresh=True)
        return
    said: dict[Path, str] = {}
    while True:
        for run in watched:
            if said.get(run.folder) != (line := "  ".join(_cells(run))):
                progress.say(line)
                said[run.folder] = line
        if not _trains(watched):
            return
        time.sleep(every_s)
        watched = _looked_at(folder, watched)


def _training(folder: Path) -> list[RunSummary]:
    return [run for each in runs_list.found(folder) if (run := run_summary.read(each)).state == "training"]


def _trains(watched: Sequence[RunSummary]) -> bool:
    return any(run.state == "training" for run in watched)


def _looked_at(folder: Path, watched: Sequence[RunSummary]) -> list[RunSummary]:
    """The runs as they are now, and those that have begun since."""
    known = {run.folder for run in watched}
    begun = [run for run in _training(folder) if run.folder not in known]
    return [*(run_summary.read(run.folder) for run in watched), *begun]


def _cells(run: RunSummary) -> list[str]:
    left = ""
    if run.state == "training" and run.minutes and run.step and run.max_steps:
        left = progress.duration(60 * run.minutes / run.step * max(0, run.max_steps - run.step))
    steps = f"{run.step or 0}" + (f" of {run.max_steps}" if run.max_steps else "")
    loss = "" if run.loss is None else f"{run.loss:.3f}"
    minutes = "" if run.minutes is None else f"{run.minutes:.1f}"
    return [runs_list.printable(str(run.folder)), run.state, steps, loss, runs_list.shown(run.dev), minutes, left]


def _table(watched: Sequence[RunSummary]) -> Table:
    table = Table()
    for heading in HEADINGS:
        words = heading in ("run", "state", "dev")
        table.add_column(heading, justify="left" if words else "right", no_wrap=heading != "run")
    for run in watched:
        table.add_row(*_cells(run))
    return table
