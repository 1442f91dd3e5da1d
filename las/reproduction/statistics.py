"""Numbers of a few repeated trainings: mean, spread, intervals, and whether two sets differ.

All intervals are 95 % and all tests two-tailed. They speak about trainings (another seed, another draw), not about the
utterances of the test, which `las.scoring.bootstrap` is for.
"""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

CONFIDENCE = 0.95
STEPS = 300  # of the continued fraction, far more than it needs


class Summary(NamedTuple):
    """Of n values; `deviation` is the sample standard deviation (n - 1), `error` that of the mean."""

    n: int
    mean: float
    deviation: float | None
    error: float | None
    interval: tuple[float, float] | None
    lowest: float
    highest: float


class Test(NamedTuple):
    """Two sets compared: the second's mean minus the first's, its 95 % interval, and p. `name` says which test."""

    name: str
    difference: float
    interval: tuple[float, float] | None
    p: float | None


def summary(values: Sequence[float]) -> Summary:
    """Of at least one value; spread and interval need two. The interval is Student's."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return Summary(1, mean, None, None, None, mean, mean)
    deviation = statistics.stdev(values)
    error = deviation / math.sqrt(len(values))
    half = student_quantile(0.5 + CONFIDENCE / 2, float(len(values) - 1)) * error
    return Summary(len(values), mean, deviation, error, (mean - half, mean + half), min(values), max(values))


def welch(first: Sequence[float], second: Sequence[float]) -> Test:
    """Do the means differ, whatever the variances? Welch 1947, Biometrika 34; degrees of freedom after Satterthwaite.

    Without two values on each side there is a difference, but neither interval nor p. Sets without any spread differ
    for certain or not at all.
    """
    difference = statistics.fmean(second) - statistics.fmean(first)
    if min(len(first), len(second)) < 2:
        return Test("no test: one training", difference, None, None)
    parts = [statistics.variance(values) / len(values) for values in (first, second)]
    error = math.sqrt(sum(parts))
    if error == 0:
        return Test("Welch", difference, (difference, difference), 1.0 if difference == 0 else 0.0)
    degrees = sum(parts) ** 2 / sum(p**2 / (len(v) - 1) for p, v in zip(parts, (first, second), strict=True))
    half = student_quantile(0.5 + CONFIDENCE / 2, degrees) * error
    p = 2 * (1 - student(abs(difference) / error, degrees))
    return Test("Welch", difference, (difference - half, difference + half), p)


def brown_forsythe(first: Sequence[float], second: Sequence[float]) -> Test:
    """Does one set spread wider? Distances from the median compared by their means (Brown and Forsythe 1974, JASA 69).

    The difference is that of the mean distances; below 0 where the second set is narrower.
    """
    distances = [[abs(value - statistics.median(values)) for value in values] for values in (first, second)]
    return welch(*distances)._replace(name="Brown-Forsythe")


def relative_gain(before: Sequence[float], after: Sequence[float]) -> Test:
    """By what share the mean fell from `before` to `after`; the interval is Welch's, divided by the mean before."""
    test, base = welch(before, after), statistics.fmean(before)
    bounds = None if test.interval is None else (-test.interval[1] / base, -test.interval[0] / base)
    return Test(test.name, -test.difference / base, bounds, test.p)


def student(t: float, degrees: float) -> float:
    """The distribution function of Student's t (Abramowitz and Stegun 26.7.1)."""
    square = t * t
    if square < degrees:  # near the middle: the share between 0 and t, which a tail near a half would round away
        return 0.5 + math.copysign(0.5 * _incomplete_beta(0.5, degrees / 2, square / (degrees + square)), t)
    tail = 0.5 * _incomplete_beta(degrees / 2, 0.5, degrees / (degrees + square))
    return 1 - tail if t > 0 else tail


def student_quantile(share: float, degrees: float) -> float:
    """The t below which a share of Student's distribution lies, for shares above a half."""
    low, high = 0.0, 1.0
    while student(high, degrees) < share:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if student(middle, degrees) < share else (low, middle)
    return high


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b) by its continued fraction (Abramowitz and Stegun 26.5.8)."""
    if x in (0.0, 1.0):
        return x
    if x > (a + 1) / (a + b + 2):  # there the fraction of the other side converges fast
        return 1 - _incomplete_beta(b, a, 1 - x)
    front = a * math.log(x) + b * math.log1p(-x) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    value = 1.0
    for step in range(STEPS, 0, -1):  # from the inside out
        half, odd = divmod(step, 2)
        if odd:
            term = -(a + half) * (a + b + half) / ((a + 2 * half) * (a + 2 * half + 1))
        else:
            term = half * (b - half) / ((a + 2 * half - 1) * (a + 2 * half))
        value = 1 + term * x / value
    return math.exp(front) / (a * value)
