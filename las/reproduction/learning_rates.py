"""Learning rates of a table's rows: each row is trained once with every rate, and the best one on dev is taken."""

import math
from collections.abc import Sequence
from typing import Protocol, TypeVar


class Trained(Protocol):
    """A training with one of the rates; an `Outcome` is one."""

    @property
    def rate(self) -> float | None:
        """The learning rate."""

    @property
    def seed(self) -> int:
        """The seed; rates are compared with seed 1."""

    @property
    def broken(self) -> str:
        """The reason of a training that broke, else empty."""

    @property
    def dev_error(self) -> float:
        """The error rate of the dev part, a fraction; infinite where nothing was decoded."""


AnyTrained = TypeVar("AnyTrained", bound=Trained)


def best(trained: Sequence[AnyTrained], num_tried: int) -> float | None:
    """The rate with the lowest dev error with seed 1; None until all `num_tried` rates were trained.

    Broken trainings come last; of equals the lower rate is taken.
    """
    candidates = {each.rate: each for each in trained if each.seed == 1 and each.rate is not None}
    if len(candidates) < num_tried:
        return None
    ranked = [(bool(each.broken), each.dev_error, rate) for rate, each in candidates.items() if rate is not None]
    return min(ranked)[-1]


def divided(trained: Sequence[AnyTrained], num_tried: int) -> tuple[list[AnyTrained], list[AnyTrained]]:
    """Trainings of a row that count, with the chosen rate, and the others. Without rates all count."""
    if all(each.rate is None for each in trained):
        return list(trained), []
    rate = best(trained, num_tried)
    taken = [each for each in trained if each.rate == rate]
    return taken, [each for each in trained if each.rate != rate]


def at_edge(rate: float, tried: Sequence[float]) -> bool:
    """Return whether a rate is the lowest or the highest that was tried, so that a better one may lie beyond."""
    return math.isclose(rate, min(tried)) or math.isclose(rate, max(tried))
