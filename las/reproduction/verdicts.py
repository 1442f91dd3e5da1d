"""Verdicts on claims from the evidence that the rules (`las.reproduction.rules`) find in a table.

Verdicts: `supported` when it is 95 % certain that a claim holds, `not supported` when it is 95 % certain that it does
not, `undecided` else, and wherever a rule lacks trainings. Both take a two-tailed p of at most 0.05 after Holm's
correction for all claims that are judged together: the chance of any false verdict on a page is at most 5 %.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from las.reproduction import power as powers
from las.reproduction import statistics
from las.reproduction.power import LEVEL, LIMIT, Plan
from las.reproduction.results import Table
from las.reproduction.statistics import Interval

SUPPORTED, NOT_SUPPORTED, UNDECIDED = "supported", "not supported", "undecided"


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
    that it is true; None where the rule has no test. `text` is what was computed, with its numbers, or what is missing.
    """

    text: str
    supports: float | None = None
    opposes: float | None = None
    effect: float | None = None
    interval: Interval | None = None
    sensitivity: Sensitivity | None = None

    @property
    def p(self) -> float | None:
        """The two-tailed p value."""
        return statistics.two_tailed(self.supports, self.opposes)


class Verdict(NamedTuple):
    """A verdict with its reasons.

    Attributes:
        text: what was computed, with its numbers, or what is missing.
        effect: size of the effect, its 95 % `interval`: error rates and shares are fractions.
        p: two-tailed p value of the claim alone; `p_adjusted` is Holm's, over all claims that were judged together.
        power: chance of a verdict at this number of trainings if the effect has the size that matters
            (`las.reproduction.power`); `needed` trainings of each row give it a power of 80 %.
        trainings: the number of trainings of the row with the fewest; None without a test.
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


Rule = Callable[[Table], Evidence]


def decide(evidence: Mapping[str, Evidence]) -> dict[str, Verdict]:
    """A verdict for each claim by its name, their p values corrected for all of them together."""
    adjusted = statistics.holm({name: each.p for name, each in evidence.items() if each.p is not None})
    return {name: _verdict(each, adjusted.get(name)) for name, each in evidence.items()}


def _verdict(evidence: Evidence, p_adjusted: float | None) -> Verdict:
    parts = [evidence.text]
    verdict, power, needed, trainings = UNDECIDED, None, None, None
    if evidence.supports is not None and evidence.opposes is not None and p_adjusted is not None:
        parts.append(f"p = {evidence.p:.2g}, {p_adjusted:.2g} adjusted")
        if p_adjusted <= LEVEL:
            verdict = SUPPORTED if evidence.supports < evidence.opposes else NOT_SUPPORTED
    if evidence.sensitivity is not None:
        plan, trainings = evidence.sensitivity.plan, evidence.sensitivity.trainings
        power, needed = plan.power(trainings), powers.needed(plan)
        parts.append(_power_text(evidence.sensitivity, power, needed))
    text = "; ".join(parts)
    return Verdict(verdict, text, evidence.effect, evidence.interval, evidence.p, p_adjusted, power, needed, trainings)


def _power_text(sensitivity: Sensitivity, power: float, needed: int | None) -> str:
    """The power in words: what could have been seen, and how many trainings would see what matters."""
    size = sensitivity.plan.detectable(sensitivity.trainings)
    seen = "nothing" if size is None else sensitivity.detectable.format(f"{sensitivity.factor * size:.3g}")
    many = f"more than {LIMIT:,}" if needed is None else f"{needed:,}"
    return (
        f"could have seen {seen} with 80 %, {sensitivity.relevant} with {100 * power:.0f} %, "
        f"which needs {many} trainings of each row"
    )
