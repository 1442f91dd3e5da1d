"""Trainings of stored tables, judged by the rules of their release and by today's: Markdown on the screen.

    python docs/made_by/rejudge_results.py z20_end_to_end-open-synthetic z20_variance-open-synthetic

Tables of earlier releases hold numbers and no curves; the pages beside them draw each row's mean dev error, which is
read from there to a twentieth of a point. The chance level is computed from the texts of the corpus, which is prepared.
"""

import re
import sys
from pathlib import Path
from typing import Any

from las.reproduction import recipe, results
from las.reproduction.convergence import Curve
from las.reproduction.results import Line, Table
from las.runtime import config
from las.scoring import error_rates
from las.training import chance, data_preparation

HEADINGS = (
    *("row", "trainings", "broken: then", "now", "step of the best", "first step at the common error, mean curve"),
    *("late gain of the mean curve", "converged: now"),
)


def mean_curves(page: str, table: Table) -> dict[str, Curve]:
    """The mean dev error of each row with trainings, read from the chart of a page."""
    name = error_rates.SHORT_NAMES[table.metric]
    svg = page.partition(f"<figcaption>Validation {name}</figcaption>")[2].partition("</svg>")[0]
    grid = re.findall(r'class="grid" [^>]*y1="([\d.]+)"[^>]*/><text[^>]*>([\d.]+)</text>', svg)
    ticks = re.findall(r'<text class="middle" x="([\d.]+)" y="\d+">([\d,.]+)</text>', svg)
    down, across = _scale(grid), _scale(ticks)
    rows = [line.name for line in table.lines if line.outcomes]
    curves = {}
    for number, points in re.findall(r'<polyline class="line s(\d)" points="([^"]+)"', svg):
        pairs = [tuple(map(float, point.split(","))) for point in points.split()]
        steps = tuple(round(across(x)) for x, _ in pairs)
        errors = tuple(down(y) / 100 for _, y in pairs)
        curves[rows[int(number)]] = Curve(steps, tuple(map(float, steps)), errors, errors)
    return curves


def _scale(ticks: list[tuple[str, str]]) -> Any:
    """The value at a place of an axis, from the places and labels of its first and last tick."""
    numbers = [(float(place), float(label.replace(",", ""))) for place, label in ticks]
    (start, low), (end, high) = numbers[0], numbers[-1]
    return lambda place: low + (place - start) / (end - start) * (high - low)


def chance_error(corpus_name: str, overrides: list[str]) -> float:
    """The dev error of a recogniser that does not hear, on the corpus of a table."""
    values = config.compose("train", [f"corpus={corpus_name}", *overrides])
    corpus = config.build(values["corpus"], where="corpus")
    splits = data_preparation.prepared(corpus, values["data_dir"])
    return chance.chance_level(corpus, splits[corpus.splits[0]], splits[corpus.splits[1]]).error


def cells(line: Line, level: float, curve: Curve, common: float) -> list[str]:
    """The row of one line; what is known of the dev error of a training is that of its best checkpoint."""
    deaf = sum(outcome.values.get("dev", 0.0) >= level for outcome in line.sound)
    then = len(line.outcomes) - len(line.sound)
    index, gain = curve.first(common), curve.late_gain("dev_error")
    known = [outcome.converged for outcome in line.sound]
    return [
        *(line.name, str(len(line.outcomes)), str(then), str(then + deaf)),
        ", ".join(f"{step:.0f}" for step in line.values("steps_to_converge")),
        "never" if index is None else str(curve.steps[index]),
        "" if gain is None else f"{100 * gain:.1f} %",
        f"{known.count(True)} yes, {known.count(None)} not known",
    ]


def judge(stem: str, overrides: list[str]) -> None:
    """Print the rows of a table, as they were judged and as they are."""
    folder = recipe.directory() / "results"
    table = results.read(folder / f"{stem}.json")
    curves = mean_curves((folder / f"{stem}.html").read_text(encoding="utf-8"), table)
    level = chance_error(table.corpus, overrides)
    hearing = [curve for curve in curves.values() if min(curve.dev_error) < level]
    common = max(min(curve.dev_error) for curve in hearing) + 5e-4  # the resolution of the page
    name = error_rates.SHORT_NAMES[table.metric]
    print(f"`{stem}`: dev {name} without hearing {100 * level:.1f} %; common dev {name} {100 * common:.1f} %\n")
    print(f"| {' | '.join(HEADINGS)} |\n|{'---|' * len(HEADINGS)}")
    for line in table.lines:
        if line.name in curves:
            print(f"| {' | '.join(cells(line, level, curves[line.name], common))} |")
    print()


if __name__ == "__main__":
    given = sys.argv[1:]
    for each in [each for each in given if "=" not in each]:
        judge(Path(each).stem, [override for override in given if "=" in override])
