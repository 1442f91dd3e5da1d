"""Analyses during a training; they do not affect it: its result is bit for bit that of `las train`."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from rich.table import Table

from las.analysis import (
    alignments,
    contexts,
    covariate_shift,
    distributions,
    gradient_norms,
    moments,
    plots,
    reach,
    smoothness,
)
from las.analysis.probe import Probe, not_finite
from las.analysis.smoothness import Grid
from las.analysis.state_guard import unchanged
from las.data.loader import Batch
from las.runtime import progress
from las.runtime.errors import ConfigError, NumericalError, suggest
from las.storage import atomic, bounded
from las.training import plots as figures
from las.training.step import StepResult, TrainingStep

ANALYSES: dict[str, ModuleType] = {
    "alignments": alignments,
    "distributions": distributions,
    "gradient_norms": gradient_norms,
    "reach": reach,
    "moments": moments,
    "covariate_shift": covariate_shift,
    "smoothness": smoothness,
    "contexts": contexts,
}
"""Analyses of a model by name: modules with `measure`, `table` and `draw`."""

Measurement = dict[str, Any]


class AnalysisLog:
    """The results of analyses, step by step: one file `<analysis>.jsonl` each, and pictures.

    Args:
        folder: the directory of the files.
        names: keys of `ANALYSES`.
        grid: the step sizes of `smoothness`.
    """

    def __init__(self, folder: Path, names: Sequence[str], grid: Grid) -> None:
        for name in names:
            if name not in ANALYSES:
                raise ConfigError(f"what={name}: there is no such analysis.{suggest(name, ANALYSES)}")
        self.folder, self.names, self.grid = folder, names, grid
        self.history: dict[str, list[Measurement]] = {name: bounded.stored_lines(self._path(name)) for name in names}

    def record(self, subject: Probe) -> Mapping[str, Measurement]:
        """Run every analysis at a point of a training, and append the results to their files.

        The training is unchanged. Results of the same step or of later ones are replaced: a resumed training repeats
        them. Raises NumericalError where a result is not finite.
        """
        step, results = subject.step - 1, {}
        for name in self.names:
            with unchanged(subject.model, subject.updates.optimiser):
                options = {"grid": self.grid} if name == "smoothness" else {}
                results[name] = {"step": step, **ANALYSES[name].measure(subject, **options)}
            require_finite(name, results[name])
        for name, values in results.items():
            self.history[name] = [
                *(measurement for measurement in self.history[name] if measurement["step"] < step),
                values,
            ]
            lines = [json.dumps(measurement, allow_nan=False) + "\n" for measurement in self.history[name]]
            self.folder.mkdir(parents=True, exist_ok=True)
            atomic.write(self._path(name), "".join(lines))
        return results

    def tables(self) -> list[Table]:
        """Return the tables of the last point."""
        return [ANALYSES[name].table(points[-1]) for name, points in self.history.items() if points]

    def pictures(self, title: str) -> list[Path]:
        """Draw the last point and, over a training, curves over steps; returns the paths, none without matplotlib."""
        pictures = plots.PictureFolder(self.folder, title)
        if figures.available():
            for name, points in self.history.items():
                if points:
                    ANALYSES[name].draw(points, pictures)
        return pictures.written

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.jsonl"


def require_finite(name: str, results: Measurement) -> None:
    """Raise NumericalError, naming the analysis, if any number of its results is not finite."""
    try:
        json.dumps(results, allow_nan=False)
    except ValueError as error:
        raise not_finite(name) from error


class MonitoredStep(TrainingStep):
    """A training step that records the analyses before the first update and then every `every` updates.

    Args:
        updates: the training's own step, whose state is shared.
        record: called with the batches of an update and its number.
        every: the number of updates from one measurement to the next.
    """

    def __init__(self, updates: TrainingStep, record: Callable[[Sequence[Batch], int], None], every: int) -> None:
        if every < 1:
            raise ConfigError(f"every={every} must be at least 1")
        vars(self).update(vars(updates))
        self._record, self._every = record, every

    def start(self, batches: Sequence[Batch], step: int) -> Callable[[], StepResult]:
        if (step - 1) % self._every == 0:
            try:
                self._record(batches, step)
            except NumericalError as error:
                progress.say(f"step {step}: {error}")
        return super().start(batches, step)
