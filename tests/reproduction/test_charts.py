"""Charts: pictures, ticks, curves with bands, and a dot for every training."""

import base64
import re
import struct
import zlib

import pytest
from html_page import Page

from las.reproduction import charts
from las.reproduction.charts import Series


def test_long_names_break_after_dots_and_underscores() -> None:
    line = Series("row", [1.0, 2.0], [1.0, 2.0], [1.0, 2.0], [1.0, 2.0])
    assert "<figcaption>cell.<wbr>input_<wbr>gain</figcaption>" in charts.chart([line], "", "", title="cell.input_gain")


def test_a_picture_is_a_png_of_the_matrix() -> None:
    scheme, _, data = charts.png([[0.0, 1.0], [0.5, 0.25], [0.0, 0.0]]).partition(",")
    content = base64.b64decode(data)
    assert scheme == "data:image/png;base64" and content.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", content[16:24]) == (2, 3)
    start = content.index(b"IDAT")
    (length,) = struct.unpack(">I", content[start - 4 : start])
    assert zlib.decompress(content[start + 4 : start + 4 + length]) == bytes([0, 0, 255, 0, 128, 64, 0, 0, 0])


def test_ticks_are_round_and_inside() -> None:
    assert charts.ticks(0.0, 500.0) == [0, 100, 200, 300, 400, 500]
    assert charts.ticks(0.13, 0.29) == [0.15, 0.2, 0.25]
    assert len(charts.ticks(1.0, 1.0)) == 1


def test_a_chart_has_a_band_only_where_seeds_differ() -> None:
    one = Series("a<b", [1.0, 2.0], [3.0, 4.0], [3.0, 4.0], [3.0, 4.0])
    two = one._replace(name="c", low=[2.0, 3.0], high=[4.0, 5.0])
    drawn = charts.chart([one, two, Series("none", [], [], [], [])], "step", "loss", title="t")
    assert drawn.count("<polyline") == 2 and drawn.count("<polygon") == 1
    assert "a&lt;b" in charts.legend(["a<b"]) and charts.chart([], "x", "y") == ""


def test_no_two_of_sixteen_lines_look_alike() -> None:
    lines = [Series(str(number), [1.0, 2.0], [3.0, 4.0], [3.0, 4.0], [3.0, 4.0]) for number in range(16)]
    styles = re.findall(r'<polyline class="line ([^"]+)"', charts.chart(lines, "step", "loss"))
    assert len(set(styles)) == 16 and styles[0] == "s0" and styles[8] == "s0 dashed"
    assert re.findall(r'class="key ([^"]+)"', charts.legend([line.name for line in lines])) == styles


@pytest.mark.parametrize(
    ("number", "text"),
    [(0.0, "0"), (0.25, "0.25"), (9e3, "9000"), (3e4, "30k"), (-12.5e3, "-12.5k"), (2e6, "2M"), (3e10, "30G")],
)
def test_numbers_beside_an_axis_are_short(number: float, text: str) -> None:
    assert charts.short(number) == text


def test_every_training_is_a_dot_with_means_intervals_and_the_papers_numbers() -> None:
    rows = [
        charts.Dots("one <row>", [20.0, 24.0, 22.0], 22.0, (17.0, 27.0), 26.8),
        charts.Dots("broken", [], None, None, 24.5),
        charts.Dots("far", [30.0], 30.0, None, 500.0),
    ]
    figure = charts.dots(rows, "test PER in %", "WER")
    assert Page(figure).open == []
    assert figure.count('class="dot"') == 4 and figure.count('class="mean"') == 2
    assert figure.count('class="line s0"') == 1 and figure.count('class="paper"') == 2
    assert "one &lt;row&gt;" in figure and "the paper's numbers (WER)" in figure
    assert figure.count("→") == 1 and "paper: 500.0 →" in figure
    assert "Upright lines" not in charts.dots([rows[0]._replace(paper=None)], "test PER in %", "PER")
    places = [float(x) for x in re.findall(r'class="dot" cx="([\d.]+)"', figure)]
    assert places[0] < places[2] < places[1] < places[3]
    assert charts.dots([charts.Dots("none", [], None, None, 20.0)], "x", "PER") == ""
