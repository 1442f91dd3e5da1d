"""The verb `runs`: list runs from their files, compare two of them, follow those that train.

Listing imports neither torch nor Hydra, which only comparing needs.
"""

import csv
import fnmatch
import io
import json
import operator
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.live import Live
from rich.table import Table

from las.runtime import progress
from las.runtime.errors import ConfigError, DataError, nearest, suggest
from las.storage import atomic, run_summary
from las.storage.run_records import METRICS
from las.storage.run_summary import Measure, RunSummary

KEYS = ("sort", "filter", "format", "compare", "page", "every")
PAGE = "runs_compared.html"
WORDS = ("run", "state", "dev")
HEADINGS = ("run", "state", "step", "loss", "dev", "minutes", "at most left")
COLUMNS = ("name", "corpus", "seed", "state", "step", "dev", "test", "parameters", "minutes", "commit", "folder")
MEASURED = ("dev", "test")
NUMBERS = ("seed", "step", *MEASURED, "parameters", "minutes")
STYLES = {"minutes": ".1f", "parameters": ","}
COMPARISONS = {
    **{"<=": operator.le, ">=": operator.ge, "!=": operator.ne},
    **{"<": operator.lt, ">": operator.gt, "=": operator.eq},
}


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
        print(listing(folder, values.get("sort"), values.get("filter"), style), end="")


def _parsed(arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
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
    if (name := values.get("format", "table")) not in FORMATS:
        raise ConfigError(f"format={name}: it is one of {', '.join(FORMATS)}")
    return words, values


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 3600:
        raise ConfigError(f"every={text} is the number of seconds between two looks, for example every=5")
    return seconds


def listing(folder: Path, sort: str | None, conditions: str | None, style: str) -> str:
    """Return the runs in a folder as text: those for which the `conditions` hold, sorted by a column, in one of
    `FORMATS`.
    """
    listed = [run_summary.read(each) for each in found(folder)]
    text = FORMATS[style](_sorted(_filtered(listed, conditions), sort))
    return text.encode("utf-8", "backslashreplace").decode("utf-8")  # names may hold what is no text


def found(folder: Path) -> list[Path]:
    """Return the run folders in a folder. Raises ConfigError if it does not exist, DataError if it has none."""
    if not folder.is_dir():
        siblings = [path.name for path in folder.parent.glob("*/")] if folder.parent.is_dir() else []
        near = f" Near it: {', '.join(nearest(folder.name, siblings))}." if siblings else ""
        raise ConfigError(f"{folder}: there is no such folder.{near} las runs FOLDER lists the runs in another one")
    folders = run_summary.find(folder)
    if not folders:
        raise DataError(
            f"{folder}: no runs in it (a run has an environment.json, metrics.jsonl or result.json). "
            "las train +experiment=ln_encoder_only makes one below runs"
        )
    return folders


def _column(name: str, what: str) -> str:
    if name not in COLUMNS:
        raise ConfigError(f"{what}: runs have no column {name!r}.{suggest(name, COLUMNS)}")
    return name


def _value(run: RunSummary, column: str) -> Any:
    """Return a value to sort and filter by: error rates in %."""
    value = getattr(run, column)
    if isinstance(value, Measure):
        return value.value if value.metric == "perplexity" else 100 * value.value
    return str(value) if column == "folder" else value


def _sorted(listed: list[RunSummary], key: str | None) -> list[RunSummary]:
    """Return runs in the order of a column, those without a value last; by default in that of their folders."""
    if key is None:
        return listed
    column = _column(key.lstrip("-"), f"sort={key}")
    with_value = [run for run in listed if _value(run, column) is not None]
    ordered = sorted(with_value, key=lambda run: _value(run, column), reverse=key.startswith("-"))
    return ordered + [run for run in listed if _value(run, column) is None]


def _filtered(listed: list[RunSummary], conditions: str | None) -> list[RunSummary]:
    for condition in (conditions or "").strip("[]").split(",") if conditions else []:
        match = re.fullmatch(r"\s*(\w+)\s*(<=|>=|!=|<|>|=)\s*(.+?)\s*", condition)
        if match is None:
            raise ConfigError(f"filter={condition}: a column, = != < > <= or >=, and a value: filter='test<8'")
        column = _column(match[1], f"filter={condition}")
        listed = [run for run in listed if _holds(_value(run, column), match[2], match[3], column, condition)]
    return listed


def _holds(value: Any, sign: str, wanted: str, column: str, condition: str) -> bool:
    """Return whether a condition holds; for a run without a value none does."""
    if value is None:
        return False
    if column in NUMBERS:
        try:
            return bool(COMPARISONS[sign](value, float(wanted)))
        except ValueError:
            raise ConfigError(f"filter={condition}: {column} is a number: filter='{column}{sign}10'") from None
    if sign not in ("=", "!="):
        raise ConfigError(f"filter={condition}: {column} is a name: filter='{column}=...' or '{column}!=...'")
    return fnmatch.fnmatchcase(str(value), wanted) == (sign == "=")


def shown(measure: Measure | None) -> str:
    """Return a measure in print: `PER 1.2 % [0.5, 1.9]`, `perplexity 2.41`."""
    if measure is None:
        return ""
    name = METRICS[measure.metric]
    if measure.metric == "perplexity":
        return f"{name} {measure.value:.2f}"
    limits = "" if measure.interval is None else " [{:.1f}, {:.1f}]".format(*(100 * each for each in measure.interval))
    return f"{name} {100 * measure.value:.1f} %{limits}"


def _cells(run: RunSummary) -> list[str]:
    cells = []
    for column in COLUMNS:
        value = getattr(run, column)
        if column in MEASURED:
            cells.append(shown(value))
        elif column == "step" and run.state in ("training", "stopped") and run.max_steps:
            cells.append(f"{value or 0} of {run.max_steps}")
        elif value is None:
            cells.append("")
        else:
            cells.append(f"{value:{STYLES[column]}}" if column in STYLES else printable(str(value)))
    return cells


def printable(text: str) -> str:
    """Return a text on one line, in which characters that would move the cursor are escaped."""
    return text if text.isprintable() else "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def _problems(listed: Sequence[RunSummary]) -> list[str]:
    return [printable(f"{run.folder}: {run.problem}") for run in listed if run.problem]


def _as_table(listed: Sequence[RunSummary]) -> str:
    rows = [list(COLUMNS), *map(_cells, listed)]
    columns = []
    for name, cells in zip(COLUMNS, zip(*rows, strict=True), strict=True):
        width, right = max(map(len, cells)), name in NUMBERS and name not in MEASURED
        columns.append([cell.rjust(width) if right else cell.ljust(width) for cell in cells])
    lines = ["  ".join(row).rstrip() for row in zip(*columns, strict=True)]
    count = f"{len(listed)} run{'s' if len(listed) != 1 else ''}"
    return "\n".join([*lines, *_problems(listed), count]) + "\n"


def _as_markdown(listed: Sequence[RunSummary]) -> str:
    rows = [list(COLUMNS), ["---"] * len(COLUMNS), *map(_cells, listed)]
    lines = [f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |" for row in rows]
    return "\n".join(lines + ["\n" + problem for problem in _problems(listed)]) + "\n"


def _as_data(run: RunSummary) -> dict[str, Any]:
    """Return a run as plain data: error rates are fractions, as in result.json."""
    data: dict[str, Any] = {}
    for column in COLUMNS:
        value = getattr(run, column)
        if column in MEASURED:
            low, high = (value.interval if value else None) or (None, None)
            data |= {f"{column}_metric": value.metric if value else None, column: value.value if value else None}
            data |= {f"{column}_low": low, f"{column}_high": high}
        else:
            data[column] = str(value) if column == "folder" else value
    return data | {"problem": run.problem}


def _as_csv(listed: Sequence[RunSummary]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(_as_data(RunSummary(Path()))), lineterminator="\n")
    writer.writeheader()
    writer.writerows(map(_as_data, listed))
    return text.getvalue()


def _as_json(listed: Sequence[RunSummary]) -> str:
    return json.dumps([_as_data(run) for run in listed], indent=1, ensure_ascii=False) + "\n"


FORMATS: dict[str, Callable[[Sequence[RunSummary]], str]] = {
    "table": _as_table,
    "csv": _as_csv,
    "json": _as_json,
    "md": _as_markdown,
}


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
    inside = found(folder)
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
                if said.get(run.folder) != (line := "  ".join(_watched_cells(run))):
                    progress.say(line)
                    said[run.folder] = line


def _training(folder: Path) -> list[RunSummary]:
    return [run for each in found(folder) if (run := run_summary.read(each)).state == "training"]


def _looks(folder: Path, watched: list[RunSummary], every_s: float) -> Iterator[list[RunSummary]]:
    """Yield the runs as they are at each look, with those that have begun since, until none trains."""
    yield watched
    while any(run.state == "training" for run in watched):
        time.sleep(every_s)
        known = {run.folder for run in watched}
        begun = [run for run in _training(folder) if run.folder not in known]
        watched = [*(run_summary.read(run.folder) for run in watched), *begun]
        yield watched


def _watched_cells(run: RunSummary) -> list[str]:
    left = ""
    if run.state == "training" and run.minutes and run.step and run.max_steps:
        left = progress.duration(60 * run.minutes / run.step * max(0, run.max_steps - run.step))
    steps = f"{run.step or 0}" + (f" of {run.max_steps}" if run.max_steps else "")
    loss = "" if run.loss is None else f"{run.loss:.3f}"
    minutes = "" if run.minutes is None else f"{run.minutes:.1f}"
    return [printable(str(run.folder)), run.state, steps, loss, shown(run.dev), minutes, left]


def _table(watched: Sequence[RunSummary]) -> Table:
    table = Table()
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading in WORDS else "right", no_wrap=heading != "run")
    for run in watched:
        table.add_row(*_watched_cells(run))
    return table
