"""A recipe's report as one HTML file without network or scripts, for light and dark, wide and narrow screens."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from markupsafe import Markup

from las.nn.attention import diagnostics
from las.reproduction import charts, claims, learning_curves, markdown, tables
from las.reproduction.charts import Dots
from las.reproduction.excerpts import DISTRIBUTIONS_LIMIT, LIMIT, Distribution, Excerpt, RowExample
from las.reproduction.learning_curves import Points, Series
from las.reproduction.recipe import Recipe
from las.reproduction.results import Outcome, Table
from las.reproduction.statistics import Summary
from las.reproduction.verdicts import NOT_SUPPORTED, SUPPORTED, TOO_SMALL, UNDECIDED, WITHDRAWN, Verdict
from las.runtime import templates
from las.scoring import error_rates

CLASSES = {SUPPORTED: "good", NOT_SUPPORTED: "bad", TOO_SMALL: "bad", UNDECIDED: "open", WITHDRAWN: "open"}
"""CSS class of each verdict."""
SMALL = (2.8, 1.8)
CURVES = {
    "dev_loss": ("Validation loss", "nats per target"),
    "dev_error": ("Validation {metric}", "dev {metric} in %"),
    "loss": ("Training loss", "smoothed nats per target"),
    "gradient_norm": ("Norm of the gradient", "log10 of the norm before clipping"),
    "loss_range": ("Loss along the gradient", "range"),
    "beta": ("Effective beta", "in weights' norms"),
}
"""Titles and units of curves by name: the first two come with the trainings, the others with the excerpt."""


class Diagnostic(NamedTuple):
    """The heading and the explanation of a measure that trainings record."""

    heading: str
    explanation: str


OF_ATTENTION = f"Measures of attention are at the best step: {diagnostics.LEGEND}."
DIAGNOSTICS = {
    "loss_change": Diagnostic(
        "change of the loss per update", "Change: of the training loss from one update to the next, relative to it."
    ),
    "weight_drift": Diagnostic(
        "drift of weights", "Drift: of the weights' deciles from one validation to the next, in standard deviations."
    ),
    **{measure: Diagnostic(measure, OF_ATTENTION) for measure in ("diagonality", "entropy", "coverage")},
}
"""Measures of the trainings of a row, in the order of their columns."""


def page(recipe: Recipe, table: Table, verdicts: Mapping[str, Verdict], audio: str = "") -> str:
    """Return the page of a recipe, of its table alone; `audio` is a data URI of the example, or empty."""
    excerpt = table.excerpt or Excerpt({}, None, {})
    dots, unit, measure = trainings(recipe, table)
    return templates.render(
        "report.html",
        title=recipe.title,
        recipe=recipe,
        table=table,
        tier=markdown.TIER_WORDS[table.tier],
        missing=charts.missing(),
        results=(tables.headings(recipe, table), tables.rows(recipe, table)),
        notes=tables.notes(recipe),
        figures=[charts.dots(dots, unit, measure), charts.against_time(dots, unit)],
        rates=tables.rates(table),
        assumptions=tables.assumptions(recipe, table),
        diverged=[(line.label, outcome) for line in table.lines for outcome in line.outcomes if outcome.broken],
        explanation=markdown.explanation(recipe, table),
        verdicts=_verdicts(verdicts),
        curves=_curves(table, excerpt),
        example=excerpt.example,
        audio=audio,
        heat_maps=_heat_maps(excerpt),
        distributions=_distributions(excerpt),
    )


def _verdicts(verdicts: Mapping[str, Verdict]) -> list[tuple[str, str, Verdict, str]]:
    """Each claim with its sentence, its verdict, and the CSS class of the verdict."""
    sentences = {claim.id: claim.sentence for claim in claims.CLAIMS}
    return [(name, sentences[name], verdict, CLASSES[verdict.verdict]) for name, verdict in verdicts.items()]


def trainings(recipe: Recipe, table: Table) -> tuple[list[Dots], str, str]:
    """Return a dot for each training of each row, with mean, interval, the paper's number and milliseconds per update;
    the unit; its measure.
    """
    key = tables.paper_key(recipe, table.metric)
    paper = {row.label: row.paper.get(key) for row in recipe.rows}
    rows = []
    for line in table.lines:
        summary, speed = line.summary("test"), line.summary("update_ms")
        printed = paper.get(line.label)
        rows.append(
            Dots(
                line.label,
                [100 * value for value in line.values("test")],
                None if summary is None else 100 * summary.mean,
                _percent(summary),
                100 * printed if isinstance(printed, float) else None,
                None if speed is None else speed.mean,
            )
        )
    return rows, f"test {error_rates.SHORT_NAMES[table.metric]} in %", error_rates.SHORT_NAMES[key]


def _percent(summary: Summary | None) -> tuple[float, float] | None:
    """Return the interval of a mean, in percent."""
    if summary is None or summary.interval is None:
        return None
    low, high = summary.interval
    return 100 * low, 100 * high


def _curves(table: Table, excerpt: Excerpt) -> dict[str, Any]:
    """Learning curves with bands from lowest to highest seed, and a table of diagnostics; empty without curves."""
    metric, figures, names = error_rates.SHORT_NAMES[table.metric], [], dict[str, None]()
    drawn = {name: _series(name, table, excerpt) for name in CURVES}
    for line in table.lines:
        if any(each.name == line.label and each.x for lines in drawn.values() for each in lines):
            names[line.label] = None
    labels = list(names)[:LIMIT]
    for name, (title, unit) in CURVES.items():
        lines = [each for each in drawn[name] if each.name in labels]
        figures.append(charts.chart(lines, "step", unit.format(metric=metric), title.format(metric=metric)))
    return names and {
        "legend": charts.legend(labels),
        "figures": figures,
        "highest": learning_curves.HIGHEST_PERCENT,
        "diagnostics": _diagnostics(table),
    }


def _series(name: str, table: Table, excerpt: Excerpt) -> list[Series]:
    """Return the curves of all rows, in their order, empty where a row has none."""
    stored = {each.name: each for each in excerpt.curves.get(name, ())}
    found = []
    for line in table.lines:
        if name in ("dev_loss", "dev_error") and any(each.curve for each in line.outcomes):
            found.append(learning_curves.series(line.label, line.outcomes, _validations(name)))
        else:
            found.append(stored.get(line.label, Series(line.label, [], [], [], [])))
    return found


def _validations(name: str) -> Callable[[Outcome], Points]:
    """One value of each validation of a training: the loss, or the error in percent as it is drawn."""

    def read(outcome: Outcome) -> Points:
        if outcome.curve is None:
            return {}
        values: tuple[float, ...] = getattr(outcome.curve, name)
        drawn = map(learning_curves.drawn_rate, values) if name == "dev_error" else values
        return dict(zip(outcome.curve.steps, drawn, strict=True))

    return read


def _diagnostics(table: Table) -> tuple[list[str], list[list[str]], str]:
    """Headings, a line for each row with trainings (the mean of each measure over them), and what the measures are.

    A measure that no training recorded has no column.
    """
    lines = [line for line in table.lines if line.outcomes][:LIMIT]
    measures = [measure for measure in DIAGNOSTICS if any(line.summary(measure) for line in lines)]
    cells = []
    for line in lines:
        summaries = [line.summary(measure) for measure in measures]
        cells.append([line.label, *("" if each is None else f"{each.mean:.3f}" for each in summaries)])
    explained = dict.fromkeys(DIAGNOSTICS[measure].explanation for measure in measures)
    return ["row", *(DIAGNOSTICS[measure].heading for measure in measures)], cells, " ".join(explained)


def _heat_maps(excerpt: Excerpt) -> list[Markup]:
    """Return the teacher-forced attention of each row that has one, with true times where each token has one."""
    example = excerpt.example
    if example is None:
        return []

    def drawn(row: RowExample) -> Markup:
        numbers = ", ".join(f"{name} {row.numbers[name]:.2f}" for name in ("entropy", "diagonality", "coverage"))
        times = example.intervals if len(example.intervals) == len(row.symbols) - 1 else ()
        return charts.heat_map(row.levels(), row.symbols, example.duration_s, row.label, numbers, times)

    return [drawn(row) for row in example.rows[:LIMIT] if row.symbols]


def _distributions(excerpt: Excerpt) -> list[tuple[str, list[Markup]]]:
    """Distributions of parameters over training, for the first seed of the first rows."""
    found = list(excerpt.distributions.items())[:DISTRIBUTIONS_LIMIT]
    return [(label, [_ridge(name, each) for name, each in parameters.items()]) for label, parameters in found]


def _ridge(name: str, found: Distribution) -> Markup:
    """Return a chart of one parameter's quantiles over steps."""
    lowest, low, middle, high, highest = found.quantiles
    bands = [Series("", found.steps, middle, *ends) for ends in ((lowest, highest), (low, high))]
    return charts.chart(bands, "step", "value", name, SMALL)
