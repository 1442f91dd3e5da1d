"""A recipe's report as one HTML file without network or scripts, for light and dark, wide and narrow screens."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup

from las.nn.attention import diagnostics
from las.reproduction import charts, claims, examples, learning_curves, markdown, tables, weight_histograms
from las.reproduction.charts import Series
from las.reproduction.examples import DecodedExample
from las.reproduction.jobs import Job
from las.reproduction.recipe import Recipe
from las.reproduction.results import Table
from las.reproduction.statistics import Summary
from las.reproduction.verdicts import NOT_SUPPORTED, SUPPORTED, UNDECIDED, Verdict
from las.reproduction.weight_histograms import SHARES, Distribution
from las.runtime import templates
from las.scoring import error_rates

CLASSES = {SUPPORTED: "good", NOT_SUPPORTED: "bad", UNDECIDED: "open"}
"""CSS class of each verdict."""
LIMIT, DISTRIBUTIONS_LIMIT = 16, 4
"""Rows whose curves and attention are drawn, and rows whose distributions are."""
SMALL = (320, 200)


class Diagnostic(NamedTuple):
    """The heading and the explanation of a measure that trainings record."""

    heading: str
    explanation: str


OF_ATTENTION = f"Measures of attention are at the best step: {diagnostics.LEGEND}."
DIAGNOSTICS = {
    "loss_change": Diagnostic(
        "change of the loss per update",
        "Change: of the training loss from one update to the next, relative to it.",
    ),
    "weight_drift": Diagnostic(
        "drift of weights",
        "Drift: of the weights' deciles from one validation to the next, in standard deviations.",
    ),
    **{measure: Diagnostic(measure, OF_ATTENTION) for measure in ("diagonality", "entropy", "coverage")},
}
"""Measures of the trainings of a row, in the order of their columns."""


def page(
    recipe: Recipe, table: Table, jobs: Sequence[Job], verdicts: Mapping[str, Verdict], before: Sequence[Path] = ()
) -> str:
    """The page of a recipe. Audio is part of it unless the corpus is the paper's, which may be licensed.

    What needs run folders is taken over from the first page `before` where no training of them is there any more.
    """
    order = {row.name: number for number, row in enumerate(recipe.rows)}
    finished = sorted((job for job in jobs if job.result is not None), key=lambda job: order[job.row.name])
    example = examples.example(finished, table.tier != "paper")
    taken_over = Markup("") if finished else _sections_of_runs(before)
    curves = {} if "<h2>Training</h2>" in taken_over else _curves(table, finished)
    rows = [] if example is None else example.rows[:LIMIT]
    return templates.render(
        "report.html",
        title=recipe.title,
        recipe=recipe,
        table=table,
        tier=markdown.TIER_WORDS[table.tier],
        results=(tables.headings(recipe, table), tables.rows(recipe, table)),
        notes=tables.notes(recipe),
        figure=trainings(recipe, table),
        rates=tables.rates(table),
        assumptions=tables.assumptions(recipe, table),
        diverged=[(line.label, outcome) for line in table.lines for outcome in line.outcomes if outcome.broken],
        explanation=markdown.explanation(recipe, table),
        verdicts=_verdicts(verdicts),
        curves=curves,
        example=example,
        rows=rows,
        heat_maps=[] if example is None else _heat_maps(example),
        distributions=_distributions(finished),
        taken_over=taken_over,
    )


def _sections_of_runs(before: Sequence[Path]) -> Markup:
    """Sections of the first page that are drawn with the folders of its trainings; empty without one."""
    page = before[0].read_text("utf-8") if before else ""
    parts = re.findall(
        r"<section><h2>(?:Training|Attention on|Texts of|Distributions of).*?</section>", page, re.DOTALL
    )
    return Markup("\n").join(Markup(part) for part in parts)


def _verdicts(verdicts: Mapping[str, Verdict]) -> list[tuple[str, str, Verdict, str]]:
    """Each claim with its sentence, its verdict, and the CSS class of the verdict."""
    sentences = {claim.id: claim.sentence for claim in claims.CLAIMS}
    return [(name, sentences[name], verdict, CLASSES[verdict.verdict]) for name, verdict in verdicts.items()]


def trainings(recipe: Recipe, table: Table) -> Markup:
    """A dot for each training of each row, the mean with its interval, and the paper's number."""
    key = tables.paper_key(recipe, table.metric)
    paper = {row.label: row.paper.get(key) for row in recipe.rows}
    rows = []
    for line in table.lines:
        summary = line.summary("test")
        printed = paper.get(line.label)
        rows.append(
            charts.Dots(
                line.label,
                [100 * value for value in line.values("test")],
                None if summary is None else 100 * summary.mean,
                _percent(summary),
                100 * printed if isinstance(printed, float) else None,
            )
        )
    return charts.dots(rows, f"test {error_rates.SHORT_NAMES[table.metric]} in %", error_rates.SHORT_NAMES[key])


def _percent(summary: Summary | None) -> tuple[float, float] | None:
    """The interval of a mean, in percent."""
    if summary is None or summary.interval is None:
        return None
    low, high = summary.interval
    return 100 * low, 100 * high


def _by_row(jobs: Sequence[Job]) -> dict[str, list[Job]]:
    rows: dict[str, list[Job]] = {}
    for job in jobs:
        rows.setdefault(job.row.label, []).append(job)
    return dict(list(rows.items())[:LIMIT])


def _curves(table: Table, jobs: Sequence[Job]) -> dict[str, Any]:
    """Learning curves with bands from lowest to highest seed, and a table of diagnostics; empty without curves.

    Those of the dev part are kept with the results; the others need the folders of the jobs.
    """
    outcomes = {line.label: line.outcomes for line in table.lines if any(each.curve for each in line.outcomes)}
    outcomes = dict(list(outcomes.items())[:LIMIT])
    if not outcomes:
        return {}
    by_row = _by_row(jobs)
    metric = error_rates.SHORT_NAMES[table.metric]
    validations = (
        ("Validation loss", "nats per target", "dev_loss"),
        (f"Validation {metric}", f"dev {metric} in %", "dev_error"),
    )
    figures = [
        charts.chart(
            [
                learning_curves.series(label, each, learning_curves.outcome_values(key))
                for label, each in outcomes.items()
            ],
            "step",
            unit,
            title=title,
        )
        for title, unit, key in validations
    ]
    curves = (
        ("Training loss", "smoothed nats per target", learning_curves.update_values("loss")),
        (
            "Norm of the gradient",
            "log10 of the norm before clipping",
            learning_curves.update_values("gradient_norm", learning_curves.log10),
        ),
        ("Loss along the gradient", "range", learning_curves.probe_values(_loss_range)),
        ("Effective beta", "in weights' norms", learning_curves.probe_values(_effective_beta)),
    )
    figures += [
        charts.chart(
            [learning_curves.series(label, by_row.get(label, ()), read) for label in outcomes],
            "step",
            unit,
            title=title,
        )
        for title, unit, read in curves
    ]
    return {
        "legend": charts.legend(list(outcomes)),
        "figures": figures,
        "highest": learning_curves.HIGHEST_PERCENT,
        "diagnostics": _diagnostics(table),
    }


def _loss_range(probe: Mapping[str, Any]) -> float:
    losses: list[float] = probe["gradient"]["losses"]
    return max(losses) - min(losses)


def _effective_beta(probe: Mapping[str, Any]) -> float:
    beta: float = probe["gradient"]["scale_free_beta"]
    return beta


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


def _heat_maps(example: DecodedExample) -> list[Markup]:
    """The teacher-forced attention of each row that has one, with the true times where there is one for each token."""
    times = [(interval.start_s, interval.end_s) for interval in example.utterance.alignment]
    return [
        charts.heat_map(
            attention.weights,
            attention.symbols,
            example.utterance.duration_s,
            label,
            f"entropy {attention.numbers.entropy:.2f}, diagonality {attention.numbers.diagonality:.2f}, "
            f"coverage {attention.numbers.coverage:.2f}",
            times if len(times) == len(attention.symbols) - 1 else [],
        )
        for label, attention in ((row.label, row.attention) for row in example.rows[:LIMIT])
        if attention is not None
    ]


def _distributions(jobs: Sequence[Job]) -> list[tuple[str, list[Markup]]]:
    """Distributions of parameters over training, for the first seed of the first rows."""
    parts = []
    for label, trainings in list(_by_row(jobs).items())[:DISTRIBUTIONS_LIMIT]:
        histograms = weight_histograms.notable(weight_histograms.read(trainings[0].directory / "tensorboard"))
        figures = [_ridge(name, steps) for name, steps in histograms.items() if len(steps) > 1]
        if figures:
            parts.append((label, figures))
    return parts


def _ridge(name: str, steps: Sequence[Distribution]) -> Markup:
    """A chart of one parameter's quantiles over steps."""
    quantiles = {share: [step.quantiles[SHARES.index(share)] for step in steps] for share in SHARES}
    numbers = [float(step.step) for step in steps]
    bands = [
        Series("", numbers, quantiles[0.5], quantiles[low], quantiles[high])
        for low, high in ((0.05, 0.95), (0.25, 0.75))
    ]
    return charts.chart(bands, "step", "value", SMALL, name, colours=[0, 0])
