"""Charts: curves with bands, a dot for every training, heat maps, and what stands there without matplotlib."""

import base64
import re
from typing import Any

import numpy as np
import pytest
from html_page import Page

from las.reproduction import charts
from las.reproduction.charts import Dots
from las.reproduction.learning_curves import Series

pytestmark = pytest.mark.pictures
ONE = Series("a<b", [1.0, 2.0], [3.0, 4.0], [3.0, 4.0], [3.0, 4.0])
BAND = Series("c", [1.0, 2.0], [3.0, 4.0], [2.0, 3.0], [4.0, 5.0])
EMPTY = Series("none", [], [], [], [])
ROWS = [
    Dots("one <row>", [20.0, 24.0, 22.0], 22.0, (17.0, 27.0), 26.8),
    Dots("broken", [], None, None, 24.5),
    Dots("far", [30.0], 30.0, None, 500.0),
]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures of matplotlib that are drawn, without the time that it takes."""
    figures: list[Any] = []
    monkeypatch.setattr(charts, "svg", lambda figure: figures.append(figure) or "<svg/>")
    return figures


def test_a_chart_has_a_line_for_each_series_and_a_band_where_seeds_differ(drawn: list[Any]) -> None:
    charts.chart([EMPTY, ONE, BAND], "step", "loss", title="cell.input_gain")
    (axes,) = drawn[0].axes
    assert [line.get_xydata().tolist() for line in axes.lines] == [[], [[1, 3], [2, 4]], [[1, 3], [2, 4]]]
    assert len(axes.collections) == 1 and (axes.get_xlabel(), axes.get_ylabel()) == ("step", "loss")
    assert charts.chart([], "x", "y") == charts.chart([EMPTY], "x", "y") == ""


def test_no_two_of_sixteen_lines_look_alike(drawn: list[Any]) -> None:
    names = [str(number) for number in range(16)]
    charts.chart([ONE._replace(name=name) for name in names], "step", "loss")
    styles = [(line.get_color(), line.get_linestyle()) for line in drawn[0].axes[0].lines]
    assert len(set(styles)) == 16
    keys = re.findall(r'class="key([^"]*)" style="background: ([^"]+)"', charts.legend(names))
    assert [(colour, "--" if dashed else "-") for dashed, colour in keys] == styles
    assert "a&lt;b" in charts.legend(["a<b"])


def test_every_training_is_a_dot_with_means_intervals_and_the_papers_numbers(drawn: list[Any]) -> None:
    figure = charts.dots(ROWS, "test PER in %", "WER")
    (axes,) = drawn[0].axes
    values = sorted(x for line in axes.lines for x in line.get_xdata())
    assert values == [20, 22, 22, 24, 30, 30], "four trainings and two means"
    assert len(axes.collections) == 3, "an interval and two numbers of the paper"
    assert [text.get_text() for text in axes.texts] == ["paper: 500.0 →"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["one <row>", "broken", "far"]
    assert "(WER)" in figure and "Upright" not in charts.dots([ROWS[0]._replace(paper=None)], "x", "PER")
    assert charts.dots([ROWS[1]], "x", "PER") == ""


def test_errors_are_drawn_over_milliseconds_where_two_rows_have_them(drawn: list[Any]) -> None:
    first, _, last = ROWS
    timed = [first._replace(update_ms=20.0), ROWS[1]._replace(update_ms=9.0), last._replace(update_ms=40.0)]
    assert charts.against_time(timed, "test PER in %")
    (axes,) = drawn[0].axes
    assert [line.get_xydata().tolist() for line in axes.lines] == [[[20, 22]], [[40, 30]]], "none for a broken row"
    assert [text.get_text() for text in axes.texts] == ["one <row>", "far"] and len(axes.collections) == 1
    assert charts.against_time(timed[:2], "x") == charts.against_time(ROWS, "x") == ""


def test_a_heat_map_has_the_weights_the_symbols_and_the_true_times(drawn: list[Any]) -> None:
    weights = np.array([[0.0, 1.0], [0.5, 0.25], [0.0, 0.0]])
    charts.heat_map(weights, ["a", " ", "(end)"], 0.8, "title", "caption", [(0.0, 0.4), (0.4, 0.8)])
    (axes,) = drawn[0].axes
    assert axes.images[0].get_array().tolist() == weights.tolist()
    assert axes.images[0].get_extent() == [0, 0.8, 2.5, -0.5]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "(space)", "(end)"]
    assert len(axes.collections) == 4, "two sides of each outline"


def test_a_figure_is_an_svg_whose_words_stay_words_the_same_every_time() -> None:
    figures = [charts.chart([ONE, BAND], "step", "loss", title="t<i>") for _ in range(2)]
    page = Page(figures[0])
    assert page.open == [] and page.tags["img"] == 1 and figures[0] == figures[1] and "t&lt;i&gt;" in figures[0]
    svg = base64.b64decode(page.loads[0].partition("base64,")[2]).decode()
    assert svg.startswith("<?xml") and ">step</text>" in svg and "Matplotlib v" not in svg
