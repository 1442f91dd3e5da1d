"""Pages of tables next to the measurements (docs/performance/<suite>.md), and the targets in docs/performance.md."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from benchmarks import growth, records, targets
from benchmarks.records import Row, TableColumn
from benchmarks.shapes import SHAPES
from benchmarks.suites import SUITES
from las.storage import atomic

BEGIN, END = "<!-- targets: begin -->\n", "<!-- targets: end -->\n"
"""Marks of the page around what is written anew."""
PICTURE, GROWTH_PICTURE = "targets.png", "growth.png"
COMMIT = TableColumn("commit", lambda row: str(row["commit"])[:7])
"""A column of tables whose rows were not measured together: ratios are to rows of the same commit."""
REMOVED = ("autograd", "cudnn")
"""Kernels that the package no longer has: their rows stay in the files, and out of the tables."""
GROWTH = "An exponent of 1 is a time that grows as the quantity does. One thing grows at a time."


def rewrite(path: Path) -> None:
    """Write the targets into the page x.md, and from all files x/*.jsonl the tables x/<suite>.md and the pictures.

    Raises LasError without matplotlib.
    """
    folder = path.with_suffix("")
    measurements = [records.read(file) for file in sorted(folder.glob("*.jsonl"))]
    for name, text in pages(measurements).items():
        atomic.write(folder / f"{name}.md", text)
    rows = [row for each in measurements for row in each]
    reached = targets.verdicts(targets.ALL, rows)
    if any(verdict.measured is not None for verdict in reached):
        targets.draw(reached, folder / PICTURE)
    if grown := [row for row in rows if row["suite"] == "growth"]:
        growth.draw(grown, folder / GROWTH_PICTURE)
    before = path.read_text("utf-8") if path.exists() else BEGIN + END
    atomic.write(path, with_targets(before, measurements))


def with_targets(page: str, measurements: Sequence[Sequence[Row]]) -> str:
    """The page with the verdicts on all targets between its marks."""
    reached = targets.verdicts(targets.ALL, [row for rows in measurements for row in rows])
    before, after = page.partition(BEGIN)[0], page.partition(END)[2]
    lines = _table(*records.table(targets.rows(reached), targets.COLUMNS))
    return before + BEGIN + "\n" + "\n".join([*lines, ""]) + "\n" + END + after


def pages(measurements: Sequence[Sequence[Row]]) -> dict[str, str]:
    """The text of a page for each suite; each element holds the measurements of one file."""
    found = {}
    measurements = [[row for row in rows if row["implementation"] not in REMOVED] for rows in measurements]
    for name in SUITES:
        sections = ["\n".join(_section(rows)) for rows in measurements if rows and rows[0]["suite"] == name]
        if sections:
            shapes = [_shapes()] if name == "lstm" else []
            back = "How these were measured, and what the columns are: [speed](../performance.md).\n"
            found[name] = "\n".join([f"# suite={name}\n", back, *shapes, *sections])
    return found


def _section(rows: Sequence[Row]) -> Iterator[str]:
    suite = SUITES[rows[0]["suite"]]
    yield f"## {rows[0]['machine']}\n"
    for command in dict.fromkeys(row["command"] for row in rows):
        first = next(row for row in rows if row["command"] == command)
        about = f"torch {first['torch']}, {first['threads']} threads, {first['dtype']}, commit {first['commit']}"
        yield f"```sh\n{command}\n```\n\n{about}.\n"
    if rows[0]["suite"] == "growth":
        yield f"![Time of a step over what grows]({GROWTH_PICTURE})\n\n{GROWTH}\n"
    for shape, group in groupby(rows, key=lambda row: row["shape"]):
        members = list(group)
        several = len({row["commit"] for row in members if not row.get("refused")}) > 1
        columns = [*suite.columns, *([COMMIT] if several else [])]
        yield "\n".join([f"### {suite.title(shape)}", "", *_table(*records.table(members, columns)), ""])
        if refusals := records.unmeasured(members):
            yield f"Not measured: {'; '.join(refusals)}.\n"


def _shapes() -> str:
    headings = ["shape", "what", "H", "input", "batch", "frames", "directions", "layers", "lengths"]
    table = []
    for name, shape in SHAPES.items():
        lengths = "all the same" if not shape.ragged else "real ones" if shape.lengths else f"{shape.shortest:g} to 1"
        sizes = (shape.hidden_size, shape.input_size, shape.batch, shape.frames, shape.directions, len(shape.reduction))
        table.append([name, shape.description, *map(str, sizes), lengths])
    return "\n".join(["## Shapes", "", *_table(headings, table), ""])


def _table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (headings, ["---"] * len(headings), *lines)]
