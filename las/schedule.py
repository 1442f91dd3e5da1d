"""Learning rates over time. A schedule is plain data plus two questions, so that a checkpoint can carry it.

factor(step)                what the optimiser's base learning rate is multiplied by at this step
validated(dev_loss)         tells the schedule the outcome of a validation
"""

from dataclasses import asdict, dataclass, fields
from typing import Any

from las.errors import ConfigError


@dataclass
class Schedule:
    """Constant learning rate after a linear warm-up.

    Args:
        warmup_steps: steps from 1 / warmup_steps of the learning rate to all of it.
    """

    warmup_steps: int = 0

    def __post_init__(self) -> None:
        if self.warmup_steps < 0:
            raise ConfigError(f"schedule.warmup_steps={self.warmup_steps} must be at least 0")

    def factor(self, step: int) -> float:
        """Multiplier of the base learning rate for the update number `step`, counted from 1."""
        return min(1.0, step / self.warmup_steps) if self.warmup_steps else 1.0

    def validated(self, dev_loss: float) -> None:
        """Called after each validation with the dev loss (lower is better)."""

    def state_dict(self) -> dict[str, Any]:
        """Everything as plain JSON values."""
        return asdict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of `state_dict`."""
        for field in fields(self):
            setattr(self, field.name, state[field.name])


@dataclass
class Newbob(Schedule):
    """Decay when a validation no longer improves enough (the rule known as newbob since QuickNet).

    Args:
        decay: multiplies the learning rate after such a validation.
        threshold: relative improvement of the dev loss that counts, e.g. 0.0025.
        patience: validations without one that are forgiven before each decay.
        floor: the multiplier never falls below this.
    """

    decay: float = 0.5
    threshold: float = 0.0025
    patience: int = 0
    floor: float = 0.0
    current: float = 1.0
    best: float | None = None
    without_improvement: int = 0

    def factor(self, step: int) -> float:
        return super().factor(step) * self.current

    def validated(self, dev_loss: float) -> None:
        improved = self.best is None or dev_loss < self.best * (1.0 - self.threshold)
        self.without_improvement = 0 if improved else self.without_improvement + 1
        if self.without_improvement > self.patience:
            self.current = max(self.floor, self.current * self.decay)
            self.without_improvement = 0
        self.best = dev_loss if self.best is None else min(self.best, dev_loss)


@dataclass
class Exponential(Schedule):
    """Smooth decay to `final` of the learning rate over `decay_steps`, constant from there on.

    Args:
        start_step: steps before the decay begins.
        decay_steps: steps of the decay.
        final: the multiplier at its end.
    """

    start_step: int = 0
    decay_steps: int = 10_000
    final: float = 0.1

    def factor(self, step: int) -> float:
        progress = min(1.0, max(0.0, (step - self.start_step) / self.decay_steps))
        return super().factor(step) * self.final**progress
