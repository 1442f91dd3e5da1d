"""A row's trainings as one curve with a band: the mean over seeds at each step, from the lowest to the highest."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from las.reproduction.charts import Series
from las.reproduction.jobs import Job
from las.storage import bounded

Points = Mapping[int, float]
"""A number by step."""

MOST_POINTS = 250
MOST_PERCENT = 150.0
"""What a higher error rate is drawn as: before attention works they go into the hundreds."""


def of_validations(key: str) -> Callable[[Job], Points]:
    """A number of the validations of a training."""
    return lambda job: {
        event["step"]: float(event[key]) for event in job.metrics() if event.get("event") == "validation"
    }


def of_errors(job: Job) -> Points:
    """The error rates of a training's validations in percent, at most `MOST_PERCENT`."""
    return {step: min(100 * rate, MOST_PERCENT) for step, rate in of_validations("dev_error")(job).items()}


def of_updates(key: str) -> Callable[[Job], Points]:
    """A number of the updates of a training, means of neighbouring ones where there are many."""

    def read(job: Job) -> Points:
        found = [(event["step"], float(event[key])) for event in job.metrics() if event.get("event") == "train"]
        size = max(1, len(found) // MOST_POINTS)
        groups = [found[at : at + size] for at in range(0, len(found), size)]
        return {group[-1][0]: statistics.fmean(value for _, value in group) for group in groups}

    return read


def of_looks(read: Callable[[Mapping[str, Any]], float]) -> Callable[[Job], Points]:
    """A number of each look that `las analyze` took at the smoothness of a training."""
    return lambda job: {
        each["step"]: read(each) for each in bounded.stored_lines(job.directory / "analysis" / "smoothness.jsonl")
    }


def series(label: str, jobs: Sequence[Job], read: Callable[[Job], Points]) -> Series:
    """Of all trainings of a row that have points; at a step that some lack, of the others."""
    found = [points for job in jobs if (points := read(job))]
    steps = sorted({step for points in found for step in points})
    values: list[list[Any]] = [[points[step] for points in found if step in points] for step in steps]
    return Series(
        label,
        list(map(float, steps)),
        [statistics.fmean(v) for v in values],
        list(map(min, values)),
        list(map(max, values)),
    )
