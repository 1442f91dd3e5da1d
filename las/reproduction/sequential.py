"""Group-sequential tests: seeds are added until claims are decided, and the 5 % of false verdicts hold nevertheless.

A claim is looked at when its rows have `LOOKS` seeds. Each look may spend its share of the 5 %, larger the more seeds
it has: the p value of a look is divided by its share, and the smallest one counts. By Bonferroni's inequality that is a
p value whenever and for whatever reason the trainings ended (alpha spending: Lan and DeMets 1983, Biometrika 70).
"""

from dataclasses import dataclass, field, replace

from las.reproduction.results import Line, Table, with_times
from las.reproduction.verdicts import Evidence, Rule

LOOKS = (3, 5, 8, 12, 20)
"""Seeds of each row at the looks."""


def share(look: int) -> float:
    """Return the share of the 5 % that a look may spend."""
    return look / sum(LOOKS)


def evidence(rule: Rule, table: Table) -> Evidence:
    """Return the evidence of a rule in a table: of one whose seeds were added by looks, that of the strongest look."""
    if not table.looks:
        return rule(table)
    found = [_spent(rule(_up_to(table, look)), look) for look in table.looks]
    reached = [each for look, each in zip(table.looks, found, strict=True) if _trainings(each) >= look]
    return min(
        reached,
        key=lambda each: 1.0 if each.p is None else each.p,
        default=rule(table)._replace(supports=None, opposes=None, small=None),
    )


def _up_to(table: Table, seeds: int) -> Table:
    """Return a table with the first trainings of each row, and the error that these reach."""

    def first(line: Line) -> Line:
        outcomes, tried = (
            tuple(each for each in group if max(each.seed, each.copy) <= seeds) for group in (line.outcomes, line.tried)
        )
        return replace(line, outcomes=outcomes, tried=tried)

    return with_times(replace(table, lines=tuple(map(first, table.lines))))


def _spent(found: Evidence, look: int) -> Evidence:
    """Evidence whose p values are divided by the share of a look."""
    values = (found.supports, found.opposes, found.small)
    supports, opposes, small = (None if p is None else min(1.0, p / share(look)) for p in values)
    text = f"{found.text}; look at {look} seeds, p divided by its share of {100 * share(look):.0f} %"
    return found._replace(text=text, supports=supports, opposes=opposes, small=small)


def _trainings(found: Evidence) -> int:
    return 0 if found.sensitivity is None else found.sensitivity.trainings


@dataclass(frozen=True)
class _Asked(Table):
    """An empty table that takes down which rows a rule asks for."""

    names: dict[str, None] = field(default_factory=dict)

    def line(self, name: str) -> Line:
        self.names[name] = None
        return super().line(name)


def rows_of(rule: Rule) -> list[str]:
    """Return the names of the rows that a rule compares."""
    asked = _Asked("", "", "", "", "", ())
    rule(asked)
    return list(asked.names)
