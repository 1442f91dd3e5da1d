"""The trainings of a table's rows as samples that can be compared, broken ones among them.

A training that broke counts. Where its measure was recorded, it has that value; else an error rate counts as the worst
of the table and at least 100 %, attention as having no diagonal, steps and losses as the worst of the table. Where a
measure has no worst value, rows with broken trainings that lack it are not judged.
"""

from collections.abc import Sequence
from typing import NamedTuple

from las.reproduction.results import Line, Table

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
    """The values of a measure in rows of a table, broken trainings among them. Raises NotJudged where it has none."""
    lines = trained(table, *names)
    worst = _worst(table, measure)
    measured = []
    for line in lines:
        unmeasured = [outcome for outcome in line.outcomes if measure not in outcome.values]
        values = [outcome.values[measure] for outcome in line.outcomes if measure in outcome.values]
        if any(outcome.broken for outcome in unmeasured) and worst is None:
            raise NotJudged(f"trainings of {line.name} broke, and {measure} has no value for them")
        values += [worst for outcome in unmeasured if outcome.broken and worst is not None]
        measured.append(Sample(line.name, values, len(line.outcomes) - len(line.sound)))
    if empty := [each.name for each in measured if not each.values]:
        raise NotJudged(f"{measure} was not recorded for {', '.join(dict.fromkeys(empty))}")
    return measured


def trained(table: Table, *names: str) -> list[Line]:
    """Rows by name. Raises NotJudged where one has no trainings."""
    lines = [table.line(name) for name in names]
    if absent := [line.name for line in lines if not line.outcomes]:
        raise NotJudged(f"{table.recipe}: no trainings of {', '.join(dict.fromkeys(absent))}")
    return lines


def _worst(table: Table, measure: str) -> float | None:
    """The value of a broken training for which the measure was not recorded, None where it has no worst one."""
    outcomes = [outcome for line in table.lines for outcome in line.outcomes]
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
    """Number of trainings of rows that broke."""
    return sum(len(line.outcomes) - len(line.sound) for line in map(table.line, names))
