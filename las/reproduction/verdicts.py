"""Verdicts on claims from the evidence that the rules (`las.reproduction.rules`) find in a table.

Verdicts: `supported` when it is 95 % certain that a claim holds, `not supported` when it is 95 % certain that it does
not (both a two-tailed p of at most 0.05), `too small to matter` when neither is and it is 95 % certain that the effect
is below the size that matters (two one-sided tests), `undecided` else, and wherever a rule lacks trainings. All p
values are corrected by Holm for the family of claims: the chance of any false verdict in a family is at most 5 %.

The power of a rule is the chance that it sees an effect of a size that matters, by the number of trainings. Powers and
numbers of trainings count the family's correction as Bonferroni's, and take the spread that was observed for the true
one. The sizes that matter are fixed beforehand, not taken from the results: the power of a test for the effect that it
found says no more than its p value.
"""

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from las.reproduction import statistics
from las.reproduction.results import Table
from las.reproduction.statistics import Interval

SUPPORTED, NOT_SUPPORTED, UNDECIDED = "supported", "not supported", "undecided"
TOO_SMALL, WITHDRAWN = "too small to matter", "withdrawn"
LEVEL, WANTED = 0.05, 0.8
"""The p value of a verdict, and the power that a rule should have."""
RELEVANT = 0.1
"""The effect on a mean that should be seen: a tenth of the baseline's, about the gain that both papers report."""
RELEVANT_SPREAD = 2.0
"""The ratio of two standard deviations that should be seen."""
RELEVANT_SHARE = 0.9
"""The share of trainings that should be seen, where other rows have none."""
LIMIT = 1_000_000
"""The largest number of trainings that is looked at."""


class Plan(ABC):
    """The power of a rule at n trainings of each row, and the smallest effect that it sees with a power of `WANTED`."""

    @abstractmethod
    def power(self, n: int, level: float = LEVEL) -> float:
        """Return the chance of seeing the effect that matters with a p of at most `level`."""

    @abstractmethod
    def detectable(self, n: int, level: float = LEVEL) -> float | None:
        """Return the smallest effect that is seen with a power of `WANTED`; None where it sees none."""


@dataclass(frozen=True)
class MeanPlan(Plan):
    """Power of Welch's test. `variances` are those of the two sets, `relevant` the difference that matters."""

    variances: tuple[float, float]
    relevant: float

    def power(self, n: int, level: float = LEVEL) -> float:
        """Return the chance of seeing the difference that matters."""
        error, degrees = self._error_and_degrees(n)
        return t_power(self.relevant / error, degrees, level) if error else 1.0

    def detectable(self, n: int, level: float = LEVEL) -> float:
        """Return the smallest difference that is seen."""
        error, degrees = self._error_and_degrees(n)
        return error * _smallest(lambda shift: t_power(shift, degrees, level), 1e4) if error else 0.0

    def _error_and_degrees(self, n: int) -> tuple[float, float]:
        total, squares = sum(self.variances), sum(variance**2 for variance in self.variances)
        return math.sqrt(total / n), (n - 1) * total**2 / squares if squares else 0.0


@dataclass(frozen=True)
class RankPlan(Plan):
    """Power of the exact rank-sum test: it sees rows that do not overlap as soon as their ranks can be rare enough."""

    def power(self, n: int, level: float = LEVEL) -> float:
        """1 where no overlap at all suffices for a verdict, else 0."""
        return float(n > 30 or 2 / math.comb(2 * n, n) <= level)

    def detectable(self, n: int, level: float = LEVEL) -> float | None:
        """No size, which ranks have not: 0 where rows that do not overlap are seen."""
        return 0.0 if self.power(n, level) else None


@dataclass(frozen=True)
class SpreadPlan(Plan):
    """Power of the Brown-Forsythe test between normal distributions.

    The distance of a normal value from the middle has a mean of √(2/π) and a variance of 1 - 2/π standard deviations.
    """

    def power(self, n: int, level: float = LEVEL) -> float:
        """Return the chance of seeing a standard deviation `RELEVANT_SPREAD` times as large."""
        return self._power(RELEVANT_SPREAD, n, level)

    def detectable(self, n: int, level: float = LEVEL) -> float | None:
        """Return the smallest ratio of standard deviations that is seen."""
        ratio = _smallest(lambda ratio: self._power(1 + ratio, n, level), 1e3) + 1
        return ratio if self._power(ratio, n, level) > WANTED - 0.01 else None

    def _power(self, ratio: float, n: int, level: float) -> float:
        shift = (ratio - 1) * math.sqrt(2 / math.pi)
        return t_power(shift / math.sqrt((1 - 2 / math.pi) * (1 + ratio**2) / n), 2.0 * n - 2, level)


@dataclass(frozen=True)
class SharePlan(Plan):
    """Power of Fisher's test of `rows` shares at once, each against `others` rows together, of which none has it."""

    rows: int
    others: int

    def power(self, n: int, level: float = LEVEL) -> float:
        """Return the chance of seeing all shares where each is `RELEVANT_SHARE`."""
        return self._power(RELEVANT_SHARE, n, level)

    def detectable(self, n: int, level: float = LEVEL) -> float | None:
        """Return the smallest share that is seen in all rows."""
        share = _smallest(lambda share: self._power(share, n, level), 1.0)
        return share if self._power(share, n, level) > WANTED - 0.01 else None

    def _power(self, share: float, n: int, level: float) -> float:
        seen = (k for k in range(n + 1) if 2 * statistics.fisher((0, self.others * n), (k, n))[1] <= level)
        enough = next(seen, None)
        return 0.0 if enough is None else statistics.binomial_tails(enough, n, share)[1] ** self.rows


class Sensitivity(NamedTuple):
    """The plan of a test and its trainings of each row, for the power that is printed beside a verdict.

    `detectable` names an effect, with `{}` for its size times `factor`; `relevant` names the effect that matters.
    """

    plan: Plan
    trainings: int
    detectable: str
    relevant: str
    factor: float = 1.0


class Evidence(NamedTuple):
    """The outcome of a rule before it is known how many claims are judged with it.

    `supports` is the one-tailed p value of the hypothesis that the claim is false, `opposes` that of the hypothesis
    that it is true; None where the rule has no test. `small` is the p value of the hypothesis that the effect matters.
    `text` is what was computed, with its numbers, or what is missing.
    """

    text: str
    supports: float | None = None
    opposes: float | None = None
    effect: float | None = None
    interval: Interval | None = None
    sensitivity: Sensitivity | None = None
    small: float | None = None

    @property
    def p_of_sign(self) -> float | None:
        """The two-tailed p value of the claim."""
        return statistics.two_tailed(self.supports, self.opposes)

    @property
    def p(self) -> float | None:
        """The smaller p value, of the claim or of an effect that matters. At most one of both verdicts can be false."""
        known = [each for each in (self.p_of_sign, self.small) if each is not None]
        return min(known, default=None)


class Verdict(NamedTuple):
    """A verdict with its reasons.

    Attributes:
        text: what was computed, with its numbers, or what is missing.
        effect: size of the effect, its 95 % `interval`: error rates and shares are fractions.
        p: p value of the claim alone (`Evidence.p`); `p_adjusted` is Holm's, over its family.
        power: chance of a verdict at this number of trainings if the effect has the size that matters
            (`Plan`); `needed` trainings of each row give it a power of 80 %.
        trainings: the number of trainings of the row with the fewest; None without a test.
        family: the claims that share their 5 %.
    """

    verdict: str
    text: str
    effect: float | None = None
    interval: Interval | None = None
    p: float | None = None
    p_adjusted: float | None = None
    power: float | None = None
    needed: int | None = None
    trainings: int | None = None
    family: str = ""

    @property
    def answer(self) -> str:
        """The verdict as pages print it: where it is undecided, the number of trainings that would decide."""
        if self.verdict != UNDECIDED or self.trainings is None:
            return self.verdict
        return f"undecided: needs {'more than ' * (self.needed is None)}{self.needed or LIMIT:,} trainings of each row"


Rule = Callable[[Table], Evidence]


def decide(evidence: Mapping[str, Evidence], family: str = "") -> dict[str, Verdict]:
    """Return a verdict for each claim of a family by its name; a test that answers several claims is counted once."""
    p_values = {each.text: each.p for each in evidence.values() if each.p is not None}
    adjusted = statistics.holm(p_values)
    level = LEVEL / max(1, len(p_values))
    return {name: _verdict(each, adjusted.get(each.text), level, family) for name, each in evidence.items()}


def _verdict(evidence: Evidence, p_adjusted: float | None, level: float, family: str) -> Verdict:
    parts = [evidence.text]
    verdict, power, needed, trainings = UNDECIDED, None, None, None
    if evidence.p is not None and p_adjusted is not None:
        parts.append(f"p = {evidence.p:.2g}, {p_adjusted:.2g} adjusted")
        verdict = _decided(evidence, p_adjusted / evidence.p if evidence.p else 1.0)
    if evidence.sensitivity is not None:
        plan, trainings = evidence.sensitivity.plan, evidence.sensitivity.trainings
        power, needed = plan.power(trainings, level), trainings_needed(plan, level)
        parts.append(_power_text(evidence.sensitivity, power, needed, level))
    numbers = evidence.effect, evidence.interval, evidence.p, p_adjusted, power, needed, trainings
    return Verdict(verdict, "; ".join(parts), *numbers, family)


def _decided(evidence: Evidence, correction: float) -> str:
    """Return the verdict by p values times a correction: what the claim says first, then whether the effect matters."""
    sign, supports, opposes = evidence.p_of_sign, evidence.supports, evidence.opposes
    if sign is not None and supports is not None and opposes is not None and sign * correction <= LEVEL:
        return SUPPORTED if supports < opposes else NOT_SUPPORTED
    return TOO_SMALL if evidence.small is not None and evidence.small * correction <= LEVEL else UNDECIDED


def _power_text(sensitivity: Sensitivity, power: float, needed: int | None, level: float) -> str:
    """Return the power in words: what could have been seen, and how many trainings would see what matters."""
    size = sensitivity.plan.detectable(sensitivity.trainings, level)
    seen = "nothing" if size is None else sensitivity.detectable.format(f"{sensitivity.factor * size:.3g}")
    many = f"more than {LIMIT:,}" if needed is None else f"{needed:,}"
    return (
        f"could have seen {seen} with 80 %, {sensitivity.relevant} with {100 * power:.0f} %, "
        f"which needs {many} trainings of each row"
    )


def trainings_needed(plan: Plan, level: float = LEVEL) -> int | None:
    """Return the least number of trainings of each row with a power of `WANTED`; None where `LIMIT` are not enough."""
    low, high = 1, 2
    while plan.power(high, level) < WANTED:
        if high == LIMIT:
            return None
        low, high = high, min(2 * high, LIMIT)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if plan.power(middle, level) >= WANTED else (middle, high)
    return high


def t_power(shift: float, degrees: float, level: float = LEVEL) -> float:
    """Return the power of a two-tailed t-test, where the difference is so many standard errors: the tail on its side.

    The noncentral t distribution, with the standard deviation's chi distribution summed over a grid.
    """
    reached, weights = _limits(degrees, level)
    return sum(w * math.erfc((limit - shift) / math.sqrt(2)) / 2 for limit, w in zip(reached, weights, strict=True))


@functools.lru_cache(maxsize=256)
def _limits(degrees: float, level: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the smallest differences that are seen, in true standard errors, by the estimated one; its weights."""
    spread = 8 / math.sqrt(degrees)
    ratio = np.linspace(max(1e-3, 1 - spread), 1 + spread, 300)  # of the estimated deviation to the true one
    density = np.exp((degrees - 1) * np.log(ratio) - degrees * (ratio**2 - 1) / 2)
    limit = statistics.student_quantile(1 - level / 2, degrees)
    return tuple((limit * ratio).tolist()), tuple((density / density.sum()).tolist())


def _smallest(power: Callable[[float], float], largest: float) -> float:
    """Return the smallest effect with a power of `WANTED`, at most `largest`."""
    low, high = 0.0, largest
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if power(middle) >= WANTED else (middle, high)
    return high
