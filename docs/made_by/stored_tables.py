"""Figures and tables of docs/layer_norm.md and docs/which_cell.md, from the stored results in recipes/results.

    python docs/made_by/stored_tables.py

Each place of a page between `<!-- RECIPE-TIER-CORPUS: begin -->` and `<!-- ...: end -->` gets the table of that name:
a figure (docs/pictures/RECIPE-TIER-CORPUS.svg; `<!-- RECIPE-TIER-CORPUS against time: begin -->` asks for one of errors
against the time of an update), the rows, the difference of each from the row without layer norm above it, or from the
first, and the verdicts. A table that is not whole yet is taken from recipes/results/in_progress, and the page
says so.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from las.reproduction import charts, claims, html_report, judging, markdown, recipe, results, statistics, tables
from las.reproduction.recipe import PAPER, Recipe
from las.reproduction.results import Line, Table
from las.scoring import error_rates
from las.storage import bounded
from las.training import plots

DOCS = Path(__file__).parents[1]
SIGNAL = Path(__file__).with_name("reach.json")
"""What docs/made_by/reach.py found of rows before their first update."""
SIGNAL_PLACE = "signal-before-training"
DRAWN = (
    *("z20_nopre_lstm", "z20_nopre_lstm_scaled", "z20_nopre_joined"),
    *("z20_nopre_global", "z20_nopre_global_gain01"),
)
"""The rows whose signal is drawn beside the dev errors of their first training."""
PAGES, RESULTS = (DOCS / "layer_norm.md", DOCS / "which_cell.md"), DOCS.parent / "recipes" / "results"
CONTROLS = "z20_controls-open-synthetic_hard"
PLACE = re.compile(r"(<!-- (\w+-\w+-\w+)( against time)?: begin -->\n).*?(<!-- \2: end -->)", re.DOTALL)
PREDICTION = re.compile(r"predicted: (\w+) \((.*)\)")
"""The note of a row of which was said before its training whether it learns or breaks, and by what number."""
AGAINST_TIME = (
    "Means with their 95 % intervals. Times of an update were measured in turns in one run on one thread of a CPU "
    "([times](performance/recipe.md))."
)
PLAIN = "no layer norm"
"""Part of the labels of rows that the others are compared with."""
SCALED = "W x"
"""Part of the labels of plain rows that begin at another scale, which are compared with the others if there are any."""


def figure(asked: Recipe, table: Table, against_time: bool) -> tuple[str, str]:
    """The dots of all trainings, or means against times, as SVG for a file of its own, and the image with its caption.

    Both are empty without a training.
    """
    rows, unit, measure = html_report.trainings(asked, table)
    if against_time:
        measured = times()
        rows = [row._replace(update_ms=measured.get(line.name)) for row, line in zip(rows, table.lines, strict=True)]
        drawn = charts.against_time_figure(rows, unit)
        title, note = "Test errors against milliseconds per update", AGAINST_TIME
    else:
        drawn = charts.dots_figure(rows, unit)
        title, note = "Test errors of every training", charts.dots_note(rows, measure)
    if drawn is None:
        return "", ""
    return charts.svg(drawn), f"![{title}](pictures/{table.stem}.svg)\n\n{note}\n\n"


def times() -> dict[str, float]:
    """Milliseconds of an update by the name of a row, as measured by turns without other work on the machine."""
    files = sorted((DOCS / "performance").glob("recipe*.jsonl"))
    return {row["implementation"]: row["total_ms"] for path in files for row in bounded.stored_lines(path)}


def has_paper(asked: Recipe) -> bool:
    """True if a paper has a number of a row, or says what became of it."""
    return any(row.paper for row in asked.rows)


def has_rates(table: Table) -> bool:
    """True if each row has chosen its learning rate from a grid."""
    return any(each.rate is not None for line in table.lines for each in line.outcomes)


def rows(asked: Recipe, table: Table) -> list[list[str]]:
    """The cells of each row: the paper's error, ours, and the difference from the plain row above it."""
    plain, cells = table.lines[0], []
    key = tables.paper_key(asked, table.metric)
    all_scaled = all(SCALED in row.label for row in asked.rows if PLAIN in row.label)
    for row in asked.rows:
        line = table.line(row.name)
        plain = line if PLAIN in row.label and (all_scaled or SCALED not in row.label) else plain
        printed = tables.written(key, row.paper.get(key)) or str(row.paper.get("outcome", ""))
        paper = [printed] if has_paper(asked) else []
        if not line.outcomes:
            cells.append([row.label, *paper, "not trained", "", "", "", *([""] if has_rates(table) else [])])
            continue
        summary = line.summary("test")
        mean = "broken" if summary is None else f"{100 * summary.mean:.1f} % {interval(summary.interval)}".rstrip()
        trained = f"{len(line.sound)}" + ("" if len(line.sound) == len(line.outcomes) else f" of {len(line.outcomes)}")
        rates = [tables.chosen_rates(line)] if has_rates(table) else []
        converged = "" if line.num_converged is None else str(line.num_converged)
        cells.append([row.label, *paper, mean, trained, converged, *rates, difference(line, plain)])
    return cells


def difference(line: Line, plain: Line) -> str:
    """The difference of the means of two rows in points, with Welch's interval; empty for the same row or one seed."""
    ours, theirs = line.values("test"), plain.values("test")
    if line.name == plain.name or min(len(ours), len(theirs)) < 2:
        return ""
    test = statistics.welch(theirs, ours)
    return f"{100 * test.difference:+.1f} {interval(test.interval)}"


def predictions(asked: Recipe, table: Table) -> list[list[str]]:
    """The cells of each row: what was predicted by which number, what came, and the lowest dev errors."""
    cells = []
    for row in asked.rows:
        found, trained = PREDICTION.fullmatch(row.note), table.line(row.name).outcomes
        assert found is not None, row.note
        said, number = found.groups()
        broke = sum(bool(each.broken) for each in trained)
        came = f"{broke} of {len(trained)} broke" if trained else "not trained yet"
        errors = ", ".join(f"{100 * min(each.curve.dev_error):.1f} %" for each in trained if each.curve)
        right = {"learns": broke == 0, "breaks": broke == len(trained)}[said]
        cells.append([row.label, number, said, came, errors, "" if not trained else "yes" if right else "no"])
    return cells


def signal(predicted: Recipe) -> tuple[str, str]:
    """The table of all measured rows but the predicted ones, and the figure of the drawn ones."""
    measured = json.loads(SIGNAL.read_text("utf-8"))
    headings = ["row", "sensitivity", "near", "far", "rms at the top"]
    others = {row.name for row in predicted.rows}
    cells = [
        [
            each["label"],
            digits(each["sensitivity"]),
            percent(each["near"]),
            percent(each["far"]),
            digits(each["rms"][-1]),
        ]
        for each in measured
        if each["row"] not in others
    ]
    table = results.read(stored(CONTROLS))
    rows = [(each, table.line(each["row"])) for each in measured if each["row"] in DRAWN]
    caption = (
        "Before the first update: root mean square of what each layer reads and the last one writes, and where along "
        "time the gradient of a state of the last one lies. Right: dev errors of the first training."
    )
    shown = f"![Signal and dev errors](pictures/{SIGNAL_PLACE}.svg)\n\n{caption}\n"
    lines = [shown, *markdown.table_lines(headings, cells), "", "```", "python docs/made_by/reach.py", "```", ""]
    return "\n".join(lines), charts.svg(drawn_signal(rows))


def drawn_signal(rows: Sequence[tuple[dict[str, Any], Line]]) -> Any:
    """What a layer writes, from where a state of the last one hears, and the dev errors of the first training."""
    figure = plots.blank_figure(9, 2.8)
    by_layer, heard, learned = figure.subplots(1, 3)
    for number, (row, line) in enumerate(rows):
        colour = charts.COLOURS[number]
        by_layer.plot(range(len(row["rms"])), row["rms"], "o-", color=colour, markersize=3, linewidth=1)
        shares = 100 * row["near"], 100 * row["far"]
        heard.barh([number - 0.2, number + 0.2], shares, height=0.35, color=colour, alpha=0.8)
        for curve in [each.curve for each in (*line.outcomes, *line.tried) if each.curve is not None][:1]:
            learned.plot(curve.steps, [100 * min(each, 1.2) for each in curve.dev_error], color=colour, linewidth=1)
    by_layer.set_yscale("log")
    heard.set_yticks(range(len(rows)), [row["label"] for row, _ in rows])
    heard.invert_yaxis()
    labels = (
        ("layer", "rms of its states"),
        ("% of a gradient within 10, beyond 30 frames", ""),
        ("updates", "dev PER, %"),
    )
    for axes, (x_label, y_label) in zip((by_layer, heard, learned), labels, strict=True):
        charts.in_grey(axes, x_label, y_label)
    return figure


def digits(value: float) -> str:
    """Two digits."""
    return f"{float(f'{value:.2g}'):g}"


def percent(share: float) -> str:
    """A share of one in whole percent."""
    return f"{100 * share:.0f} %"


def interval(bounds: Sequence[float] | None) -> str:
    """Two ends in percent."""
    return "" if bounds is None else f"[{100 * bounds[0]:.1f}, {100 * bounds[1]:.1f}]"


def verdicts(table: Table) -> list[list[str]]:
    """The claims that the table answers, as claims.json has them: verdict, Holm's p in its family, and the power."""
    judged = judging.recorded(RESULTS / judging.RECORDS, table.tier, table.corpus)
    sentences = {claim.id: claim.sentence for claim in claims.CLAIMS}
    cells = []
    for name, verdict in judging.of_recipe(judged, table.recipe).items():
        p = "" if verdict.p_adjusted is None else f"{verdict.p_adjusted:.2g}"
        power = "" if verdict.power is None else f"{100 * verdict.power:.0f} %"
        cells.append([name, sentences[name], verdict.answer, p, power])
    return cells


def stored(stem: str) -> Path:
    """The file of a table, that of one in progress first."""
    begun = RESULTS / "in_progress" / f"{stem}.json"
    return begun if begun.exists() else RESULTS / f"{stem}.json"


def section(stem: str, against_time: bool) -> tuple[str, str]:
    """What stands between the marks of a table, and its figure."""
    path = stored(stem)
    table = results.read(path) if path.exists() else None
    if table is None:
        return "Not trained yet.\n", ""
    asked, metric = recipe.read(table.recipe), error_rates.SHORT_NAMES[table.metric]
    command = ["```", table.command, "```", ""]
    if all(PREDICTION.fullmatch(row.note) for row in asked.rows):
        of_rows = ["row", "sensitivity", "predicted", "trained", f"lowest dev {metric}", "as predicted"]
        return "\n".join([*markdown.table_lines(of_rows, predictions(asked, table)), "", *command]), ""
    paper = [f"paper: {PAPER[tables.paper_key(asked, table.metric)].heading}"] if has_paper(asked) else []
    headings = ["row", *paper, f"test {metric}, mean [95 %]", "trainings", "converged"]
    headings += ["learning rate"] if has_rates(table) else []
    plain = PLAIN if any(PLAIN in row.label for row in asked.rows) else asked.rows[0].label
    of_rows = [*headings, f"difference from {plain}, points [95 %]"], rows(asked, table)
    lines = [*markdown.table_lines(*of_rows), ""]
    if judged := verdicts(table):
        of_claims = ["", "claim", "verdict", "p (Holm)", "power for a tenth"]
        lines += [*markdown.table_lines(of_claims, judged), ""]
    lines += command
    note = "In progress: not all of its trainings are finished.\n\n" if path.parent != RESULTS else ""
    svg, shown = figure(asked, table, against_time)
    return note + shown + "\n".join(lines), svg


def made(page: str) -> tuple[str, dict[str, str]]:
    """The page with its tables made anew, and the figures by the names of their files."""
    figures: dict[str, str] = {}

    def replaced(found: re.Match[str]) -> str:
        is_signal = found[2] == SIGNAL_PLACE
        text, svg = signal(recipe.read("z20_predictions")) if is_signal else section(found[2], bool(found[3]))
        if svg:
            figures[f"{found[2]}.svg"] = svg
        return f"{found[1]}\n{text}\n{found[4]}"

    return PLACE.sub(replaced, page), figures


if __name__ == "__main__":
    for page in PAGES:
        text, figures = made(page.read_text(encoding="utf-8"))
        page.write_text(text, encoding="utf-8")
        for name, svg in figures.items():
            (DOCS / "pictures" / name).write_text(svg, encoding="utf-8")
