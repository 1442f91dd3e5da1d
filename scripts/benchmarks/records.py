"""Measurements as rows: plain values, JSON lines, lines of a table."""

import json
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.table import Table

from las.runtime import progress
from las.runtime.errors import DataError
from las.storage import atomic, bounded

Row = dict[str, Any]
NUM_NAME_COLUMNS = 2  # left-aligned; the others are numbers


class TableColumn(NamedTuple):
    """A heading, and the function that gives the cell of a row."""

    heading: str
    text: Callable[[Row], str]


class Group(NamedTuple):
    """Rows that are compared with each other, under one title."""

    title: str
    rows: list[Row]


def machine(device: torch.device) -> str:
    """The name of a device: `NVIDIA H200, cuDNN 9.13.0`, or `AMD EPYC, 2 cores, AVX2`."""
    if device.type == "cuda":
        version = torch.backends.cudnn.version() or 0
        return f"{torch.cuda.get_device_name(device)}, cuDNN {version // 10000}.{version // 100 % 100}.{version % 100}"
    listed = Path("/proc/cpuinfo")
    lines = listed.read_text().splitlines() if listed.exists() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = named[0] if named else platform.processor() or platform.machine()
    return f"{name}, {os.cpu_count()} cores, {torch.backends.cpu.get_cpu_capability()}"


@cache
def versions() -> Row:
    """The driver of an NVIDIA GPU and Triton, None where there is none."""
    return {"driver": _driver(), "triton": _version("triton")}


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _driver() -> str | None:
    if not shutil.which("nvidia-smi"):
        return None
    asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    answer = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=30)
    return answer.stdout.strip().splitlines()[0] if answer.returncode == 0 and answer.stdout.strip() else None


def write(path: Path, rows: Iterable[Row]) -> None:
    """Write rows as JSON lines."""
    atomic.write(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def read(path: Path) -> list[Row]:
    """The rows of a file that `write` wrote. Raises DataError naming a line that is not a row."""
    rows = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        try:
            row = bounded.parse(line)
        except ValueError as error:
            raise DataError(f"{path}, line {number}: not JSON ({error})") from error
        if not isinstance(row, dict) or "suite" not in row:
            raise DataError(f"{path}, line {number}: not a row of the verb benchmark")
        rows.append(row)
    return rows


def show(group: Group, columns: Sequence[TableColumn]) -> None:
    """Print a table on a terminal and plain lines elsewhere, then the reasons for all missing measurements."""
    headings, lines = table(group.rows, columns)
    if progress.console.is_terminal:
        drawn = Table(title=group.title)
        for index, heading in enumerate(headings):
            drawn.add_column(heading, justify="left" if index < NUM_NAME_COLUMNS else "right", overflow="fold")
        for line in lines:
            drawn.add_row(*line)
        progress.console.print(drawn, markup=False)
    else:
        progress.say(group.title)
        widths = [max(map(len, column)) for column in zip(headings, *lines, strict=True)]
        for line in [headings, *lines]:
            cells = enumerate(zip(line, widths, strict=True))
            progress.say(
                "  ".join(t.ljust(w) if index < NUM_NAME_COLUMNS else t.rjust(w) for index, (t, w) in cells).rstrip()
            )
    for reason in unmeasured(group.rows):
        progress.say(f"not measured: {reason}")


def table(rows: Sequence[Row], columns: Sequence[TableColumn]) -> tuple[list[str], list[list[str]]]:
    """Headings and lines of the measured rows; empty columns are left out."""
    measured = [row for row in rows if not row.get("refused")]
    used = [column for column in columns if any(column.text(row) for row in measured)]
    return [column.heading for column in used], [[column.text(row) for column in used] for row in measured]


def unmeasured(rows: Sequence[Row]) -> list[str]:
    """The implementations that were not measured, by reason: `lstm_best, lstm_graph (needs a GPU)`."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row.get("refused"):
            reasons.setdefault(row["refused"], []).append(row["implementation"])
    return [f"{', '.join(dict.fromkeys(names))} ({reason})" for reason, names in reasons.items()]


def number(key: str, digits: int = 2, scale: float = 1.0) -> Callable[[Row], str]:
    """A function that formats a row's value with `digits` decimals, empty if there is none."""

    def text(row: Row) -> str:
        value = row.get(key)
        return "" if value is None else f"{value * scale:,.{digits}f}"

    return text


def text(key: str) -> Callable[[Row], str]:
    """A function that gives a row's value as text, empty if there is none."""
    return lambda row: "" if row.get(key) is None else str(row[key])


SPREAD_MS = TableColumn(
    "lowest - highest", lambda row: f"{row['total_lowest_ms']:,.1f} - {row['total_highest_ms']:,.1f}"
)
SPREAD_S = TableColumn("lowest - highest", lambda row: f"{row['lowest_s']:.2f} - {row['highest_s']:.2f}")
"""Columns of `timing.Spread`."""
