"""docs/which_cell.md shows the cells as they are: `python docs/made_by/cells.py` was run after the last change."""

import runpy

from places import REPOSITORY

SCRIPT = runpy.run_path(str(REPOSITORY / "docs" / "made_by" / "cells.py"))


def test_the_table_of_cells_is_that_of_the_cells() -> None:
    page = SCRIPT["PAGE"].read_text("utf-8")
    assert SCRIPT["made"](page) == page
    assert SCRIPT["kernels"](SCRIPT["cells"]()["projected_lstm"]) == "`merged`, `plain`"
