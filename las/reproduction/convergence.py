"""Convergence of trainings at levels that they share, from their dev curves.

The step of a row's own best dev error is no measure of its speed: it lies at the end of most trainings, and a row that
is stuck reaches its own best first. Here all rows of a table are timed to the same dev errors: the best one of the
worst training, and fixed levels.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from las.storage import run_records

LEVELS = (0.5, 0.3, 0.2, 0.1)
"""Fixed dev errors, as fractions."""
STEPS_TO_COMMON, SECONDS_TO_COMMON = "steps_to_common_error", "seconds_to_common_error"


@dataclass(frozen=True)
class Curve:
    """The validations of a training: steps, seconds of training until then, dev errors (fractions) and dev losses.

    `train_loss` is the mean loss of the updates since the validation before; empty in tables of earlier releases.
    """

    steps: tuple[int, ...]
    seconds: tuple[float, ...]
    dev_error: tuple[float, ...]
    dev_loss: tuple[float, ...]
    train_loss: tuple[float, ...] = ()

    @classmethod
    def of(cls, metrics: Sequence[Mapping[str, Any]]) -> "Curve | None":
        """Return the curve of the events of a training, None without validations."""
        points, losses, loss, seconds, before = [], list[float](), 0.0, 0.0, None
        for event in metrics:
            seconds += 0.0 if before is None else run_records.gap(before, event["time"])
            before = event["time"]
            if event.get("event") == "train":
                losses.append(event["loss"])
            if event.get("event") == "validation":
                loss, losses = statistics.fmean(losses) if losses else loss, []
                points.append((event["step"], seconds, event["dev_error"], event["dev_loss"], round(loss, 5)))
        return cls(*map(tuple, zip(*points, strict=True))) if points else None

    @classmethod
    def from_dict(cls, values: Mapping[str, Sequence[Any]]) -> "Curve":
        """Return the inverse of `dataclasses.asdict`, after a way through JSON."""
        return cls(**{name: tuple(value) for name, value in values.items()})

    def first(self, level: float) -> int | None:
        """Return the index of the first validation with a dev error of at most a level, None where there is none."""
        return next((index for index, error in enumerate(self.dev_error) if error <= level), None)

    def late_gain(self, quantity: str) -> float | None:
        """Compute the gain of the best `dev_error` or `dev_loss` over the last fifth of the steps."""
        return run_records.late_gain(self.steps, getattr(self, quantity))

    def converged(self, quantity: str) -> bool:
        """Return True if that gain is known and below `run_records.STILL`."""
        gain = self.late_gain(quantity)
        return gain is not None and gain < run_records.STILL


def common_level(curves: Sequence[Curve]) -> float | None:
    """Return the best dev error of the worst of several trainings, which all of them reach; None without curves."""
    return max((min(curve.dev_error) for curve in curves), default=None)


def level_measures(level: float) -> tuple[str, str]:
    """Return the names of the steps and the seconds to a fixed level."""
    return f"steps_to_{100 * level:.0f}_percent", f"seconds_to_{100 * level:.0f}_percent"


def times(curve: Curve, common: float | None) -> dict[str, float]:
    """Return steps and seconds to the common level and to the fixed ones, by name, without those not reached."""
    levels = {level_measures(level): level for level in LEVELS}
    if common is not None:
        levels[STEPS_TO_COMMON, SECONDS_TO_COMMON] = common
    reached: dict[str, float] = {}
    for (steps, seconds), level in levels.items():
        if (index := curve.first(level)) is not None:
            reached |= {steps: float(curve.steps[index]), seconds: curve.seconds[index]}
    return reached
