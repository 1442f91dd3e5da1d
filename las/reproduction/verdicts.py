"""Rules that give a verdict on a table of results; `las.reproduction.claims` says which rule belongs to which claim.

Verdicts: `supported` when the effect is there and 95 % certain, `not supported` when it is 95 % certain that it is
not there or points the other way, `undecided` else, and wherever a rule lacks trainings. With one seed of a row there
is no test over trainings, hence no verdict. p values are not corrected for the number of claims.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from las.reproduction import statistics
from las.reproduction.results import MEASURES, Line, Table
from las.reproduction.statistics import StatisticalTest

SUPPORTED, NOT_SUPPORTED, UNDECIDED = "supported", "not supported", "undecided"
CERTAIN, FAR = 0.05, 1.5
"""The largest p of a verdict; "far worse" is an error rate so many times the other one."""
SMALL_GAIN, LARGE_GAIN = 0.03, 0.05
"""Relative: gains up to the first are small; "about 10 %" is at least the second."""
FAILS = 0.5
"""Diagonality below which attention does not follow the speech (`las.nn.attention.diagnostics`)."""


class Verdict(NamedTuple):
    """`test` is what was computed, with its numbers, or what is missing."""

    verdict: str
    test: str


Rule = Callable[[Table], Verdict]


def lower(row: str, than: str, measure: str = "test") -> Rule:
    """The mean of `measure` is lower in one row than in another: Welch's test over trainings."""

    def rule(table: Table) -> Verdict:
        first, second = table.line(than), table.line(row)
        if missing := _missing(table, measure, first, second):
            return missing
        test = statistics.welch(first.values(measure), second.values(measure))
        return Verdict(_direction(test), _words(f"{MEASURES[measure]}, {row} - {than}", test, table, measure))

    return rule


def far_worse(row: str, than: Sequence[str]) -> Rule:
    """The mean is significantly higher than the worst of other rows, and at least `FAR` times as high."""

    def rule(table: Table) -> Verdict:
        found, others = table.line(row), [table.line(name) for name in than]
        if missing := _missing(table, "test", found, *others):
            return missing
        worst = max(others, key=_mean)
        test = statistics.welch(found.values("test"), worst.values("test"))
        ratio = _mean(found) / _mean(worst) if _mean(worst) else float("inf")
        verdict = _direction(test)
        if ratio < FAR and test.p is not None:
            verdict = NOT_SUPPORTED
        words = _words(f"{MEASURES['test']}, {worst.name} - {row}", test, table, "test")
        return Verdict(verdict, f"{words}; {ratio:.2f} times as high, far is {FAR} times")

    return rule


def gains(pairs: Sequence[tuple[str, str]], at_least: float) -> Rule:
    """The best of several rows gains at least a share of its baseline: Welch's interval of the relative gain."""

    def rule(table: Table) -> Verdict:
        lines = [(table.line(before), table.line(after)) for before, after in pairs]
        if missing := _missing(table, "test", *(line for pair in lines for line in pair)):
            return missing
        tests = {
            after.name: statistics.relative_gain(before.values("test"), after.values("test")) for before, after in lines
        }
        name, best = max(tests.items(), key=lambda item: item[1].difference)
        if best.interval is None:
            return Verdict(UNDECIDED, best.name)
        low, high = best.interval
        verdict = SUPPORTED if low > 0 and best.difference >= at_least else UNDECIDED
        if high < at_least:
            verdict = NOT_SUPPORTED
        return Verdict(verdict, f"relative gain of {name}: {_percent(best)}; asked for: {100 * at_least:.0f} %")

    return rule


def small_gains(before: str, rows: Sequence[str]) -> Rule:
    """No row gains more than `SMALL_GAIN` of the baseline: the interval of each relative gain ends below it."""

    def rule(table: Table) -> Verdict:
        base, lines = table.line(before), [table.line(name) for name in rows]
        if missing := _missing(table, "test", base, *lines):
            return missing
        tests = [statistics.relative_gain(base.values("test"), line.values("test")) for line in lines]
        if any(test.interval is None for test in tests):
            return Verdict(UNDECIDED, tests[0].name)
        bounds = [test.interval for test in tests if test.interval is not None]
        verdict = SUPPORTED if all(high <= SMALL_GAIN for _, high in bounds) else UNDECIDED
        if any(low > SMALL_GAIN for low, _ in bounds):
            verdict = NOT_SUPPORTED
        return Verdict(verdict, "relative gains: " + "; ".join(map(_percent, tests)))

    return rule


def best_of(row: str, others: Sequence[str]) -> Rule:
    """A row has the lowest mean, certainly lower than the next one's; rows that break do not compete."""

    def rule(table: Table) -> Verdict:
        rivals = [line for line in map(table.line, others) if line.values("test")]
        found = table.line(row)
        if any(not table.line(name).outcomes for name in (row, *others)):
            return Verdict(UNDECIDED, f"not all rows of {table.recipe} are trained")
        if not found.sound or not rivals:
            return Verdict(NOT_SUPPORTED, f"{row}: all of its trainings are broken")
        rival = min(rivals, key=_mean)
        test = statistics.welch(rival.values("test"), found.values("test"))
        words = _words(f"{MEASURES['test']}, {row} - {rival.name} (the best other)", test, table, "test")
        return Verdict(_direction(test), words)

    return rule


def breaks(rows: Sequence[str], sound: Sequence[str] = ()) -> Rule:
    """Every training of some rows is broken, and none of the others: counted, no test."""

    def rule(table: Table) -> Verdict:
        lines = [table.line(name) for name in (*rows, *sound)]
        if absent := [line.name for line in lines if not line.outcomes]:
            return Verdict(UNDECIDED, f"{table.recipe}: no trainings of {', '.join(absent)}")
        if few := _few(*lines):
            return few
        counts = {line.name: (len(line.outcomes) - len(line.sound), len(line.outcomes)) for line in lines}
        words = ", ".join(f"{name} {broken} of {n} broken" for name, (broken, n) in counts.items())
        as_said = [counts[name][0] == counts[name][1] for name in rows] + [counts[name][0] == 0 for name in sound]
        contrary = [counts[name][0] == 0 for name in rows]
        verdict = SUPPORTED if all(as_said) else NOT_SUPPORTED if any(contrary) else UNDECIDED
        return Verdict(verdict, f"counted: {words}")

    return rule


def narrower(row: str, than: str) -> Rule:
    """The test errors of one row spread less than those of another: Brown-Forsythe."""

    def rule(table: Table) -> Verdict:
        first, second = table.line(than), table.line(row)
        if missing := _missing(table, "test", first, second):
            return missing
        if min(len(first.values("test")), len(second.values("test"))) < 3:
            return Verdict(UNDECIDED, "a spread needs three trainings of each row")
        test = statistics.brown_forsythe(first.values("test"), second.values("test"))
        spreads = [statistics.summary(line.values("test")).deviation or 0.0 for line in (first, second)]
        if spreads == [0.0, 0.0]:
            return Verdict(UNDECIDED, "neither row spreads at all: here the same training computes the same")
        words = _words("mean distance from the median", test, table, "test")
        return Verdict(_direction(test), f"{words}; sample SD {100 * spreads[0]:.2f} and {100 * spreads[1]:.2f} %")

    return rule


def less_spread_over(rows: Sequence[str], than: Sequence[str]) -> Rule:
    """Within each seed, the test errors of a grid of rows range less widely than those of another: Welch."""

    def rule(table: Table) -> Verdict:
        ranges = []
        for lines in ([table.line(name) for name in names] for names in (than, rows)):
            if missing := _missing(table, "test", *lines):
                return missing
            seeds = set.intersection(*({outcome.seed for outcome in line.sound} for line in lines))
            errors = [[_at(line, seed) for line in lines] for seed in sorted(seeds)]
            ranges.append([max(each) - min(each) for each in errors])
        if not all(ranges):
            return Verdict(UNDECIDED, "no seed with a sound training of every row")
        test = statistics.welch(*ranges)
        return Verdict(_direction(test), _words("range over the grid", test, table, "test"))

    return rule


def attention_fails(row: str, than: str) -> Rule:
    """Attention of every training has a diagonality below `FAILS`, while another row's is above it: counted."""

    def rule(table: Table) -> Verdict:
        found, other = table.line(row), table.line(than)
        if missing := _missing(table, "diagonality", found, other) or _few(found, other):
            return missing
        values, others = found.values("diagonality"), other.values("diagonality")
        verdict = SUPPORTED if max(values) < FAILS <= min(others) else UNDECIDED
        if min(values) >= FAILS:
            verdict = NOT_SUPPORTED
        shown = [", ".join(f"{value:.2f}" for value in each) for each in (values, others)]
        return Verdict(verdict, f"diagonality of {row}: {shown[0]}; of {than}: {shown[1]}; it fails below {FAILS}")

    return rule


def not_lower(row: str, than: str, measure: str, margin: float = 0.1) -> Rule:
    """The mean of `measure` is not lower by more than a share: the interval of Welch's difference against it."""

    def rule(table: Table) -> Verdict:
        first, second = table.line(than), table.line(row)
        if missing := _missing(table, measure, first, second):
            return missing
        test = statistics.welch(first.values(measure), second.values(measure))
        words = _words(f"{MEASURES[measure]}, {row} - {than}", test, table, measure)
        if test.interval is None:
            return Verdict(UNDECIDED, words)
        limit = -margin * abs(sum(first.values(measure)) / len(first.values(measure)))
        verdict = SUPPORTED if test.interval[0] > limit else NOT_SUPPORTED if test.interval[1] < limit else UNDECIDED
        return Verdict(verdict, f"{words}; lower is below {limit:.4g}")

    return rule


def both(first: Rule, second: Rule) -> Rule:
    """Two rules at once."""

    def rule(table: Table) -> Verdict:
        verdicts = [first(table), second(table)]
        found = {verdict.verdict for verdict in verdicts}
        joined = NOT_SUPPORTED if NOT_SUPPORTED in found else UNDECIDED if UNDECIDED in found else SUPPORTED
        return Verdict(joined, "; ".join(verdict.test for verdict in verdicts))

    return rule


def gain_grows(small: tuple[str, str], large: tuple[str, str]) -> Rule:
    """The relative gain of one pair (before, after) is larger than that of another, seed by seed: Welch."""

    def rule(table: Table) -> Verdict:
        lines = [table.line(name) for name in (*small, *large)]
        if missing := _missing(table, "test", *lines):
            return missing
        seeds = sorted(set.intersection(*({outcome.seed for outcome in line.sound} for line in lines)))
        gains_of = [[1 - _at(b, seed) / _at(a, seed) for seed in seeds] for a, b in (lines[:2], lines[2:])]
        if not seeds:
            return Verdict(UNDECIDED, "no seed with a sound training of every row")
        test = statistics.welch(gains_of[1], gains_of[0])
        return Verdict(_direction(test), _words(f"relative gain, {small[1]} - {large[1]}", test, table, "test"))

    return rule


def elsewhere(where: str) -> Rule:
    """The answer does not come from error rates: says what measures it."""
    return lambda table: Verdict(UNDECIDED, where)


def _missing(table: Table, measure: str, *lines: Line) -> Verdict | None:
    """The rows without values that a rule needs, None if every row has some."""
    absent = [line.name for line in lines if not line.outcomes]
    if absent:
        return Verdict(UNDECIDED, f"{table.recipe}: no trainings of {', '.join(dict.fromkeys(absent))}")
    broken = [line.name for line in lines if not line.sound]
    if broken:
        return Verdict(UNDECIDED, f"all trainings of {', '.join(dict.fromkeys(broken))} are broken")
    unmeasured = [line.name for line in lines if not line.values(measure)]
    if unmeasured:
        return Verdict(UNDECIDED, f"{measure} was not recorded for {', '.join(dict.fromkeys(unmeasured))}")
    return None


def _few(*lines: Line) -> Verdict | None:
    """The reason why a rule that counts cannot decide: one training of a row is no evidence."""
    few = [line.name for line in lines if len(line.outcomes) < 2]
    return Verdict(UNDECIDED, f"one training of {', '.join(few)}") if few else None


def _direction(test: StatisticalTest) -> str:
    """The verdict of a claim that the second set is lower."""
    if test.p is None or test.p > CERTAIN:
        return UNDECIDED
    return SUPPORTED if test.difference < 0 else NOT_SUPPORTED


def _words(what: str, test: StatisticalTest, table: Table, measure: str) -> str:
    """A test in one line; error rates in percent."""
    factor, unit = (100, " %") if measure in ("test", "dev") else (1, "")
    limits = "" if test.interval is None else " [{:.4g}, {:.4g}]".format(*(factor * each for each in test.interval))
    p = "" if test.p is None else f", p = {test.p:.2g}"
    return f"{what}: {factor * test.difference:+.4g}{unit}{limits} ({test.name}{p})"


def _percent(test: StatisticalTest) -> str:
    limits = "" if test.interval is None else " [{:.1f}, {:.1f}]".format(*(100 * each for each in test.interval))
    return f"{100 * test.difference:.1f} %{limits} ({test.name})"


def _mean(line: Line) -> float:
    values = line.values("test")
    return sum(values) / len(values)


def _at(line: Line, seed: int) -> float:
    """The test error of a seed's training."""
    return next(outcome.values["test"] for outcome in line.sound if outcome.seed == seed)
