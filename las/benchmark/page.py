"""docs/performance.md, made from the measurements that lie in docs/performance/."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from las import atomic
from las.benchmark import rows
from las.benchmark.rows import Row
from las.benchmark.shapes import SHAPES
from las.benchmark.suites import SUITES

OPENING = """# Speed

Every table below was measured by the command above it, which wrote JSON lines into `docs/performance/`. This page is
made from those files: `python scripts/benchmark.py page=docs/performance.md` writes it again.
"""


def rewrite(path: Path) -> None:
    """Write x.md from all x/*.jsonl."""
    files = sorted(path.with_suffix("").glob("*.jsonl"))
    atomic.write(path, page([rows.read(file) for file in files]))


def page(measurements: Sequence[Sequence[Row]]) -> str:
    """The page of what one command each has measured."""
    parts = [OPENING, _shapes()]
    for name in SUITES:
        parts += [_section(found) for found in measurements if found and found[0]["suite"] == name]
    return "\n".join(parts)


def _section(found: Sequence[Row]) -> str:
    first = found[0]
    suite = SUITES[first["suite"]]
    lines = [
        f"## suite={first['suite']}, {first['machine']}",
        "",
        "```sh",
        first["command"],
        "```",
        "",
        f"torch {first['torch']}, {first['threads']} threads, {first['dtype']}, commit {first['commit']}.",
        "",
    ]
    for shape, group in groupby(found, key=lambda row: row["shape"]):
        members = list(group)
        headings, table = rows.table(members, suite.columns)
        lines += [f"### {suite.title(shape)}", "", *_table(headings, table), ""]
        if missing := rows.unmeasured(members):
            lines += [f"Not measured: {'; '.join(missing)}.", ""]
    return "\n".join(lines)


def _shapes() -> str:
    headings = ["shape", "what", "H", "input", "batch", "frames", "directions", "layers", "lengths"]
    table = []
    for name, shape in SHAPES.items():
        lengths = "all the same" if not shape.ragged else "real ones" if shape.lengths else f"{shape.shortest:g} to 1"
        sizes = (shape.hidden_size, shape.input_size, shape.batch, shape.frames, shape.directions, len(shape.reduction))
        table.append([name, shape.what, *map(str, sizes), lengths])
    return "\n".join(["## Shapes", "", *_table(headings, table), ""])


def _table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (headings, ["---"] * len(headings), *lines)]
