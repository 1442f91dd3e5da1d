"""The runs of a folder, listed from their files: sorted, filtered, in four formats.

It imports neither torch nor Hydra, so that a thousand runs are listed in under a second.
"""

import csv
import fnmatch
import io
import json
import operator
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from las.runtime.errors import ConfigError, DataError, nearest, suggest
from las.storage import run_summary
from las.storage.run_summary import Measure, RunSummary

COLUMNS = ("name", "corpus", "seed", "state", "step", "dev", "test", "parameters", "minutes", "commit", "folder")
MEASURED = ("dev", "test")
NUMBERS = ("seed", "step", *MEASURED, "parameters", "minutes")
SHORT_NAMES = {"phone_error_rate": "PER", "wer": "WER", "cer": "CER", "perplexity": "perplexity"}
COMPARISONS = {
    "<=": operator.le,
    ">=": operator.ge,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "=": operator.eq,
}


def listing(folder: Path, sort: str | None, conditions: str | None, style: str) -> str:
    """The runs in a folder as text: those for which the `conditions` hold, sorted by a column, in one of `FORMATS`."""
    listed = [run_summary.read(each) for each in found(folder)]
    text = FORMATS[style](_sorted(_filtered(listed, conditions), sort))
    return text.encode("utf-8", "backslashreplace").decode("utf-8")  # names may hold what is no text


def found(folder: Path) -> list[Path]:
    """The run folders in a folder. Raises ConfigError if it does not exist, DataError if it has none."""
    if not folder.is_dir():
        beside = [path.name for path in folder.parent.glob("*/")] if folder.parent.is_dir() else []
        near = f" Near it: {', '.join(nearest(folder.name, beside))}." if beside else ""
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
    """A value to sort and filter by: error rates in %."""
    value = getattr(run, column)
    if isinstance(value, Measure):
        return value.value if value.metric == "perplexity" else 100 * value.value
    return str(value) if column == "folder" else value


def _sorted(listed: list[RunSummary], key: str | None) -> list[RunSummary]:
    """Runs in the order of a column, those without a value last; by default in that of their folders."""
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
    """A measure in print: `PER 1.2 % [0.5, 1.9]`, `perplexity 2.41`."""
    if measure is None:
        return ""
    name = SHORT_NAMES[measure.metric]
    if measure.metric == "perplexity":
        return f"{name} {measure.value:.2f}"
    limits = "" if measure.interval is None else " [{:.1f}, {:.1f}]".format(*(100 * each for each in measure.interval))
    return f"{name} {100 * measure.value:.1f} %{limits}"


def _cells(run: RunSummary) -> list[str]:
    """A run as printed, a text for each of the columns."""
    cells = []
    for column in COLUMNS:
        value = getattr(run, column)
        if column in MEASURED:
            cells.append(shown(value))
        elif column == "minutes" and value is not None:
            cells.append(f"{value:.1f}")
        elif column == "parameters" and value is not None:
            cells.append(f"{value:,}")
        elif column == "step" and run.state in ("training", "stopped") and run.max_steps:
            cells.append(f"{value or 0} of {run.max_steps}")
        else:
            cells.append("" if value is None else printable(str(value)))
    return cells


def printable(text: str) -> str:
    """A text on one line, in which characters that would move the cursor are escaped."""
    return text if text.isprintable() else "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def _as_table(listed: Sequence[RunSummary]) -> str:
    rows = [_cells(run) for run in listed]
    widths = [max(map(len, column)) for column in zip(COLUMNS, *rows, strict=True)]
    right = [column in NUMBERS and column not in MEASURED for column in COLUMNS]
    lines = [
        "  ".join(
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in (list(COLUMNS), *rows)
    ]
    lines += [printable(f"{run.folder}: {run.problem}") for run in listed if run.problem]
    lines.append(f"{len(listed)} run{'s' if len(listed) != 1 else ''}")
    return "\n".join(lines) + "\n"


def _as_markdown(listed: Sequence[RunSummary]) -> str:
    rows = [list(COLUMNS), ["---"] * len(COLUMNS), *map(_cells, listed)]
    problems = ["\n" + printable(f"{run.folder}: {run.problem}") for run in listed if run.problem]
    return (
        "\n".join([f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |" for row in rows] + problems) + "\n"
    )


def _as_data(run: RunSummary) -> dict[str, Any]:
    """A run as plain data: error rates are fractions, as in result.json."""
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
