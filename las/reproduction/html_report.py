"""A recipe's report as one HTML file that needs nothing else: no network, no script.

How a report looks: light and dark, wide and narrow, without anything from elsewhere.
"""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from las.reproduction import charts, claims, examples, learning_curves, markdown, tables, weight_histograms
from las.reproduction.charts import Series
from las.reproduction.jobs import Job
from las.reproduction.recipe import Recipe
from las.reproduction.results import Table
from las.reproduction.verdicts import NOT_SUPPORTED, SUPPORTED, UNDECIDED, Verdict
from las.reproduction.weight_histograms import SHARES, Distribution
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
        ("Validation loss", "nats per token", learning_curves.of_validations("dev_loss")),
        (f"Validation {metric}", f"dev {metric} in %", learning_curves.of_errors),
        ("Training loss", "smoothed nats per token", learning_curves.of_updates("loss")),
        ("Norm of the gradient", "norm before clipping", learning_curves.of_updates("gradient_norm")),
        (
            "Loss along the gradient",
            "range",
            learning_curves.of_looks(lambda look: max(look["gradient"]["losses"]) - min(look["gradient"]["losses"])),
        ),
        (
            "Effective beta",
            "in weights' norms",
            learning_curves.of_looks(lambda look: look["gradient"]["scale_free_beta"]),
        ),
    )
    figures = "".join(
        charts.chart(
            [learning_curves.series(label, each, read) for label, each in rows.items()], "step", unit, title=title
        )
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
        f"{learning_curves.MOST_PERCENT:g} % is drawn there.</p>"
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
        found = weight_histograms.notable(weight_histograms.read(each[0].directory / "tensorboard"))
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


STYLE = """
:root { color-scheme: light dark; --back: #ffffff; --text: #1b1f24; --line: #d5d9df; --soft: #5c6570; --panel: #f6f7f9;
  --s0: #1f6feb; --s1: #c2410c; --s2: #15803d; --s3: #9333ea; --s4: #0e7490; --s5: #be185d; --s6: #854d0e;
  --s7: #475569; --good: #15803d; --bad: #b3261e; --open: #8a6100; }
@media (prefers-color-scheme: dark) { :root { --back: #14171b; --text: #e4e7eb; --line: #363c45; --soft: #9aa4b0;
  --panel: #1c2026; --s0: #6cb0ff; --s1: #ff9a62; --s2: #5fd38d; --s3: #c79bff; --s4: #5fd0e6; --s5: #ff8ab8;
  --s6: #e0b060; --s7: #a8b3c2; --good: #5fd38d; --bad: #ff8a80; --open: #e6bc5c; } }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 76rem; padding: 1rem; background: var(--back);
  color: var(--text); }
h1 { font-size: 1.35rem; line-height: 1.25; margin: .4rem 0; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2.2rem 0 .5rem; }
p, ul { margin: .4rem 0; } li { margin: .15rem 0; } ul { padding-left: 1.2rem; }
code { font-size: .85em; overflow-wrap: anywhere; } pre { overflow-x: auto; background: var(--panel); padding: .6rem; }
.soft { color: var(--soft); font-size: .875rem; }
.warn { border-left: .25rem solid var(--open); padding-left: .7rem; }
.wide { overflow-x: auto; border: 1px solid var(--line); border-radius: .4rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .875rem; width: 100%; }
th, td { padding: .35rem .45rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
tbody tr:last-child td { border-bottom: 0; }
th { background: var(--panel); font-weight: 600; vertical-align: bottom; white-space: normal; min-width: 3.4rem; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: var(--back); min-width: 8rem;
  max-width: 13rem; white-space: normal; }
th:first-child { background: var(--panel); }
.claims td, .claims th { text-align: left; white-space: normal; vertical-align: top; } .claims td:nth-child(3) {
  white-space: nowrap; } .claims td:first-child, .claims th:first-child { min-width: 3rem; }
.claims td:nth-child(2) { min-width: 11rem; } .claims td:nth-child(4) { min-width: 14rem; color: var(--soft); }
.good { color: var(--good); font-weight: 600; } .bad { color: var(--bad); font-weight: 600; }
.open { color: var(--open); font-weight: 600; }
.grid { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); gap: .8rem 1.2rem; }
.small { grid-template-columns: repeat(auto-fill, minmax(min(100%, 15rem), 1fr)); }
figure { margin: 0; min-width: 0; }
figcaption { font-weight: 600; font-size: .9rem; margin-bottom: .2rem; overflow-wrap: anywhere; }
.small figcaption { font-size: .75rem; }
svg { width: 100%; height: auto; display: block; } svg text { font-size: 11px; fill: var(--soft); }
.heat { max-width: 40rem; } .heat image { image-rendering: pixelated; }
.end { text-anchor: end; } .middle { text-anchor: middle; }
.grid line, line.grid { stroke: var(--line); stroke-width: 1; } line.axis { stroke: var(--soft); stroke-width: 1; }
.line { fill: none; stroke-width: 1.8; stroke-linejoin: round; } .band { stroke: none; opacity: .18; }
polyline.s0 { stroke: var(--s0); } polyline.s1 { stroke: var(--s1); } polyline.s2 { stroke: var(--s2); }
polyline.s3 { stroke: var(--s3); } polyline.s4 { stroke: var(--s4); } polyline.s5 { stroke: var(--s5); }
polyline.s6 { stroke: var(--s6); } polyline.s7 { stroke: var(--s7); }
polygon.s0 { fill: var(--s0); } polygon.s1 { fill: var(--s1); } polygon.s2 { fill: var(--s2); }
polygon.s3 { fill: var(--s3); } polygon.s4 { fill: var(--s4); } polygon.s5 { fill: var(--s5); }
polygon.s6 { fill: var(--s6); } polygon.s7 { fill: var(--s7); }
.legend { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: .2rem 1rem; font-size: .875rem; }
.key { display: inline-block; width: 1rem; height: .3rem; border-radius: .15rem; margin-right: .4rem;
  vertical-align: middle; }
.key.s0 { background: var(--s0); } .key.s1 { background: var(--s1); } .key.s2 { background: var(--s2); }
.key.s3 { background: var(--s3); } .key.s4 { background: var(--s4); } .key.s5 { background: var(--s5); }
.key.s6 { background: var(--s6); } .key.s7 { background: var(--s7); }
audio { width: 100%; max-width: 34rem; } .text { overflow-wrap: anywhere; }
.true { fill: none; stroke: #5eead4; stroke-width: 1.5; }
@media (max-width: 40rem) {
  svg text { font-size: 16px; } .heat text { font-size: 13px; }
  .claims thead { display: none; } .claims td { display: block; border: 0; padding: .1rem .6rem; max-width: none; }
  .claims tr { display: block; border-bottom: 1px solid var(--line); padding: .4rem 0; }
  .claims td:first-child { position: static; font-weight: 600; }
}
"""
