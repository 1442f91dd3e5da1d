"""The trainings of a table's rows as samples that can be compared, broken ones among them.

A training that broke counts. Where its measure was recorded, it has that value; else an error rate counts as the worst
of the table and at least 100 %, attention as having no diagonal, steps and losses as the worst of the table. Where a
measure has no worst value, rows with broken trainings that lack it are not judged.
"""

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from las.reproduction.results import Line, Outcome, Table

RATES = ("test", "dev")
"""Measures that are error rates."""


class Sample(NamedTuple):
    """The values of a measure in a row's trainings, and how many of the trainings broke."""

    name: str
    values: list[float]
    broken: int


class NotJudged(Exception):
    """The reason why a rule has no evidence."""


def samples(table: Table, measure: str, *names: str) -> list[Sample]:
    """Return the values of a measure in rows of a table, broken trainings among them. Raises NotJudged where it has
    none.

    Errors and times are those at each row's own learning rates; other measures are taken at equal ones.
    """
    if measure not in RATES and not measure.startswith(("steps_to_", "seconds")):
        return at_equal_rates(table, measure, *names)
    return [_sample(table, measure, line.name, [[each] for each in line.outcomes]) for line in trained(table, *names)]


def at_equal_rates(table: Table, measure: str, *names: str) -> list[Sample]:
    """Return the values of a measure in rows of a table, of each seed the mean over the learning rates that all rows
    have.

    What is measured besides errors changes with the learning rate: rows at rates of their own differ by that alone.
    Seeds without a training at each of these rates are left out. Raises NotJudged where nothing is left.
    """
    lines = trained(table, *names)
    everything = [(*line.outcomes, *line.tried) for line in lines]
    rates = set.intersection(*({each.rate for each in outcomes} for outcomes in everything))
    measured = []
    for line, outcomes in zip(lines, everything, strict=True):
        seeds: dict[tuple[int, int], list[Outcome]] = {}
        for each in outcomes:
            if each.rate in rates:
                seeds.setdefault((each.seed, each.copy), []).append(each)
        whole = [group for group in seeds.values() if {each.rate for each in group} == rates]
        if not rates or not whole:
            raise NotJudged(
                f"{measure} is compared at equal learning rates, which no seed of {line.name} has in all rows"
            )
        measured.append(_sample(table, measure, line.name, whole))
    return measured


def _sample(table: Table, measure: str, name: str, groups: Sequence[Sequence[Outcome]]) -> Sample:
    """Return a sample with the mean of each group of trainings; broken ones count as the worst where not measured."""
    worst, values = _worst(table, measure), []
    for group in groups:
        known = [outcome.values.get(measure, worst if outcome.broken else None) for outcome in group]
        if any(outcome.broken and value is None for outcome, value in zip(group, known, strict=True)):
            raise NotJudged(f"trainings of {name} broke, and {measure} has no value for them")
        if None not in known:
            values.append(statistics.fmean(value for value in known if value is not None))
    if not values:
        raise NotJudged(f"{measure} was not recorded for {name}")
    return Sample(name, values, sum(any(outcome.broken for outcome in group) for group in groups))


def trained(table: Table, *names: str) -> list[Line]:
    """Rows by name. Raises NotJudged where one has no trainings."""
    lines = [table.line(name) for name in names]
    if absent := [line.name for line in lines if not line.outcomes]:
        raise NotJudged(f"{table.recipe}: no trainings of {', '.join(dict.fromkeys(absent))}")
    return lines


def _worst(table: Table, measure: str) -> float | None:
    """Return the value of a broken training for which the measure was not recorded, None where it has no worst one."""
    outcomes = [outcome for line in table.lines for outcome in (*line.outcomes, *line.tried)]
    known = [outcome.values[measure] for outcome in outcomes if measure in outcome.values]
    if measure in RATES:
        return max([1.0, *known])
    if measure.startswith("steps_to_"):
        return max([*known, *(float(outcome.steps) for outcome in outcomes)])
    if measure.endswith("_loss"):
        return max(known, default=None)
    return min([0.0, *known]) if measure in ("diagonality", "coverage") else None


def by_seed(table: Table, names: Sequence[str]) -> dict[int, list[float]]:
    """Test errors of the seeds that were trained in all rows, one of each row. Raises NotJudged where there is none."""
    lines, worst = trained(table, *names), _worst(table, "test")
    rows = [
        {outcome.seed: value for outcome in line.outcomes if (value := outcome.values.get("test", worst)) is not None}
        for line in lines
    ]
    seeds = sorted(set.intersection(*(set(row) for row in rows)))
    if not seeds:
        raise NotJudged("no seed was trained in every row")
    return {seed: [row[seed] for row in rows] for seed in seeds}


def broken_in(table: Table, names: Sequence[str]) -> int:
    """Return the number of trainings of rows that broke."""
    return sum(len(line.outcomes) - len(line.sound) for line in map(table.line, names))
