"""The tables and pictures of `las analyze` as one HTML file without network or scripts, in the style of the reports."""

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from las.runtime import templates
from las.storage import atomic


class Picture(NamedTuple):
    """A picture's name, and its PNG as a data URI."""

    name: str
    source: str


def write(title: str, tables: Sequence[Table], pictures: Sequence[Path], folder: Path) -> Path:
    """Write `analysis.html` into a folder; pictures are named by their paths in it, and are part of the file."""
    inside = [Picture(str(path.relative_to(folder).with_suffix("")), _data_uri(path)) for path in pictures]
    shown = [(_plain(table.title or ""), *_cells(table), _plain(table.caption or "")) for table in tables]
    page = templates.render("analysis.html", title=title, tables=shown, pictures=inside)
    path = folder / "analysis.html"
    atomic.write(path, page)
    return path


def _cells(table: Table) -> tuple[list[str], list[list[str]]]:
    """The headings and the rows of a table of the screen."""
    columns = [[_plain(cell) for cell in column.cells] for column in table.columns]
    return [_plain(column.header) for column in table.columns], [list(row) for row in zip(*columns, strict=True)]


def _plain(cell: RenderableType) -> str:
    """The text of a cell without the screen's markup."""
    return Text.from_markup(cell).plain if isinstance(cell, str) else str(cell)


def _data_uri(path: Path) -> str:
    return f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"
