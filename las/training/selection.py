"""Selection of the best checkpoint from the validations of a training, the steps to it, and whether they suffice."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from las.runtime.errors import ConfigError, suggest
from las.storage import run_records

CRITERIA = ("dev_error", "dev_loss")
"""Criteria that the best checkpoint has least of."""


class DevResult(NamedTuple):
    """A validation of the stage that is trained."""

    step: int
    error: float
    """Error rate of the decoded hypotheses, a fraction; the perplexity of a language model."""
    loss: float = math.inf
    """Cross-entropy per token; infinite in checkpoints of releases that did not keep it."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values for result.json; a loss that is not known is None."""
        return {
            "step": self.step,
            "dev_error": self.error,
            "dev_loss": None if math.isinf(self.loss) else self.loss,
        }


class Selection(NamedTuple):
    """A rule that selects the best of several validations.

    A model that does not listen yet may decode one short sentence for every utterance, and have fewer errors so than
    while it learns to listen. So errors of `chance_error` and more (`las.training.chance`) are not compared: until a
    validation is below it, the dev loss decides by either criterion.
    """

    criterion: str = CRITERIA[0]
    """The name of a criterion in `CRITERIA`."""
    chance_error: float = math.inf

    def best(self, validations: Sequence[DevResult]) -> DevResult:
        """The validation that is selected; the earliest of equally good ones."""
        return min(validations, key=self._rank)

    def _rank(self, each: DevResult) -> tuple[int | float, ...]:
        if self.criterion == "dev_error" and each.error < self.chance_error:
            return 0, each.error, each.step
        return 1, each.loss, each.error, each.step


def require_criterion(criterion: str) -> None:
    """Raise ConfigError, with the nearest name, for a criterion that does not exist."""
    if criterion not in CRITERIA:
        raise ConfigError(f"trainer.select={criterion} does not exist.{suggest(criterion, CRITERIA)}")


class Convergence(NamedTuple):
    """Updates until a run was at its best. The two definitions differ by the tail of small improvements."""

    best_step: int
    """Step of the best dev error."""
    within_one_percent_step: int
    """First step whose dev error is within 1 % (relative) of it."""
    best_dev_error: float


def convergence(validations: Sequence[DevResult]) -> Convergence:
    """Find the steps to converge from validations in order; the earliest of equal errors counts."""
    best = min(validations, key=lambda each: (each.error, each.step))
    within = next(each.step for each in validations if each.error <= 1.01 * best.error)
    return Convergence(best.step, within, best.error)


def convergence_verdict(validations: Sequence[DevResult], criterion: str) -> str:
    """Say how much better a training still became at its end, by the rule that tables of recipes go by."""
    values = [each.error if criterion == "dev_error" else each.loss for each in validations]
    gain = run_records.late_gain([each.step for each in validations], values)
    if gain is None or not math.isfinite(gain):  # checkpoints of earlier releases lack losses
        return "too few validations to tell whether it has converged"
    what = f"{criterion} became {100 * gain:.1f} % better over the last fifth of the steps"
    return f"converged: {what}" if gain < run_records.STILL else f"not converged: {what}"


def summary(validations: Sequence[DevResult], selection: Selection) -> dict[str, Any]:
    """Entries of result.json about the validations: steps to the best, the choice of each criterion, the end."""
    steps = convergence(validations)
    choices = {each: selection._replace(criterion=each).best(validations) for each in CRITERIA}
    return {
        "steps_to_converge": steps.best_step,
        "steps_to_within_one_percent": steps.within_one_percent_step,
        "select": selection.criterion,
        "best_step": choices[selection.criterion].step,
        "choices": {name: choice.to_dict() for name, choice in choices.items()},
        "last": validations[-1].to_dict(),
    }
