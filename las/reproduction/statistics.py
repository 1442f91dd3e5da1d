"""Statistics of a few repeated trainings: mean, spread, confidence intervals, and tests of two sets against each other.

All intervals are 95 % and all tests two-tailed. They are about trainings with other seeds, not about other test
utterances, which `las.scoring.bootstrap` is for.
"""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

import mpmath

CONFIDENCE = 0.95


class Summary(NamedTuple):
    """Summary of n values; `deviation` is the sample standard deviation (n - 1), `error` that of the mean."""

    n: int
    mean: float
    deviation: float | None
    error: float | None
    interval: tuple[float, float] | None
    lowest: float
    highest: float


class StatisticalTest(NamedTuple):
    """Comparison of two sets: the second's mean minus the first's, its 95 % interval, and p. `name` is the test's."""

    name: str
    difference: float
    interval: tuple[float, float] | None
    p: float | None


def summary(values: Sequence[float]) -> Summary:
    """Summary of at least one value; spread and interval need two. The interval is Student's."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return Summary(1, mean, None, None, None, mean, mean)
    deviation = statistics.stdev(values)
    error = deviation / math.sqrt(len(values))
    half = student_quantile(0.5 + CONFIDENCE / 2, float(len(values) - 1)) * error
    return Summary(len(values), mean, deviation, error, (mean - half, mean + half), min(values), max(values))


def welch(first: Sequence[float], second: Sequence[float]) -> StatisticalTest:
    """Welch's t-test of equal means (Biometrika 34, 1947), with degrees of freedom after Satterthwaite.

    Without two values on each side there is a difference, but neither interval nor p. Sets without any spread differ
    for certain or not at all.
    """
    difference = statistics.fmean(second) - statistics.fmean(first)
    if min(len(first), len(second)) < 2:
        return StatisticalTest("no test: one training", difference, None, None)
    parts = [statistics.variance(values) / len(values) for values in (first, second)]
    error = math.sqrt(sum(parts))
    if error == 0:
        return StatisticalTest("Welch", difference, (difference, difference), 1.0 if difference == 0 else 0.0)
    degrees = sum(parts) ** 2 / sum(p**2 / (len(v) - 1) for p, v in zip(parts, (first, second), strict=True))
    half = student_quantile(0.5 + CONFIDENCE / 2, degrees) * error
    p = 2 * (1 - student(abs(difference) / error, degrees))
    return StatisticalTest("Welch", difference, (difference - half, difference + half), p)


def brown_forsythe(first: Sequence[float], second: Sequence[float]) -> StatisticalTest:
    """Test of equal spread: distances from the median compared by their means (Brown and Forsythe 1974, JASA 69).

    The difference is that of the mean distances; below 0 where the second set is narrower.
    """
    distances = [[abs(value - statistics.median(values)) for value in values] for values in (first, second)]
    return welch(*distances)._replace(name="Brown-Forsythe")


def relative_gain(before: Sequence[float], after: Sequence[float]) -> StatisticalTest:
    """Relative reduction of the mean from `before` to `after`; the interval is Welch's, divided by the mean before."""
    test, base = welch(before, after), statistics.fmean(before)
    bounds = None if test.interval is None else (-test.interval[1] / base, -test.interval[0] / base)
    return StatisticalTest(test.name, -test.difference / base, bounds, test.p)


def student(t: float, degrees: float) -> float:
    """The distribution function of Student's t (Abramowitz and Stegun 26.7.1)."""
    square = t * t
    central = mpmath.betainc(0.5, degrees / 2, 0, square / (degrees + square), regularized=True)
    return 0.5 + math.copysign(0.5 * float(central), t)


def student_quantile(share: float, degrees: float) -> float:
    """The quantile of Student's distribution at a share above a half."""
    low, high = 0.0, 1.0
    while student(high, degrees) < share:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if student(middle, degrees) < share else (low, middle)
    return high
