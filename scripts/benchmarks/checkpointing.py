"""suite=safety: the cost of checkpoints in a training, beside updates and validations."""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.records import Group, Row, TableColumn, number, text
from benchmarks.settings import Settings
from las.runtime import machine
from las.training.training import Training

COLUMNS = (
    TableColumn("part of a training", text("implementation")),
    TableColumn("cell", text("cell")),
    TableColumn("times", number("times", 0)),
    TableColumn("median ms", number("median_ms", 1)),
    TableColumn("seconds", number("seconds", 2)),
    TableColumn("% of the training", number("share", 2, 100.0)),
    TableColumn("% of the updates", number("share_of_updates", 2, 100.0)),
)


def measure(settings: Settings) -> Iterator[Group]:
    """Measure the parts of a training: updates, validations, checkpoints.

    The training runs in a temporary folder on the disk of the runs.
    """
    steps = settings.config["steps"]
    options = settings.config["trainer"] | {"max_steps": steps, "patience": steps}
    place = machine.existing(Path(settings.config["run_dir"]))
    with tempfile.TemporaryDirectory(prefix=".las-safety-", dir=place) as name:
        config = settings.config | {"trainer": options, "run_dir": name}
        with Training.open(config) as training:
            trainer = next(training.trainers())
            clocks = {
                "validation": SaveTimer(trainer, "validator"),
                "checkpoint": SaveTimer(trainer.checkpointer, "save"),
            }
            began = time.perf_counter()
            trainer.fit()
            total_s = time.perf_counter() - began
    often = f"{options['validate_every']} steps" if options["validate_every"] else f"1/{options['sub_epochs']} epoch"
    shape = f"{config['name']} on {trainer.corpus.name}: {steps} steps, a checkpoint every {often}"
    measured = {name: clock.seconds for name, clock in clocks.items()}
    updates_s = total_s - sum(map(sum, measured.values()))
    measured = {"updates": [updates_s / steps] * steps} | measured
    rows = [settings.row(name, "", shape) | _shares(seconds, total_s, updates_s) for name, seconds in measured.items()]
    yield Group(shape, rows)


def _shares(seconds: list[float], total_s: float, updates_s: float) -> Row:
    return {
        "times": len(seconds),
        "median_ms": 1e3 * statistics.median(seconds),
        "seconds": sum(seconds),
        "share": sum(seconds) / total_s,
        "share_of_updates": sum(seconds) / updates_s,
    }


class SaveTimer:
    """A timer that replaces a method of an object and records the duration of each call in seconds."""

    def __init__(self, owner: object, name: str) -> None:
        self.seconds: list[float] = []
        self._call: Callable[..., Any] = getattr(owner, name)
        setattr(owner, name, self)

    def __call__(self, *positional: Any, **named: Any) -> Any:
        began = time.perf_counter()
        try:
            return self._call(*positional, **named)
        finally:
            self.seconds.append(time.perf_counter() - began)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)  # all other attributes are those of the method
