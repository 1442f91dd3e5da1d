"""The verb `runs`: list runs from their files, compare two of them, follow those that train.

Listing imports neither torch nor Hydra, which only comparing needs.
"""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.live import Live
from rich.table import Table

from las.cli import runs_list
from las.runtime import progress
from las.runtime.errors import ConfigError, suggest
from las.storage import atomic, run_summary
from las.storage.run_summary import RunSummary

KEYS = ("sort", "filter", "format", "compare", "page", "every")
PAGE = "runs_compared.html"
WORDS = ("run", "state", "dev")
HEADINGS = ("run", "state", "step", "loss", "dev", "minutes", "at most left")


def runs(arguments: Sequence[str]) -> None:
    """List the runs in a folder, from their files.

    las runs [FOLDER]             a line for each run in FOLDER (runs): name, corpus, seed, state, step, error rates of
                                  dev and test with 95 % intervals, parameters, minutes, commit, folder
      sort=test                   by a column; sort=-test from the highest
      filter='corpus=an4,test<8'  only runs for which all of these hold: = != < > <= >=, error rates in %, * in names
      format=table                or csv, json, md
    las runs compare=[A,B]        the config keys that differ, a page with the curves (page=runs_compared.html), and
                                  significance tests on the test sets that both decoded
    las runs watch [FOLDER]       follow the runs that train now; every=5 seconds
    """
    words, values = _parsed(arguments)
    folder = Path(next((word for word in words if word != "watch"), "runs"))
    if "compare" in values:
        folders = values["compare"].strip("[]").split(",")
        if len(folders) != 2 or not all(folders):
            raise ConfigError(f"compare={values['compare']}: two run folders: 'compare=[runs/a,runs/b]'")
        compare(Path(folders[0]), Path(folders[1]), Path(values.get("page", PAGE)))
    elif "watch" in words:
        watch(folder, _seconds(values.get("every", "5")))
    else:
        style = values.get("format", "table")
        print(runs_list.listing(folder, values.get("sort"), values.get("filter"), style), end="")


def _parsed(arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Split a command line into the arguments without `=` and the values by key."""
    words, values = [], {}
    for argument in arguments:
        key, separator, value = argument.partition("=")
        if not separator:
            words.append(argument)
        elif key not in KEYS:
            raise ConfigError(f"{argument}: runs has no key {key!r}.{suggest(key, KEYS)}")
        else:
            values[key] = value
    if len(words) > 1 + ("watch" in words):
        raise ConfigError(f"one folder at a time: las runs {words[0]}")
    if (name := values.get("format", "table")) not in runs_list.FORMATS:
        raise ConfigError(f"format={name}: it is one of {', '.join(runs_list.FORMATS)}")
    return words, values


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 3600:
        raise ConfigError(f"every={text} is the number of seconds between two looks, for example every=5")
    return seconds


def compare(first: Path, second: Path, page: Path) -> None:
    """Print the keys that differ and the tests of each split that both decoded, and write the page with the curves."""
    from las.reproduction import run_comparison
    from las.scoring import tables

    for folder in (first, second):
        _require_run(folder)
    atomic.require_place(page)
    pair = run_comparison.pair(first, second)
    names = (pair[0].label, pair[1].label)
    keys, splits = run_comparison.differing_keys(*pair), run_comparison.compared_splits(*pair)
    progress.say(f"{names[0]} -> {names[1]}: {'config keys that differ' if keys else 'the same config'}")
    for key, one, other in keys:
        progress.say(f"  {key}: {one} -> {other}")
    for split in splits:
        if split.comparison is None:
            progress.say(f"{split.split}: no significance test: {split.reason}")
        else:
            progress.say(f"{split.split}:")
            tables.print_comparison(split.comparison, names, split.metric, progress.console)
    atomic.write(page, run_comparison.page(*pair, keys, splits))
    progress.say(f"curves and all of this: {page}")


def _require_run(folder: Path) -> None:
    """Raise ConfigError unless a folder is a run, with the runs below it."""
    inside = runs_list.found(folder)
    if inside != [folder]:
        some = ", ".join(map(str, inside[:3])) + (", ..." if len(inside) > 3 else "")
        raise ConfigError(f"{folder} holds {len(inside)} runs: name one of them: {some}")
    if not (folder / "config.json").is_file():
        raise ConfigError(f"{folder}: config.json is missing: {run_summary.read(folder).problem}")


def watch(folder: Path, every_s: float) -> None:
    """Follow the trainings of a folder until none trains any more, or Ctrl-C; look every `every_s` seconds.

    A terminal shows a table, anything else a line for each change.
    """
    training = _training(folder)
    if not training:
        progress.say(f"nothing trains in {folder} now: las runs {folder} lists what is there")
    elif progress.console.is_terminal:
        with Live(_table(training), console=progress.console, auto_refresh=False) as live:
            for watched in _looks(folder, training, every_s):
                live.update(_table(watched), refresh=True)
    else:
        said: dict[Path, str] = {}
        for watched in _looks(folder, training, every_s):
            for run in watched:
                if said.get(run.folder) != (line := "  ".join(_cells(run))):
                    progress.say(line)
                    said[run.folder] = line


def _training(folder: Path) -> list[RunSummary]:
    return [run for each in runs_list.found(folder) if (run := run_summary.read(each)).state == "training"]


def _looks(folder: Path, watched: list[RunSummary], every_s: float) -> Iterator[list[RunSummary]]:
    """Yield the runs as they are at each look, with those that have begun since, until none trains."""
    yield watched
    while any(run.state == "training" for run in watched):
        time.sleep(every_s)
        known = {run.folder for run in watched}
        begun = [run for run in _training(folder) if run.folder not in known]
        watched = [*(run_summary.read(run.folder) for run in watched), *begun]
        yield watched


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
        table.add_column(heading, justify="left" if heading in WORDS else "right", no_wrap=heading != "run")
    for run in watched:
        table.add_row(*_cells(run))
    return table
