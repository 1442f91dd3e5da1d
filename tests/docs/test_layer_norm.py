"""docs/layer_norm.md shows the stored results: `python docs/made_by/layer_norm.py` was run after the last change."""

import runpy

from places import REPOSITORY

SCRIPT = runpy.run_path(str(REPOSITORY / "docs" / "made_by" / "layer_norm.py"))


def test_tables_and_figures_are_those_of_the_stored_results() -> None:
    page = SCRIPT["PAGE"].read_text("utf-8")
    text, figures = SCRIPT["made"](page)
    assert text == page
    for name, svg in figures.items():
        assert (REPOSITORY / "docs" / "pictures" / name).read_text("utf-8") == svg, name
