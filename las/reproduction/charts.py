"""Pictures of pages, drawn by matplotlib as SVG: curves with bands, a dot for every training, heat maps of attention.

Each is a figure of HTML that loads nothing, in colours that are legible on light and on dark pages. Without matplotlib
it is empty, and the page says what to install (`missing`).
"""

import base64
import io
import threading
from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from las.reproduction.learning_curves import Series
from las.training import plots

COLOURS = ("#1f77b4", "#d95f02", "#2ca02c", "#9467bd", "#17a0b0", "#e04b8f", "#a6761d", "#7f7f7f")
"""Colours of series, and the same again dashed where there are more."""
GREY, SMALL = "#7a838e", 7
"""Colour of axes and words, and the size of letters in points."""
AGAINST_TIME = (
    "Means with their 95 % intervals. Times are those of the fastest stretch between validations of each training."
)
"""The caption of a figure of errors against times."""
FARTHEST_PAPER = 2.2
"""A paper's number is in reach of an axis up to so many times the highest of ours."""
_saving = threading.Lock()
"""Held while settings of matplotlib, which are global, are changed."""


def missing() -> str:
    """Sentence of a page without pictures, which names what to install; empty with matplotlib."""
    return "" if plots.available() else plots.MISSING


def chart(
    series: Sequence[Series], x_label: str, y_label: str, title: str = "", size: tuple[float, float] = (4.4, 2.4)
) -> Markup:
    """Lines with bands over common axes; empty where there are no points.

    Args:
        series: the lines, each with its band; without a name all have one colour.
        x_label: below the x axis.
        y_label: next to the y axis.
        title: shown above, and read out by screen readers.
        size: width and height in inches.
    """
    if missing() or not any(each.x for each in series):
        return Markup("")
    figure, axes = _axes(size, x_label, y_label)
    for number, each in enumerate(series):
        dashed, index = divmod(number if each.name else 0, len(COLOURS))
        axes.plot(each.x, each.y, color=COLOURS[index], linestyle="--" if dashed else "-", linewidth=1.2)
        if list(each.low) != list(each.high):
            axes.fill_between(each.x, each.low, each.high, color=COLOURS[index], alpha=0.18, linewidth=0)
    axes.grid(color=GREY, alpha=0.25, linewidth=0.5)
    return _markup(figure, title or f"{y_label} against {x_label}", caption=title)


def legend(names: Sequence[str]) -> Markup:
    """Return a list of the series' names with their colours and dashes."""
    keys = [
        f'<li><i class="key{" dashed" if number >= len(COLOURS) else ""}" '
        f'style="background: {COLOURS[number % len(COLOURS)]}"></i>{escape(name)}</li>'
        for number, name in enumerate(names)
    ]
    return Markup(f'<ul class="legend">{"".join(keys)}</ul>')


class Dots(NamedTuple):
    """A row of trainings: their values, the mean, its interval, the number that a paper prints, where known, and
    milliseconds per update, where they were measured."""

    name: str
    values: Sequence[float]
    mean: float | None
    interval: tuple[float, float] | None
    paper: float | None
    update_ms: float | None = None


def dots(rows: Sequence[Dots], unit: str, measure: str) -> Markup:
    """Return a dot for each training in a line for each row; below it the mean with its interval, a bar where the paper
    is.

    Empty without any training. A number of the paper that is far above ours is written at the end of the axis.
    """
    figure = None if missing() else dots_figure(rows, unit)
    note = dots_note(rows, measure)
    return Markup("") if figure is None else _markup(figure, f"{unit} of every training", note=note, css="dots")


def dots_figure(rows: Sequence[Dots], unit: str) -> Any:
    """Draw such rows; None without any training."""
    high = _highest(rows)
    if high is None:
        return None
    figure, axes = _axes((6.2, 0.6 + 0.26 * len(rows)), unit, "")
    for place, row in enumerate(rows):
        axes.plot(row.values, [place - 0.12] * len(row.values), "o", mfc="none", color=COLOURS[0], markersize=4)
        if row.interval is not None:
            axes.hlines(place + 0.22, max(0.0, row.interval[0]), row.interval[1], color=COLOURS[1], linewidth=1.4)
        if row.mean is not None:
            axes.plot([row.mean], [place + 0.22], "o", color=COLOURS[1], markersize=4)
        if row.paper is not None and row.paper <= FARTHEST_PAPER * high:
            axes.vlines(row.paper, place - 0.35, place + 0.35, color=GREY, linewidth=2)
        elif row.paper is not None:
            where = axes.get_yaxis_transform()
            axes.margins(x=0.2)  # the words stand clear of the dots
            axes.text(0.99, place, f"paper: {row.paper:.1f} →", transform=where, ha="right", va="center", **_letters())
    axes.set_yticks(range(len(rows)), [row.name for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.grid(axis="x", color=GREY, alpha=0.25, linewidth=0.5)
    return figure


def dots_note(rows: Sequence[Dots], measure: str) -> str:
    """Return the caption of such a figure."""
    caption, high = "Dots are trainings; below them their mean and its 95 % interval.", _highest(rows)
    if high is not None and any(row.paper is not None and row.paper <= FARTHEST_PAPER * high for row in rows):
        caption += f" Upright lines are the paper's numbers ({measure}), on its own corpus."
    return caption


def _highest(rows: Sequence[Dots]) -> float | None:
    """Return the highest value or end of an interval; None without any training."""
    return max((value for row in rows for value in (*row.values, *(row.interval or ()))), default=None)


def against_time(rows: Sequence[Dots], unit: str) -> Markup:
    """Return the mean of each row with its interval over its milliseconds per update; empty for fewer than two rows."""
    figure = None if missing() else against_time_figure(rows, unit)
    title = f"{unit} against milliseconds per update"
    return Markup("") if figure is None else _markup(figure, title, note=AGAINST_TIME, css="dots")


def against_time_figure(rows: Sequence[Dots], unit: str) -> Any:
    """Draw such means; None for fewer than two rows whose time was measured."""
    timed = [row for row in rows if row.mean is not None and row.update_ms is not None]
    if len(timed) < 2:
        return None
    figure, axes = _axes((6.2, 3.2), "milliseconds per update", unit)
    for number, row in enumerate(timed):
        colour = COLOURS[number % len(COLOURS)]
        axes.plot([row.update_ms], [row.mean], "o", color=colour, markersize=4)
        if row.interval is not None:
            axes.vlines(row.update_ms, max(0.0, row.interval[0]), row.interval[1], color=colour, linewidth=1.2)
        place = (row.update_ms, row.mean)
        axes.annotate(row.name, place, (4, 2), textcoords="offset points", **_letters() | {"color": colour})
    axes.margins(x=0.2)  # names stand to the right of their dots
    axes.grid(color=GREY, alpha=0.25, linewidth=0.5)
    return figure


def heat_map(
    weights: Any,
    symbols: Sequence[str],
    seconds: float,
    title: str,
    caption: str = "",
    intervals: Sequence[tuple[float, float]] = (),
) -> Markup:
    """Attention weights [tokens, states]: a row for each token from the top, time along x.

    `intervals` are the true start and end of the first tokens in seconds, drawn as outlines, where they are known.
    """
    if missing():
        return Markup("")
    figure, axes = _axes((4.4, 0.6 + len(symbols) * (0.13 if len(symbols) <= 40 else 0.09)), "seconds", "")
    plots.draw_attention(axes, np.asarray(weights, dtype=float), symbols, seconds, intervals)
    axes.tick_params("y", labelsize=SMALL if len(symbols) <= 40 else 5, length=0)
    return _markup(figure, f"attention: {title}", caption=title, note=caption, css="heat")


def svg(figure: Any) -> str:
    """Return a figure as SVG whose words stay words, the same for the same numbers."""
    from matplotlib import rc_context

    file = io.StringIO()
    with _saving, rc_context({"svg.fonttype": "none", "svg.hashsalt": "las"}):
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return file.getvalue()


def _axes(size: tuple[float, float], x_label: str, y_label: str) -> tuple[Any, Any]:
    """Return an empty figure and its axes, in grey."""
    figure = plots.blank_figure(*size)
    return figure, in_grey(figure.add_subplot(), x_label, y_label)


def in_grey(axes: Any, x_label: str, y_label: str) -> Any:
    """Return matplotlib's axes with labels, all of it in grey and small."""
    axes.set_xlabel(x_label, **_letters())
    axes.set_ylabel(y_label, **_letters())
    axes.tick_params(colors=GREY, labelsize=SMALL)
    axes.spines[:].set_color(GREY)
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def _letters() -> dict[str, Any]:
    return {"fontsize": SMALL, "color": GREY}


def _markup(figure: Any, label: str, caption: str = "", note: str = "", css: str = "") -> Markup:
    """Return a figure of HTML that holds the picture, with a `caption` above it and a `note` below it."""
    source = base64.b64encode(svg(figure).encode()).decode()
    image = f'<img class="{css}" alt="{escape(label, quote=True)}" src="data:image/svg+xml;base64,{source}">'
    above = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    below = f'<p class="soft">{escape(note)}</p>' if note else ""
    return Markup(f"<figure>{above}{image}{below}</figure>")
