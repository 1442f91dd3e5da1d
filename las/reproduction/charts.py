"""Curves with bands and heat maps as inline SVG: colours come from the page's style, so that they follow its theme."""

import base64
import io
import math
import re
from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup
from PIL import Image

WIDTH, HEIGHT = 560, 280
LEFT, RIGHT, TOP, BOTTOM = 52, 20, 12, 38
COLOURS = 8
"""Number of colours: series have the classes s0 to s7, and the same again dashed where there are more."""
DOTS_ROW = 26
"""Height of a row of dots."""
FARTHEST_PAPER = 2.2
"""A paper's number is in reach of an axis up to so many times the highest of ours."""
HEAT = ((12, 8, 38), (87, 16, 110), (188, 55, 84), (249, 142, 9), (252, 255, 164))
"""Colours from weight 0 to the largest, dark to bright, in grey as well."""


class Series(NamedTuple):
    """A line, its band, and its name in the legend."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


def chart(
    series: Sequence[Series],
    x_label: str,
    y_label: str,
    size: tuple[int, int] = (WIDTH, HEIGHT),
    title: str = "",
    colours: Sequence[int] = tuple(range(COLOURS)),
) -> Markup:
    """Lines with bands over common axes as SVG; empty where there are no points.

    Args:
        series: the lines, each with its band.
        x_label: below the x axis.
        y_label: beside the y axis.
        size: width and height in units of the SVG.
        title: shown above, and read out by screen readers.
        colours: classes of the series by number, repeated with dashed lines where there are more series.
    """
    width, height = size
    drawn = [each for each in series if each.x]
    if not drawn:
        return Markup("")
    bottom, top = _ends([v for each in drawn for v in (*each.low, *each.high)])
    first, last = min(min(each.x) for each in drawn), max(max(each.x) for each in drawn)
    last = last if last > first else first + 1

    def place(x: float, y: float) -> str:
        across = LEFT + (x - first) / (last - first) * (width - LEFT - RIGHT)
        down = TOP + (top - y) / (top - bottom) * (height - TOP - BOTTOM)
        return f"{across:.1f},{down:.1f}"

    parts = [_axes((first, last), (bottom, top), x_label, y_label, size)]
    for number, each in enumerate(series):
        if not each.x:
            continue
        style = _style(number, colours)
        if list(each.low) != list(each.high):
            edge = [place(x, y) for x, y in zip(each.x, each.high, strict=True)]
            edge += [place(x, y) for x, y in zip(reversed(each.x), list(each.low)[::-1], strict=True)]
            parts.append(f'<polygon class="band {style}" points="{" ".join(edge)}"/>')
        points = " ".join(place(x, y) for x, y in zip(each.x, each.y, strict=True))
        parts.append(f'<polyline class="line {style}" points="{points}"/>')
    label = escape(title or f"{y_label} against {x_label}", quote=True)
    svg = f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{label}">{"".join(parts)}</svg>'
    heading = f"<figcaption>{_breakable(title)}</figcaption>" if title else ""
    return Markup(f"<figure>{heading}{svg}</figure>")


class Dots(NamedTuple):
    """A row of trainings: their values, the mean, its interval, and the number that a paper prints, where known."""

    name: str
    values: Sequence[float]
    mean: float | None
    interval: tuple[float, float] | None
    paper: float | None


def dots(rows: Sequence[Dots], unit: str, measure: str) -> Markup:
    """A dot for each training in a line for each row; below it the mean with its interval, a bar where the paper is.

    Empty without any training. A number of the paper that is far above ours is written at the end of the axis.
    """
    values = [value for row in rows for value in (*row.values, *(row.interval or ()))]
    if not values:
        return Markup("")
    low, high = _ends([max(0.0, value) for value in values])
    papers = [row.paper for row in rows if row.paper is not None and row.paper <= FARTHEST_PAPER * high]
    low, high = _ends([low, high, *papers])
    left = 8 + max(6 * len(row.name) for row in rows)
    width, height = left + 400 + RIGHT, TOP + DOTS_ROW * len(rows) + BOTTOM

    def place(value: float) -> float:
        return left + (min(max(value, low), high) - low) / (high - low) * 400

    floor = height - BOTTOM
    parts = []
    for tick in ticks(low, high):
        parts.append(f'<line class="grid" x1="{place(tick):.1f}" x2="{place(tick):.1f}" y1="{TOP}" y2="{floor}"/>')
        parts.append(f'<text class="middle" x="{place(tick):.1f}" y="{floor + 14}">{short(tick)}</text>')
    for number, row in enumerate(rows):
        middle = TOP + DOTS_ROW * (number + 0.5)
        parts.append(f'<text class="end" x="{left - 8}" y="{middle + 3}">{escape(row.name)}</text>')
        if row.paper is not None and row.paper > high:
            parts.append(f'<text class="end" x="{left + 400}" y="{middle + 3}">paper: {row.paper:.1f} →</text>')
        elif row.paper is not None:
            x = place(row.paper)
            parts.append(f'<line class="paper" x1="{x:.1f}" x2="{x:.1f}" y1="{middle - 9}" y2="{middle + 9}"/>')
        if row.interval is not None:
            ends = [place(each) for each in row.interval]
            parts.append(
                f'<line class="line s0" x1="{ends[0]:.1f}" x2="{ends[1]:.1f}" y1="{middle + 6}" y2="{middle + 6}"/>'
            )
        if row.mean is not None:
            parts.append(f'<circle class="mean" cx="{place(row.mean):.1f}" cy="{middle + 6}" r="3"/>')
        parts += [f'<circle class="dot" cx="{place(value):.1f}" cy="{middle - 3}" r="3"/>' for value in row.values]
    parts.append(f'<line class="axis" x1="{left}" x2="{left + 400}" y1="{floor}" y2="{floor}"/>')
    parts.append(f'<text class="middle" x="{left + 200}" y="{height - 6}">{escape(unit)}</text>')
    label = escape(f"{unit} of every training", quote=True)
    caption = "Dots are trainings; below them their mean and its 95 % interval."
    if papers:
        caption += f" Upright lines are the paper's numbers ({measure}), on its own corpus."
    svg = f'<svg class="dots" viewBox="0 0 {width} {height}" role="img" aria-label="{label}">{"".join(parts)}</svg>'
    return Markup(f'<figure>{svg}<p class="soft">{caption}</p></figure>')


def legend(names: Sequence[str]) -> Markup:
    """A list of the series' names with their colours and dashes."""
    keys = (f'<li><i class="key {_style(number)}"></i>{escape(name)}</li>' for number, name in enumerate(names))
    return Markup(f'<ul class="legend">{"".join(keys)}</ul>')


def _style(number: int, colours: Sequence[int] = tuple(range(COLOURS))) -> str:
    """The classes of a series: its colour, and that its line is dashed once all colours are taken."""
    again, index = divmod(number, len(colours))
    return f"s{colours[index]} dashed" if again else f"s{colours[index]}"


def heat_map(
    weights: Any,
    symbols: Sequence[str],
    seconds: float,
    title: str,
    caption: str,
    intervals: Sequence[tuple[float, float]] = (),
) -> Markup:
    """Attention weights [tokens, states] as SVG: a row for each token from the top, time along x.

    `intervals` are the true start and end of the first tokens in seconds, drawn as outlines, where they are known.
    """
    values = np.asarray(weights, dtype=float)
    tokens = len(values)
    row = 14 if tokens <= 40 else 8
    left, height = 54, tokens * row
    width = 420
    picture = (
        f'<image x="{left}" y="0" width="{width}" height="{height}" preserveAspectRatio="none" href="{png(values)}"/>'
    )
    every = max(1, math.ceil(9 / row))
    rows = "".join(
        f'<text x="{left - 6}" y="{(index + 0.5) * row + 3:.1f}" class="end">{escape(shown(symbol))}</text>'
        for index, symbol in enumerate(symbols)
        if index % every == 0
    )
    times = "".join(
        f'<text x="{left + width * time / seconds:.1f}" y="{height + 13}" class="middle">{time:g}</text>'
        for time in ticks(0.0, seconds)
    )
    outlines = "".join(
        f'<rect class="true" x="{left + width * start / seconds:.1f}" y="{index * row}" '
        f'width="{width * (end - start) / seconds:.1f}" height="{row}"/>'
        for index, (start, end) in enumerate(intervals)
    )
    label = f'<text x="{left + width / 2}" y="{height + 27}" class="middle">seconds</text>'
    return Markup(
        f"<figure><figcaption>{escape(title)}</figcaption>"
        f'<svg class="heat" viewBox="0 0 {left + width + 8} {height + 32}" role="img" '
        f'aria-label="{escape(f"attention: {title}", quote=True)}">{picture}{outlines}{rows}{times}{label}</svg>'
        f'<p class="soft">{escape(caption)}</p></figure>'
    )


def png(weights: Any) -> str:
    """A matrix as a PNG in a data URI, one pixel for each value, brightest at the largest."""
    matrix = np.asarray(weights, dtype=float)
    largest = matrix.max() if matrix.size and matrix.max() > 0 else 1.0
    levels = np.clip(np.round(255 * matrix / largest), 0, 255).astype(np.uint8)
    shares = np.linspace(0, len(HEAT) - 1, 256)
    palette = np.stack([np.interp(shares, range(len(HEAT)), [c[i] for c in HEAT]) for i in range(3)], axis=1)
    picture = Image.frombytes("P", (matrix.shape[1], matrix.shape[0]), levels.tobytes())
    picture.putpalette(palette.round().astype(np.uint8).tobytes())
    file = io.BytesIO()
    picture.save(file, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def ticks(low: float, high: float, limit: int = 6) -> list[float]:
    """Round numbers within a range, about `limit` of them."""
    span = (high - low) / limit
    step = 10.0 ** math.floor(math.log10(span)) if span > 0 else 1.0
    step *= next(factor for factor in (1, 2, 5, 10) if step * factor >= span)
    first = math.ceil(low / step - 1e-9)
    return [round(index * step, 10) for index in range(first, math.floor(high / step + 1e-9) + 1)]


def short(number: float) -> str:
    """A number beside an axis, where there is room for five characters: 30k for 30,000."""
    for at_least, size, letter in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if abs(number) >= at_least:
            return f"{number / size:g}{letter}"
    return f"{number:g}"


def _breakable(title: str) -> str:
    """HTML of a title, in which long names of parameters may be broken after dots and underscores."""
    return re.sub(r"(?<=[._])", "<wbr>", escape(title))


def _ends(values: Sequence[float]) -> tuple[float, float]:
    """A range with a little room; from zero where everything is near it."""
    low, high = min(values), max(values)
    room = 0.05 * (high - low) or 0.5 * abs(high) or 1.0
    low = 0.0 if 0 <= low < 0.5 * high else low - room
    return low, high + room


def _axes(
    x_ends: tuple[float, float], y_ends: tuple[float, float], x_label: str, y_label: str, size: tuple[int, int]
) -> str:
    width, height = size
    right, floor = width - RIGHT, height - BOTTOM
    parts = []
    for tick in ticks(*y_ends):
        y = TOP + (y_ends[1] - tick) / (y_ends[1] - y_ends[0]) * (floor - TOP)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="end" x="{LEFT - 6}" y="{y + 3:.1f}">{short(tick)}</text>')
    for tick in ticks(*x_ends):
        x = LEFT + (tick - x_ends[0]) / (x_ends[1] - x_ends[0]) * (right - LEFT)
        parts.append(f'<text class="middle" x="{x:.1f}" y="{floor + 14}">{short(tick)}</text>')
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{right}" y1="{floor}" y2="{floor}"/>')
    parts.append(f'<text class="middle" x="{(LEFT + right) / 2}" y="{height - 6}">{escape(x_label)}</text>')
    middle = (TOP + floor) / 2
    parts.append(
        f'<text class="middle" transform="rotate(-90 11 {middle})" x="11" y="{middle + 3}">{escape(y_label)}</text>'
    )
    return "".join(parts)


def shown(symbol: str) -> str:
    """The label of a symbol: itself, or `(space)`."""
    return "(space)" if symbol.isspace() else symbol
