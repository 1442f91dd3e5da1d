"""Pages of tables next to the measurements (docs/performance/<suite>.md), and the targets in docs/performance.md."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import growth, records, targets
from benchmarks.records import Row, TableColumn
from benchmarks.shapes import SHAPES
from benchmarks.suites import SUITES, TABLES
from las.storage import atomic

BEGIN, END = "<!-- targets: begin -->\n", "<!-- targets: end -->\n"
"""Marks of the page around what is written anew."""
PICTURE, GROWTH_PICTURE = "targets.png", "growth.png"
IF_SEVERAL = {
    "dtype": TableColumn("type", lambda row: str(row["dtype"])),
    "commit": TableColumn("commit", lambda row: str(row["commit"])[:7]),
}
"""Columns of tables whose rows differ in them. Those of several commits were not measured together: ratios are to rows
of the same one."""
REMOVED = ("autograd", "cudnn")
"""Kernels that the package no longer has: their rows stay in the files, and out of the tables."""
NOT_RUN = "Not run on a GPU.\n"
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
    for name in TABLES:
        of_suite = [[row for row in rows if row["suite"] == name] for rows in measurements]
        sections = ["\n".join(_section(part)) for rows in of_suite for part in by(rows, "machine")]
        if sections or name not in SUITES:
            shapes = [_shapes()] if name == "lstm" else []
            back = "How these were measured, and what the columns are: [speed](../performance.md).\n"
            title = f"suite={name}" if name in SUITES else f"{name}, by `make gpu`"
            found[name] = "\n".join([f"# {title}\n", back, *shapes, *(sections or [NOT_RUN])])
    return found


def _section(rows: Sequence[Row]) -> Iterator[str]:
    suite = TABLES[rows[0]["suite"]]
    yield f"## {rows[0]['machine']}\n"
    for command in dict.fromkeys(row["command"] for row in rows):
        first = next(row for row in rows if row["command"] == command)
        about = f"torch {first['torch']}, {first['threads']} threads, {first['dtype']}, commit {first['commit']}"
        yield f"```sh\n{command}\n```\n\n{about}.\n"
    if rows[0]["suite"] == "growth":
        yield f"![Time of a step over what grows]({GROWTH_PICTURE})\n\n{GROWTH}\n"
    for members in by(rows, "shape"):
        shape, found = members[0]["shape"], [row for row in members if not row.get("refused")]
        columns = [*suite.columns, *(each for key, each in IF_SEVERAL.items() if len({row[key] for row in found}) > 1)]
        yield "\n".join([f"### {suite.title(shape)}", "", *_table(*records.table(members, columns)), ""])
        if refusals := records.unmeasured(members):
            yield f"Not measured: {'; '.join(refusals)}.\n"


def by(rows: Sequence[Row], key: str) -> list[list[Row]]:
    """Groups of rows of one value, in the order of their first ones."""
    return [[row for row in rows if row[key] == value] for value in dict.fromkeys(row[key] for row in rows)]


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
