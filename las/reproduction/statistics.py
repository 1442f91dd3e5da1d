"""Statistics of a few repeated trainings: mean, spread, confidence intervals, and tests of two sets against each other.

Intervals are 95 %. A test gives both of its one-tailed p values, so that a rule can ask for either direction. They are
about trainings with other seeds, not about other test utterances, which `las.scoring.error_rates` is for.
"""

import functools
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import mpmath
import numpy as np

CONFIDENCE = 0.95
FEWEST_SEEDS = 5
"""Seeds from which `paired_over_both` has degrees of freedom for the test units."""

Interval = tuple[float, float]


class Summary(NamedTuple):
    """Summary of n values; `deviation` is the sample standard deviation (n - 1), `error` that of the mean."""

    n: int
    mean: float
    deviation: float | None
    error: float | None
    interval: Interval | None
    lowest: float
    highest: float


class StatisticalTest(NamedTuple):
    """Comparison of two sets.

    `difference` is the second's mean minus `scale` times the first's (a scale of 1 where a test has none). `less` is
    the p value of the hypothesis that the difference is 0 or more: where it is small, the second set is lower.
    `greater` is that of the hypothesis that it is 0 or less. Both are None without a test. `error` is the standard
    error of the difference, with so many `degrees` of freedom, where the test is one of Student's.
    """

    name: str
    difference: float
    less: float | None = None
    greater: float | None = None
    error: float | None = None
    degrees: float = 0.0

    @property
    def interval(self) -> Interval | None:
        """The 95 % interval of the difference, of tests that have one."""
        if self.error is None:
            return None
        half = student_quantile(0.5 + CONFIDENCE / 2, self.degrees) * self.error
        return self.difference - half, self.difference + half

    @property
    def p(self) -> float | None:
        """The two-tailed p value."""
        return two_tailed(self.less, self.greater)


def two_tailed(less: float | None, greater: float | None) -> float | None:
    """Return the two-tailed p value of two one-tailed ones, None without both."""
    return None if less is None or greater is None else min(1.0, 2 * min(less, greater))


def summary(values: Sequence[float]) -> Summary:
    """Summary of at least one value; spread and interval need two. The interval is Student's."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return Summary(1, mean, None, None, None, mean, mean)
    deviation = statistics.stdev(values)
    error = deviation / math.sqrt(len(values))
    half = student_quantile(0.5 + CONFIDENCE / 2, float(len(values) - 1)) * error
    return Summary(len(values), mean, deviation, error, (mean - half, mean + half), min(values), max(values))


def welch(first: Sequence[float], second: Sequence[float], scale: float = 1.0) -> StatisticalTest:
    """Welch's t-test of equal means (Biometrika 34, 1947), with degrees of freedom after Satterthwaite.

    The first set is multiplied by `scale`. Without two values on each side there is a difference, but neither interval
    nor p. Sets without any spread give the t-test nothing to measure by: they are compared by their ranks.
    """
    difference = statistics.fmean(second) - scale * statistics.fmean(first)
    if min(len(first), len(second)) < 2:
        return StatisticalTest("no test: one training", difference)
    error, degrees = _error_and_degrees(first, second, scale)
    return rank_sum(first, second, scale) if error == 0 else _t_test("Welch", difference, error, degrees)


def paired_over_both(differences: Sequence[Sequence[float]]) -> StatisticalTest:
    """Test of a mean difference of 0 between two systems, over trainings and test units together.

    `differences` has a row for each seed and a column for each speaker (or utterance): both are samples of those there
    could be, as readers and cases are in Dorfman, Berbaum and Metz 1992 (Investigative Radiology 27). The degrees of
    freedom are Satterthwaite's from `FEWEST_SEEDS` seeds on. With fewer, for which these promise too much (7 % of false
    differences in place of 5), they are those of the seeds alone.
    """
    table = np.asarray(differences, dtype=np.float64)
    seeds, units = table.shape
    mean, of_seeds, of_units = table.mean(), table.mean(1, keepdims=True), table.mean(0, keepdims=True)
    difference = float(mean)
    if min(seeds, units) < 2:
        return StatisticalTest("no test: one seed or unit", difference)
    by_seed = units * float(((of_seeds - mean) ** 2).sum()) / (seeds - 1)
    by_unit = seeds * float(((of_units - mean) ** 2).sum()) / (units - 1)
    rest = float(((table - of_seeds - of_units + mean) ** 2).sum()) / ((seeds - 1) * (units - 1))
    total = by_seed + max(by_unit - rest, 0.0)
    if total == 0:
        return StatisticalTest("no test: all differences are equal", difference)
    degrees = float(seeds - 1)
    if seeds >= FEWEST_SEEDS:
        parts = by_seed**2 / (seeds - 1)
        if by_unit > rest:
            parts += by_unit**2 / (units - 1) + rest**2 / ((seeds - 1) * (units - 1))
        degrees = max(degrees, total**2 / parts)
    return _t_test("paired over seeds and units", difference, math.sqrt(total / (seeds * units)), degrees)


def rank_sum(first: Sequence[float], second: Sequence[float], scale: float = 1.0) -> StatisticalTest:
    """Wilcoxon's rank-sum test (Biometrics Bulletin 1, 1945), exact also where values are equal.

    Every choice of as many ranks as the second set has is equally likely; equal values share the mean of their ranks.
    It needs no distribution, and of a value no more than its place among the others.
    """
    values = [*(scale * value for value in first), *second]
    ranks = [2 * sum(other < value for other in values) + values.count(value) + 1 for value in values]  # doubled
    ways = np.zeros((len(second) + 1, sum(ranks) + 1))
    ways[0, 0] = 1.0
    for rank in ranks:
        ways[1:, rank:] += ways[:-1, :-rank].copy()
    share = ways[-1] / ways[-1].sum()
    reached = sum(ranks[len(first) :])
    difference = statistics.fmean(second) - scale * statistics.fmean(first)
    less, greater = float(share[: reached + 1].sum()), float(share[reached:].sum())
    return StatisticalTest("exact rank sum", difference, min(1.0, less), min(1.0, greater))


def ratio_interval(first: Sequence[float], second: Sequence[float], scale: float) -> Interval | None:
    """Fieller's 95 % interval of the second's mean over the first's, which Welch's test at `scale` agrees with.

    It holds `scale` where the two-tailed p of `welch(first, second, scale)` is above 0.05. None without two values on
    each side, and where the first's mean cannot be told from 0.
    """
    if min(len(first), len(second)) < 2:
        return None
    _, degrees = _error_and_degrees(first, second, scale)
    limit = student_quantile(0.5 + CONFIDENCE / 2, degrees) if degrees else 0.0
    means = [statistics.fmean(values) for values in (first, second)]
    parts = [limit**2 * statistics.variance(values) / len(values) for values in (first, second)]
    square, middle, last = means[0] ** 2 - parts[0], means[0] * means[1], means[1] ** 2 - parts[1]
    if square <= 0:
        return None
    half = math.sqrt(max(middle**2 - square * last, 0.0))
    return (middle - half) / square, (middle + half) / square


def brown_forsythe(first: Sequence[float], second: Sequence[float]) -> StatisticalTest:
    """Test of equal spread: distances from the median in an analysis of variance (Brown and Forsythe 1974, JASA 69).

    For two sets F with 1 and n - 2 degrees of freedom is the square of the t used here, with pooled variance. The
    difference is that of the mean distances; below 0 where the second set is narrower.
    """
    distances = [[abs(value - statistics.median(values)) for value in values] for values in (first, second)]
    difference = statistics.fmean(distances[1]) - statistics.fmean(distances[0])
    degrees = len(first) + len(second) - 2
    squares = sum(statistics.variance(each) * (len(each) - 1) for each in distances)
    error = math.sqrt(squares / degrees * (1 / len(first) + 1 / len(second)))
    if error == 0:
        return StatisticalTest("no test: all distances are equal", difference)
    return _t_test("Brown-Forsythe", difference, error, float(degrees))


def binomial_tails(count: int, trials: int, share: float = 0.5) -> tuple[float, float]:
    """Probabilities of at most and of at least `count` events in so many trials, each with a probability of `share`."""
    chances = [math.comb(trials, k) * share**k * (1 - share) ** (trials - k) for k in range(trials + 1)]
    return min(1.0, math.fsum(chances[: count + 1])), min(1.0, math.fsum(chances[count:]))


def fisher(first: tuple[int, int], second: tuple[int, int]) -> tuple[float, float]:
    """One-tailed p values of Fisher's exact test (1935): that the second share is lower, and that it is higher.

    Each is (count, trials); given the sum of both counts, all choices of so many trials are equally likely.
    """
    (count, trials), (other, others) = second, first
    total, ways = count + other, math.comb(trials + others, count + other)
    chances = {
        k: math.comb(trials, k) * math.comb(others, total - k) / ways
        for k in range(max(0, total - others), min(trials, total) + 1)
    }
    less = math.fsum(chance for k, chance in chances.items() if k <= count)
    return min(1.0, less), min(1.0, math.fsum(chance for k, chance in chances.items() if k >= count))


def share_interval(count: int, trials: int) -> Interval:
    """95 % interval of a share by Clopper and Pearson (Biometrika 26, 1934)."""
    tail = (1 - CONFIDENCE) / 2

    def bound(is_upper: bool) -> float:
        low, high = 0.0, 1.0
        for _ in range(50):
            middle = (low + high) / 2
            at_most, at_least = binomial_tails(count, trials, middle)
            is_low = at_most > tail if is_upper else at_least < tail
            low, high = (middle, high) if is_low else (low, middle)
        return (low + high) / 2

    return 0.0 if count == 0 else bound(False), 1.0 if count == trials else bound(True)


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Return adjusted p values by name (Holm 1979, Scandinavian Journal of Statistics 6).

    Taking those up to 0.05 for certain, the chance that any of them is false is at most 5 %, however they depend on
    each other.
    """
    adjusted, highest = {}, 0.0
    for rank, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[name]))
        adjusted[name] = highest
    return adjusted


def student(t: float, degrees: float) -> float:
    """Return the distribution function of Student's t (Abramowitz and Stegun 26.7.1); small values stay exact."""
    square = t * t
    if square < 1:
        central = mpmath.betainc(0.5, degrees / 2, 0, square / (degrees + square), regularized=True)
        return 0.5 + math.copysign(0.5 * float(central), t)
    tail = 0.5 * float(mpmath.betainc(degrees / 2, 0.5, 0, degrees / (degrees + square), regularized=True))
    return tail if t < 0 else 1 - tail


@functools.lru_cache(maxsize=256)
def student_quantile(share: float, degrees: float) -> float:
    """Return the quantile of Student's distribution at a share above a half, by Newton's method.

    The distribution function is concave above 0, so that steps from below never go too far; the quantile of the normal
    distribution is below all of them.
    """
    constant = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2) - 0.5 * math.log(degrees * math.pi)
    place = statistics.NormalDist().inv_cdf(share)
    for _ in range(60):
        density = math.exp(constant - (degrees + 1) / 2 * math.log1p(place * place / degrees))
        step = (share - student(place, degrees)) / density
        place += step
        if abs(step) < 1e-9 * place:
            break
    return place


def _t_test(name: str, difference: float, error: float, degrees: float) -> StatisticalTest:
    tail = student(-abs(difference) / error, degrees)
    less, greater = (tail, 1 - tail) if difference < 0 else (1 - tail, tail)
    return StatisticalTest(name, difference, less, greater, error, degrees)


def _error_and_degrees(first: Sequence[float], second: Sequence[float], scale: float) -> tuple[float, float]:
    """Return standard error of the difference of means, and its degrees of freedom; 0 where nothing spreads."""
    parts = [factor * statistics.variance(v) / len(v) for factor, v in ((scale**2, first), (1.0, second))]
    squares = sum(p**2 / (len(v) - 1) for p, v in zip(parts, (first, second), strict=True))
    return math.sqrt(sum(parts)), sum(parts) ** 2 / squares if squares else 0.0
