"""A recipe's report as one HTML file that needs nothing else: no network, no script."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from las import claims
from las.claim_rules import NOT_SUPPORTED, SUPPORTED, UNDECIDED, Verdict
from las.outcomes import Table
from las.plan import Job
from las.recipe import Recipe
from las.reports import charts, curves, distributions, examples, markdown, tables
from las.reports.charts import Series
from las.reports.distributions import SHARES, Distribution
from las.reports.style import STYLE
from las.scoring import error_rates

CLASS_OF = {SUPPORTED: "good", NOT_SUPPORTED: "bad", UNDECIDED: "open"}
FEW, MOST_SHOWN = 4, 12
"""Rows whose distributions are drawn, and rows whose curves and attention are."""
SMALL = (320, 200)


def write(recipe: Recipe, table: Table, jobs: Sequence[Job], verdicts: Mapping[str, Verdict], path: Path) -> None:
    """Write the page of a recipe. Sound is part of it unless the corpus is the paper's, which may be licensed."""
    finished = [job for job in jobs if job.result is not None]
    sections = [
        _table(recipe, table),
        _claims(verdicts),
        _curves(table, finished),
        _examples(finished, table.tier != "paper"),
        _distributions(finished),
        _assumed(recipe),
    ]
    title = escape(recipe.title)
    path.write_text(
        f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>{STYLE}</style></head><body>
<h1>{title}</h1>
<p class="soft">Source of the paper's numbers: {escape(recipe.source)}. Ours: corpus {escape(table.corpus)}, tier
{escape(table.tier)} ({escape(markdown.TIER_WORDS[table.tier])}).</p>
<p><code>{escape(table.command)}</code></p>
{f'<p class="warn">Not run: {escape(recipe.unavailable)}.</p>' if recipe.unavailable else ""}
{"".join(section for section in sections if section)}
</body></html>
""",
        encoding="utf-8",
    )


def _section(heading: str, *content: str) -> str:
    return f"<section><h2>{escape(heading)}</h2>\n" + "\n".join(each for each in content if each) + "</section>\n"


def _rows(headings: Sequence[str], rows: Sequence[Sequence[str]], classes: str = "") -> str:
    """A table of cells that are HTML already."""
    head = "".join(f"<th>{heading}</th>" for heading in headings)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>\n" for row in rows)
    rows_of_it = f"<thead><tr>{head}</tr></thead><tbody>\n{body}</tbody>"
    return f'<div class="wide"><table class="{classes}">{rows_of_it}</table></div>'


def _table(recipe: Recipe, table: Table) -> str:
    cells = [[escape(cell) for cell in row] for row in tables.rows(recipe, table)]
    notes = "".join(f'<p class="soft">{escape(note)}.</p>' for note in tables.notes(recipe))
    explained = f'<p class="soft">{escape(markdown.explanation(recipe, table))}</p>'
    broken = "".join(
        f"<li>{escape(line.label)}, seed {outcome.seed}, step {outcome.steps:,}: {escape(outcome.broken)}</li>"
        for line in table.lines
        for outcome in line.outcomes
        if outcome.broken
    )
    listed = f"<p>Broken trainings, which are results:</p><ul>{broken}</ul>" if broken else ""
    return _section("Results", _rows([*map(escape, tables.headings(recipe, table))], cells), notes, listed, explained)


def _claims(verdicts: Mapping[str, Verdict]) -> str:
    if not verdicts:
        return ""
    sentences = {claim.id: claim.sentence for claim in claims.CLAIMS}
    rows = [
        [
            name,
            escape(sentences[name]),
            f'<span class="{CLASS_OF[found.verdict]}">{found.verdict}</span>',
            escape(found.test),
        ]
        for name, found in verdicts.items()
    ]
    return _section("Claims", _rows(["", "claim", "verdict", "test"], rows, "claims"))


def _by_row(jobs: Sequence[Job]) -> dict[str, list[Job]]:
    found: dict[str, list[Job]] = {}
    for job in jobs:
        found.setdefault(job.row.label, []).append(job)
    return dict(list(found.items())[:MOST_SHOWN])


def _curves(table: Table, jobs: Sequence[Job]) -> str:
    """Validation loss and error, training loss and gradient norm, with a band from the lowest to the highest seed."""
    rows = _by_row(jobs)
    if not rows:
        return ""
    metric = error_rates.SHORT_NAMES[table.metric]
    drawn = (
        ("Validation loss", "nats per token", curves.of_validations("dev_loss")),
        (f"Validation {metric}", f"dev {metric} in %", curves.of_errors),
        ("Training loss", "smoothed nats per token", curves.of_updates("loss")),
        ("Norm of the gradient", "norm before clipping", curves.of_updates("gradient_norm")),
        (
            "Loss along the gradient",
            "range",
            curves.of_looks(lambda look: max(look["gradient"]["losses"]) - min(look["gradient"]["losses"])),
        ),
        ("Effective beta", "in weights' norms", curves.of_looks(lambda look: look["gradient"]["scale_free_beta"])),
    )
    figures = "".join(
        charts.chart([curves.series(label, each, read) for label, each in rows.items()], "step", unit, title=title)
        for title, unit, read in drawn
    )
    shown = [line for line in table.lines if line.outcomes][:MOST_SHOWN]
    measures = ("loss_change", "weight_drift", "diagonality", "entropy", "coverage")
    cells = [
        [
            escape(line.label),
            *("" if (found := line.summary(each)) is None else f"{found.mean:.3f}" for each in measures),
        ]
        for line in shown
    ]
    headings = ["row", "change of the loss per update", "drift of weights", "diagonality", "entropy", "coverage"]
    told = (
        "Means over trainings. Change: of the training loss from one update to the next, relative to it. Drift: of the "
        "weights' deciles from one validation to the next, in standard deviations. Of attention, at the best step."
    )
    band = (
        '<p class="soft">Lines are means over trainings, bands go from the lowest to the highest. An error rate above '
        f"{curves.MOST_PERCENT:g} % is drawn there.</p>"
    )
    return _section(
        "Training",
        charts.legend(list(rows)),
        f'<div class="grid">{figures}</div>',
        band,
        _rows(headings, cells),
        f'<p class="soft">{told}</p>',
    )


def _examples(jobs: Sequence[Job], with_audio: bool) -> str:
    found = examples.example(jobs, with_audio)
    if found is None:
        return ""
    heard = found.heard[:MOST_SHOWN]
    times = [(interval.start_s, interval.end_s) for interval in found.utterance.alignment]
    maps = "".join(
        charts.heat_map(
            each.weights,
            each.symbols,
            found.utterance.duration_s,
            each.label,
            f"entropy {each.numbers.entropy:.2f}, diagonality {each.numbers.diagonality:.2f}, "
            f"coverage {each.numbers.coverage:.2f}",
            times if len(times) == len(each.symbols) - 1 else [],
        )
        for each in heard
    )
    texts = "".join(f"<li>{escape(each.label)}: <span>{escape(each.hypothesis)}</span></li>" for each in heard)
    sound = f'<audio controls preload="metadata" src="{found.audio}"></audio>' if found.audio else ""
    said = f"<p class='text'>Said: {escape(found.utterance.text)}</p>"
    explained = (
        f"Test utterance {found.utterance.id}, {found.utterance.duration_s:.1f} s, the first seed of each row, best "
        "checkpoint. One row for each true token, which is fed; brighter is more weight, outlines are the true times."
    )
    return _section(
        "Attention on one utterance",
        sound,
        said,
        f"<ul class='text'>{texts}</ul>",
        f'<div class="grid">{maps}</div>',
        f'<p class="soft">{escape(explained)}</p>',
    )


def _distributions(jobs: Sequence[Job]) -> str:
    """How parameters are distributed as training goes on, for the first seed of the first rows."""
    rows = list(_by_row(jobs).items())[:FEW]
    parts = []
    for label, each in rows:
        found = distributions.notable(distributions.read(each[0].directory / "tensorboard"))
        figures = "".join(_ridge(name, steps) for name, steps in found.items() if len(steps) > 1)
        if figures:
            parts.append(f'<h3 class="soft">{escape(label)}</h3><div class="grid small">{figures}</div>')
    if not parts:
        return ""
    told = "Median, and bands from the 25th to the 75th and the 5th to the 95th percentile of a parameter's entries."
    return _section("Distributions of parameters", *parts, f'<p class="soft">{told}</p>')


def _ridge(name: str, found: Sequence[Distribution]) -> str:
    """The quantiles of one parameter over steps."""
    at = {share: [each.quantiles[SHARES.index(share)] for each in found] for share in SHARES}
    steps = [float(each.step) for each in found]
    bands = [Series("", steps, at[0.5], at[low], at[high]) for low, high in ((0.05, 0.95), (0.25, 0.75))]
    return charts.chart(bands, "step", "value", SMALL, name, colours=[0, 0])


def _assumed(recipe: Recipe) -> str:
    listed = "".join(f"<li>{escape(line)}</li>" for line in recipe.assumed)
    return _section("Assumed where the paper is silent", f"<ul>{listed}</ul>")
