"""When a training was as good as it got."""

from collections.abc import Sequence
from typing import NamedTuple


class Convergence(NamedTuple):
    """When a run was as good as it got, in updates. The two definitions differ by the tail of small improvements."""

    best_step: int
    """The step of the best dev error."""
    within_one_percent_step: int
    """The first step whose dev error is within 1 % (relative) of it."""
    best_dev_error: float


def convergence(validations: Sequence[tuple[int, float]]) -> Convergence:
    """Steps to converge from (step, dev error) pairs in order; the earliest of equal errors counts."""
    best_step, best_error = min(validations, key=lambda pair: (pair[1], pair[0]))
    within = next(step for step, error in validations if error <= 1.01 * best_error)
    return Convergence(best_step, within, best_error)
