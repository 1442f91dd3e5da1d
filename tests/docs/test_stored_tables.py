"""Pages show the stored results: `python docs/made_by/stored_tables.py` was run after the last change."""

import re
import runpy
from pathlib import Path

import pytest
from places import REPOSITORY

SCRIPT = runpy.run_path(str(REPOSITORY / "docs" / "made_by" / "stored_tables.py"))


def content(svg: str) -> tuple[list[str], int, int]:
    """Words, marks and lines: other versions of matplotlib place them a little differently."""
    return re.findall(r">([^<>\n]+)</text>", svg), svg.count("<use "), svg.count("LineCollection")


@pytest.mark.pictures
@pytest.mark.parametrize("path", SCRIPT["PAGES"], ids=lambda path: path.stem)
def test_tables_and_figures_are_those_of_the_stored_results(path: Path) -> None:
    page = path.read_text("utf-8")
    text, figures = SCRIPT["made"](page)
    assert text == page and len(figures) == {"layer_norm": 19, "which_cell": 4}[path.stem]
    for name, svg in figures.items():
        assert content((REPOSITORY / "docs" / "pictures" / name).read_text("utf-8")) == content(svg), name
