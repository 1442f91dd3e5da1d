"""The cells of a recipe's table as text: the paper's numbers, ours, and the differences."""

import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

from las.reproduction.convergence import STEPS_TO_COMMON
from las.reproduction.recipe import PAPER, Recipe
from las.reproduction.results import Line, Table
from las.scoring import error_rates

RATE_KEYS = ("phone_error_rate", "wer")
"""Keys of the paper's numbers that are its test error."""
DIFFERENCE = "ours - paper"
OWN_HEADINGS = ("SD", "SE", "95 % interval", "lowest to highest")
LAST_HEADINGS = ("our steps to converge", "within 1 %", "hours", "commit")
MARK = "†"
"""Marks a row whose trainings have not all converged."""
CONVERGED = "converged"
EDGE = " (edge)"
"""Marks a learning rate that is the lowest or the highest of those that were tried."""
NOTHING = ""


def headings(recipe: Recipe, table: Table) -> list[str]:
    """Return the headings, one for each cell of `rows`."""
    metric = error_rates.SHORT_NAMES[table.metric]
    compared = [DIFFERENCE] if comparable(recipe, table) else []
    own = [f"our {metric}: mean", *OWN_HEADINGS, *compared, "trainings", *_rate_heading(table)]
    further = [f"our {PAPER[key].heading}" for key in _further(recipe, table)]
    last = [CONVERGED, *_common_heading(table), *_update_heading(table), *LAST_HEADINGS]
    return ["row", *(f"paper: {PAPER[key].heading}" for key in recipe.columns()), *own, *further, *last]


def rows(recipe: Recipe, table: Table) -> list[list[str]]:
    """One list of cells for each row of the recipe, in its order."""
    cells = []
    for number, row in enumerate(recipe.rows, start=1):
        line = table.line(row.name)
        mark = f" ({number})" if row.note else ""
        family = " [clean]" if row.family == "clean" and recipe.rows[0].family != "clean" else ""
        paper = [written(key, row.paper.get(key)) for key in recipe.columns()]
        further = [_mean(line, PAPER[key].ours or "") for key in _further(recipe, table)]
        compared = [_difference(row.paper.get(table.metric), line)] if comparable(recipe, table) else []
        own = [*_own(line), *compared, _trainings(line), *([chosen_rates(line)] if _rate_heading(table) else [])]
        label = f"{row.label}{family}{mark}{_mark(line)}"
        common = [_steps(line, STEPS_TO_COMMON)] if _common_heading(table) else []
        speed = [_steps(line, "update_ms")] if _update_heading(table) else []
        cells.append([label, *paper, *own, *further, _converged(line), *common, *speed, *_last(line)])
    return cells


def assumptions(recipe: Recipe, table: Table) -> list[str]:
    """All that had to be assumed for the trainings of a table.

    Trainings without a curve are of releases before there were initial values to choose.
    """
    lines = recipe.assumptions(table.tier)
    if all(outcome.curve is not None for line in table.lines for outcome in line.outcomes):
        return list(lines)
    former = "initial values: those of init=las, the only ones of the release that trained these rows"
    return [former, *(line for line in lines if not line.startswith("initial values: "))]


def notes(recipe: Recipe) -> list[str]:
    """Return the notes of rows, with the numbers that stand in the table."""
    return [f"({number}) {row.note}" for number, row in enumerate(recipe.rows, start=1) if row.note]


def paper_key(recipe: Recipe, metric: str) -> str:
    """Return the key of the paper's test error: that of our measure where the paper has it, else that of its own."""
    return next((key for key in (metric, *RATE_KEYS) if key in recipe.columns()), metric)


def written(key: str, value: Any) -> str:
    """Return a number of the paper as it prints it: rates in percent, with as many digits as the paper has."""
    if value is None:
        return NOTHING
    match PAPER[key].kind:
        case "rate":
            return f"{100 * value:.2f} %" if key.endswith("sigma") else f"{100 * value:.1f} %"
        case "count":
            return f"{value:,}"
        case _:
            return str(value)


def interval(line: Line) -> str:
    """Return the confidence interval: Student's over trainings; of a single one that over speakers or utterances of the
    test, marked with s or u.
    """
    summary = line.summary("test")
    if summary is None:
        return NOTHING
    if summary.interval is not None:
        return _range(summary.interval)
    single = line.sound[0]
    return NOTHING if single.interval is None else f"{_range(single.interval)} {single.interval_over[0]}"


def comparable(recipe: Recipe, table: Table) -> bool:
    """Return True if the paper reports the measure that we have, on the corpus and at the size that we have."""
    return table.tier == "paper" and table.corpus == recipe.paper_corpus and table.metric in recipe.columns()


def _difference(paper: Any, line: Line) -> str:
    summary = line.summary("test")
    return NOTHING if paper is None or summary is None else f"{100 * (summary.mean - paper):+.1f}"


def _own(line: Line) -> list[str]:
    summary = line.summary("test")
    if summary is None:
        return ["broken" if len(line.outcomes) > len(line.sound) else "not trained", *[NOTHING] * len(OWN_HEADINGS)]
    spread = [NOTHING if each is None else f"{100 * each:.2f}" for each in (summary.deviation, summary.error)]
    ends = f"{100 * summary.lowest:.1f} to {100 * summary.highest:.1f}" if summary.n > 1 else NOTHING
    return [f"{100 * summary.mean:.1f} %", *spread, interval(line), ends]


def _trainings(line: Line) -> str:
    broken = len(line.outcomes) - len(line.sound)
    return f"{len(line.outcomes)}, {broken} broken" if broken else str(len(line.outcomes))


def rates(table: Table) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of the mean dev errors by learning rate; no rows where none were tried."""
    known = sorted({rate for line in table.lines for rate in _tried(line)})
    metric = error_rates.SHORT_NAMES[table.metric]
    rows = [[line.label, *(_at_rate(line, rate) for rate in known)] for line in table.lines if _tried(line)]
    return [f"dev {metric} by learning rate", *(f"{rate:g}" for rate in known)], rows


def _tried(line: Line) -> set[float]:
    return {each.rate for each in (*line.outcomes, *line.tried) if each.rate is not None}


def _at_rate(line: Line, rate: float) -> str:
    """Return the mean dev error of a row's trainings with a learning rate, and how many of their seeds chose it."""
    chosen, others = ([each for each in group if each.rate == rate] for group in (line.outcomes, line.tried))
    dev_errors = [each.values["dev"] for each in (*chosen, *others) if "dev" in each.values and not each.broken]
    trained = len(chosen) + len(others)
    if not trained:
        return NOTHING
    mean = f"{100 * statistics.fmean(dev_errors):.1f} %" if dev_errors else "broken"
    return f"{mean} ({len(chosen)} of {trained})"


def _rate_heading(table: Table) -> list[str]:
    return ["learning rate"] if any(map(_tried, table.lines)) else []


def chosen_rates(line: Line) -> str:
    """Return the chosen learning rates, and whether a better one may lie beyond those that were tried."""
    chosen = Counter(each.rate for each in line.outcomes if each.rate is not None)
    ends = {min(_tried(line)), max(_tried(line))} if chosen else set()
    at_edge = 2 * sum(chosen[end] for end in ends) >= chosen.total() > 0
    each = [f"{rate:g}" + (f" ({count})" if len(chosen) > 1 else "") for rate, count in sorted(chosen.items())]
    return ", ".join(each) + (EDGE if at_edge else "")


def _mark(line: Line) -> str:
    return f" {MARK}" if line.sound and line.num_converged not in (None, len(line.sound)) else ""


def _converged(line: Line) -> str:
    if not line.sound:
        return NOTHING
    return "not known" if line.num_converged is None else f"{line.num_converged} of {len(line.sound)}"


def _common_heading(table: Table) -> list[str]:
    """Return the heading of the steps to the error that all trainings reach; nothing where no curves are known."""
    level = table.common_level
    return [] if level is None else [f"our steps to dev {error_rates.SHORT_NAMES[table.metric]} {100 * level:.1f} %"]


def _update_heading(table: Table) -> list[str]:
    """Return the heading of the milliseconds of an update; nothing where no training has them."""
    return ["ms per update"] if any(line.values("update_ms") for line in table.lines) else []


def _last(line: Line) -> list[str]:
    seconds = line.summary("seconds")
    commits = sorted({outcome.commit[:7] + outcome.commit[12:] for outcome in line.outcomes})  # 12 digits, perhaps a +
    steps = [_steps(line, measure) for measure in ("steps_to_converge", "steps_to_within_one_percent")]
    return [*steps, NOTHING if seconds is None else f"{seconds.mean / 3600:.2f}", ", ".join(commits)]


def _steps(line: Line, measure: str) -> str:
    summary = line.summary(measure)
    if summary is None:
        return NOTHING
    return f"{summary.mean:,.0f}" + ("" if summary.deviation is None else f" ± {summary.deviation:,.0f}")


def _mean(line: Line, measure: str) -> str:
    summary = line.summary(measure)
    return NOTHING if summary is None else f"{100 * summary.mean:.1f} %"


def _further(recipe: Recipe, table: Table) -> list[str]:
    """Keys of the paper's other rates of which we have any."""
    keys = [key for key in recipe.columns() if key not in RATE_KEYS and PAPER[key].kind == "rate"]
    return [key for key in keys if any(line.values(PAPER[key].ours or "") for line in table.lines)]


def _range(bounds: Sequence[float]) -> str:
    return "[{:.1f}, {:.1f}]".format(*(100 * bound for bound in bounds))
