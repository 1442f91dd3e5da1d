"""Rules that find the evidence for and against a claim in a table; `las.reproduction.claims` says which rule is whose.

Means are compared by Welch's test. Trainings that broke count (`las.reproduction.samples`), but the number that they
count with is a convention: rows with any are compared by their ranks, exactly, and the effect has no interval.

A claim on several rows at once holds if it holds for each: it is as certain as the least certain of them. It is refuted
by any: the smallest p of them is multiplied by their number (Bonferroni).
"""

import functools
import statistics as means
from collections.abc import Callable, Sequence
from typing import Concatenate, NamedTuple, ParamSpec

from las.reproduction import statistics
from las.reproduction.results import MEASURES, Table
from las.reproduction.samples import RATES, NotJudged, Sample, at_equal_rates, broken_in, by_seed, samples, trained
from las.reproduction.statistics import StatisticalTest
from las.reproduction.verdicts import (
    RELEVANT,
    Evidence,
    MeanPlan,
    Plan,
    RankPlan,
    Rule,
    Sensitivity,
    SharePlan,
    SpreadPlan,
)

FAR = 1.5
""""Far worse" is an error rate so many times the other one."""
SMALL_GAIN, LARGE_GAIN = 0.03, 0.05
"""Relative: gains up to the first are small; "about 10 %" is at least the second."""
MARGIN = 0.1
"""Relative: a measure that is lower by less than this is not lower."""
FAILS = 0.5
"""Diagonality below which attention does not follow the speech (`las.nn.attention.diagnostics`)."""
FEWEST_FOR_SPREAD = 20
"""Trainings of each row from which spreads are compared: with 20 a ratio of 2.2 is seen, with five none is."""


Names = ParamSpec("Names")


class Comparison(NamedTuple):
    """A test of two samples, `scale` times the first against the second."""

    first: Sample
    second: Sample
    scale: float
    test: StatisticalTest


class Count(NamedTuple):
    """A number of a row's trainings, of all of them."""

    name: str
    found: int
    trainings: int


def _rule(find: Callable[Concatenate[Table, Names], Evidence]) -> Callable[Names, Rule]:
    """Make rules of a function of a table and names: where it finds no evidence, they say why."""

    @functools.wraps(find)
    def of_names(*names: Names.args, **options: Names.kwargs) -> Rule:
        @functools.wraps(find)
        def rule(table: Table) -> Evidence:
            try:
                return find(table, *names, **options)
            except NotJudged as reason:
                return Evidence(str(reason))

        return rule

    return of_names


@_rule
def lower(table: Table, row: str, than: str, measure: str = "test") -> Evidence:
    """Return the mean of `measure` is lower in one row than in another."""
    first, second = samples(table, measure, than, row)
    comparison = _compare(first, second)
    test = comparison.test
    evidence = _evidence(comparison, measure, test.less, test.greater, test.difference, test.interval)
    return evidence._replace(small=_small(first, second))


@_rule
def not_lower(table: Table, row: str, than: str, measure: str, margin: float = MARGIN) -> Evidence:
    """Return the mean of `measure` is not lower by more than a share of the other's."""
    first, second = samples(table, measure, than, row)
    scale = 1 - margin if means.fmean(first.values) >= 0 else 1 + margin
    plain, limit = _compare(first, second).test, _compare(first, second, scale)
    evidence = _evidence(limit, measure, limit.test.greater, limit.test.less, plain.difference, plain.interval)
    return evidence._replace(text=f"{evidence.text}, against {100 * margin:.0f} % lower")


@_rule
def far_worse(table: Table, row: str, than: Sequence[str]) -> Evidence:
    """Return the mean error is at least `FAR` times as high as that of each of other rows."""
    *others, last = samples(table, "test", *than, row)
    compared = [_compare(other, last, FAR) for other in others]
    weakest = max(compared, key=lambda each: each.test.greater or 0.0)
    supports, opposes = _for_all([each.test.greater for each in compared], [each.test.less for each in compared])
    evidence = _evidence(weakest, "test", supports, opposes, *_ratio(weakest))
    return evidence._replace(text=f"{evidence.text}, against {FAR} times as high")


@_rule
def gains(table: Table, before: str, after: str, at_least: float) -> Evidence:
    """Return the mean error falls by at least a share of the baseline's."""
    first, second = samples(table, "test", before, after)
    comparison = _compare(first, second, 1 - at_least)
    test = comparison.test
    evidence = _evidence(comparison, "test", test.less, test.greater, *_gain(comparison))
    return evidence._replace(text=f"{evidence.text}, against a gain of {100 * at_least:.0f} %")


@_rule
def small_gains(table: Table, before: str, rows: Sequence[str]) -> Evidence:
    """Return the mean error of no row falls by more than `SMALL_GAIN` of the baseline's."""
    base, *others = samples(table, "test", before, *rows)
    compared = [_compare(base, other, 1 - SMALL_GAIN) for other in others]
    weakest = max(compared, key=lambda each: each.test.greater or 0.0)
    supports, opposes = _for_all([each.test.greater for each in compared], [each.test.less for each in compared])
    evidence = _evidence(weakest, "test", supports, opposes, *_gain(weakest))
    return evidence._replace(text=f"the largest gain: {evidence.text}, against {100 * SMALL_GAIN:.0f} %")


@_rule
def best_of(table: Table, row: str, others: Sequence[str]) -> Evidence:
    """Return a row has a lower mean error than each of the others."""
    first, *rivals = samples(table, "test", row, *others)
    compared = [_compare(rival, first) for rival in rivals]
    weakest = max(compared, key=lambda each: each.test.less or 0.0)
    supports, opposes = _for_all([each.test.less for each in compared], [each.test.greater for each in compared])
    test = weakest.test
    evidence = _evidence(weakest, "test", supports, opposes, test.difference, test.interval)
    return evidence._replace(text=f"the closest of {len(rivals)} others: {evidence.text}")


@_rule
def breaks(table: Table, rows: Sequence[str], sound: Sequence[str]) -> Evidence:
    """Trainings of each of some rows break more often than those of the sound rows together."""
    lines = trained(table, *rows, *sound)
    counts = [Count(line.name, len(line.outcomes) - len(line.sound), len(line.outcomes)) for line in lines]
    return _shares(counts, len(rows), "broken")


@_rule
def attention_fails(table: Table, row: str, than: str) -> Evidence:
    """Return the attention of a row has a diagonality below `FAILS` in more trainings than that of another row."""
    rows = at_equal_rates(table, "diagonality", row, than)
    counts = [Count(each.name, sum(value < FAILS for value in each.values), len(each.values)) for each in rows]
    return _shares(counts, 1, f"with a diagonality below {FAILS}")


@_rule
def narrower(table: Table, row: str, than: str) -> Evidence:
    """Return whether test errors of one row spread less than another's: Brown-Forsythe, from `FEWEST_FOR_SPREAD` on."""
    first, second = samples(table, "test", than, row)
    for each in (first, second):
        if 2 * each.broken > len(each.values):
            raise NotJudged(f"most trainings of {each.name} are broken: their spread is not measured")
    trainings = min(len(first.values), len(second.values))
    spreads = [means.stdev(each.values) if trainings > 1 else 0.0 for each in (first, second)]
    deviations = " and ".join(f"{100 * spread:.2f}" for spread in spreads)
    text = f"sample SD {deviations} % ({first.name}, {second.name}; {_counts(first, second)})"
    if trainings > 1 and spreads == [0.0, 0.0]:
        raise NotJudged(f"{text}; neither row spreads at all: here the same training computes the same")
    seen = "{} times the spread"
    sensitivity = Sensitivity(SpreadPlan(), trainings, seen, "twice the spread") if trainings > 1 else None
    if trainings < FEWEST_FOR_SPREAD:
        text += f"; not judged: a spread needs {FEWEST_FOR_SPREAD} trainings of each row"
        return Evidence(text, sensitivity=sensitivity)
    test = statistics.brown_forsythe(first.values, second.values)
    text += f"; mean distance from the median {_amount(test, 'test')} ({test.name})"
    return Evidence(text, test.less, test.greater, test.difference, test.interval, sensitivity)


@_rule
def less_spread_over(table: Table, rows: Sequence[str], than: Sequence[str]) -> Evidence:
    """Within each seed, the test errors of a grid of rows range less widely than those of another grid."""
    grids = []
    for names in (than, rows):
        seeds = by_seed(table, names)
        ranges = [max(errors) - min(errors) for errors in seeds.values()]
        grids.append(Sample(f"{names[0]} to {names[-1]}", ranges, broken_in(table, names)))
    comparison = _compare(grids[0], grids[1])
    test, what = comparison.test, "range of test errors over the grid"
    return _evidence(comparison, "test", test.less, test.greater, test.difference, test.interval, what)


@_rule
def gain_grows(table: Table, small: tuple[str, str], large: tuple[str, str]) -> Evidence:
    """Return the relative gain of one pair (before, after) is larger than that of another, seed by seed."""
    seeds = by_seed(table, [*small, *large]).values()
    before = Sample(small[1], [1 - each[1] / each[0] for each in seeds], broken_in(table, small))
    after = Sample(large[1], [1 - each[3] / each[2] for each in seeds], broken_in(table, large))
    comparison = _compare(before, after)
    test = comparison.test
    return _evidence(comparison, "test", test.greater, test.less, test.difference, test.interval, "relative gain")


@_rule
def both(table: Table, first: Rule, second: Rule) -> Evidence:
    """Two rules at once: both hold; the power is that of the weaker one."""
    pair = first(table), second(table)
    text = "; ".join(each.text for each in pair)
    ends = [each.supports for each in pair], [each.opposes for each in pair]
    plans = [each.sensitivity for each in pair if each.sensitivity is not None]
    weaker = min(plans, key=lambda each: each.plan.power(each.trainings), default=None)
    return Evidence(text, *_for_all(*ends), pair[0].effect, pair[0].interval, weaker)


def elsewhere(where: str) -> Rule:
    """Return the answer does not come from error rates: says what measures it."""
    return lambda table: Evidence(where)


def _small(first: Sample, second: Sample) -> float | None:
    """Return the p value of the claim that means differ by more than `RELEVANT` of the first (two one-sided tests)."""
    if first.broken or second.broken or means.fmean(first.values) <= 0:
        return None
    above = statistics.welch(first.values, second.values, 1 + RELEVANT).less
    below = statistics.welch(first.values, second.values, 1 - RELEVANT).greater
    return None if above is None or below is None else max(above, below)


def _compare(first: Sample, second: Sample, scale: float = 1.0) -> Comparison:
    test = statistics.rank_sum if first.broken or second.broken else statistics.welch
    return Comparison(first, second, scale, test(first.values, second.values, scale))


def _for_all(supports: Sequence[float | None], opposes: Sequence[float | None]) -> tuple[float | None, float | None]:
    """p values for and against a claim that holds if all its parts do."""
    against = [p for p in opposes if p is not None]
    if not against:
        return None, None
    certain = max(1.0 if p is None else p for p in supports)  # a part that nobody tested may be false
    return certain, min(1.0, len(opposes) * min(against))


def _ratio(comparison: Comparison) -> tuple[float, statistics.Interval | None]:
    """Return the second mean over the first, and its interval."""
    first, second, scale, test = comparison
    base = means.fmean(first.values)
    ratio = means.fmean(second.values) / base if base else float("inf")
    bounds = None if test.error is None else statistics.ratio_interval(first.values, second.values, scale)
    return ratio, bounds


def _gain(comparison: Comparison) -> tuple[float, statistics.Interval | None]:
    """Return the share by which the mean falls, and its interval."""
    ratio, bounds = _ratio(comparison)
    return 1 - ratio, None if bounds is None else (1 - bounds[1], 1 - bounds[0])


def _evidence(
    comparison: Comparison,
    measure: str,
    supports: float | None,
    opposes: float | None,
    effect: float,
    interval: statistics.Interval | None,
    what: str = "",
) -> Evidence:
    """Evidence with its words: `what` (by default the measure), rows, difference, test, trainings, broken ones."""
    first, second, scale, test = comparison
    plain = test if scale == 1 else _compare(first, second).test
    text = f"{what or MEASURES[measure]}, {second.name} - {first.name}: {_amount(plain, measure)}"
    if scale != 1 and measure in RATES:
        text += f", ratio {means.fmean(second.values) / (means.fmean(first.values) or 1e-9):.2f}"
    text += f" ({test.name}; {_counts(first, second)})"
    trainings = min(len(first.values), len(second.values))
    sensitivity = _sensitivity(comparison, measure) if trainings > 1 else None
    return Evidence(text, supports, opposes, effect, interval, sensitivity)


def _sensitivity(comparison: Comparison, measure: str) -> Sensitivity:
    first, second, scale, test = comparison
    trainings = min(len(first.values), len(second.values))
    if test.error is None:
        return Sensitivity(RankPlan(), trainings, "rows that do not overlap", "them")
    spreads = [means.stdev(each.values) for each in (first, second)]
    relevant = RELEVANT * abs(means.fmean(first.values))
    plan: Plan = MeanPlan(((scale * spreads[0]) ** 2, spreads[1] ** 2), relevant)
    factor, unit = _unit(measure)
    tenth = f"a tenth of {first.name} ({factor * relevant:.3g}{unit})"
    return Sensitivity(plan, trainings, f"{{}}{unit}", tenth, factor)


def _shares(counts: Sequence[Count], num_first: int, what: str) -> Evidence:
    """Evidence that the share of trainings `what` is higher in each of the first rows than in the others together.

    It is refuted by a row of the first whose share is below a half.
    """
    first, others = counts[:num_first], counts[num_first:]
    sound = (sum(each.found for each in others), sum(each.trainings for each in others))
    higher = [statistics.fisher(sound, (each.found, each.trainings))[1] for each in first]
    below_half = [statistics.binomial_tails(each.found, each.trainings)[0] for each in first]
    supports, opposes = _for_all(higher, below_half)
    shares = ", ".join(f"{each.name} {each.found} of {each.trainings}" for each in counts)
    total, found = sum(each.trainings for each in first), sum(each.found for each in first)
    bounds = statistics.share_interval(found, total)
    text = f"{what}: {shares}; a share of {100 * found / total:.0f} % [{100 * bounds[0]:.0f}, {100 * bounds[1]:.0f}]"
    text += " (Fisher against the others together; binomial below a half)"
    plan = SharePlan(num_first, len(others))
    seen = "a share of {} % where the others have none"
    sensitivity = Sensitivity(plan, min(each.trainings for each in counts), seen, "a share of 90 %", 100.0)
    return Evidence(text, supports, opposes, found / total, bounds, sensitivity)


def _unit(measure: str) -> tuple[float, str]:
    return (100.0, " %") if measure in RATES else (1.0, "")


def _amount(test: StatisticalTest, measure: str) -> str:
    """Return a difference with its interval; error rates in percent."""
    factor, unit = _unit(measure)
    limits = "" if test.interval is None else " [{:.4g}, {:.4g}]".format(*(factor * each for each in test.interval))
    return f"{factor * test.difference:+.4g}{unit}{limits}"


def _counts(first: Sample, second: Sample) -> str:
    """Numbers of trainings that were compared, and of those that broke."""
    broken = first.broken + second.broken
    return f"n = {len(second.values)} and {len(first.values)}" + (f", {broken} of them broken" if broken else "")
