"""A row's trainings as one curve with a band: the mean over seeds at each step, from the lowest to the highest."""

import math
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np

from las.storage import bounded

Points = Mapping[int, float]
"""A value for each step."""


class Series(NamedTuple):
    """A line, its band, and its name in the legend."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]

    def thinned(self, count: int) -> "Series":
        """Return the line at most `count` of its points, evenly spread, with four digits of its values."""
        chosen = [round(place) for place in np.linspace(0, len(self.x) - 1, min(count, len(self.x)))]
        values = ([float(f"{part[index]:.4g}") for index in chosen] for part in self[2:])
        return Series(self.name, [self.x[index] for index in chosen], *values)


@runtime_checkable
class Training(Protocol):
    """A run folder with the events of its training; a `Job` is one."""

    @property
    def directory(self) -> Path:
        """The run folder."""

    def metrics(self) -> list[dict[str, Any]]:
        """Return the events so far."""


Read = TypeVar("Read")
POINTS_LIMIT = 250
HIGHEST_PERCENT = 150.0
"""Higher error rates are drawn here: before attention works they go into the hundreds."""


def validation_values(key: str) -> Callable[[Training], Points]:
    """One value of each validation of a training, by its key."""
    return lambda job: {
        event["step"]: float(event[key]) for event in job.metrics() if event.get("event") == "validation"
    }


def validation_error_rates(job: Training) -> Points:
    """Return the error rates of a training's validations in percent, at most `HIGHEST_PERCENT`."""
    return {step: drawn_rate(rate) for step, rate in validation_values("dev_error")(job).items()}


def drawn_rate(rate: float) -> float:
    """Return an error rate in percent, at most `HIGHEST_PERCENT`."""
    return min(100 * rate, HIGHEST_PERCENT)


def log10(value: float) -> float:
    """Return the logarithm of a positive number, and that of the smallest double for zero."""
    return math.log10(max(value, sys.float_info.min))


def update_values(key: str, scale: Callable[[float], float] = float) -> Callable[[Training], Points]:
    """One value of each update of a training, by its key and on a scale; means of neighbours where there are many."""

    def read(job: Training) -> Points:
        trained = [event for event in job.metrics() if event.get("event") == "train" and event.get(key) is not None]
        updates = [(event["step"], scale(event[key])) for event in trained]
        size = max(1, len(updates) // POINTS_LIMIT)
        groups = [updates[start : start + size] for start in range(0, len(updates), size)]
        return {group[-1][0]: statistics.fmean(value for _, value in group) for group in groups}

    return read


def probe_values(read: Callable[[Mapping[str, Any]], float]) -> Callable[[Training], Points]:
    """One value of each probe of a training's smoothness by `las analyze`."""
    return lambda job: {
        each["step"]: read(each) for each in bounded.stored_lines(job.directory / "analysis" / "smoothness.jsonl")
    }


def series(label: str, jobs: Sequence[Read], read: Callable[[Read], Points]) -> Series:
    """Return the curve of a row from all its trainings that have points; at each step, from those that reach it.

    Trainings are validated at steps of their own, since epochs differ by an update: in between they are interpolated.
    """
    curves = [dict(sorted(points.items())) for job in jobs if (points := read(job))]
    steps = sorted({step for points in curves for step in points})
    reaching = [np.interp(steps, [*each], [*each.values()], left=math.nan, right=math.nan) for each in curves]
    values = [[float(value) for value in at_step if not math.isnan(value)] for at_step in zip(*reaching, strict=True)]
    return Series(
        label,
        list(map(float, steps)),
        [statistics.fmean(v) for v in values],
        list(map(min, values)),
        list(map(max, values)),
    )
