"""A training that is looked at now and then, and does not notice: its result is bit for bit that of `las train`."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from rich.table import Table

from las.analysis import alignments, covariate_shift, distributions, gradient_norms, moments, plots, smoothness
from las.analysis.probe import Probe
from las.analysis.smoothness import Grid
from las.analysis.state_guard import unchanged
from las.data.loader import Batch
from las.runtime import progress
from las.runtime.errors import ConfigError, NumericalError, suggest
from las.storage import atomic, bounded
from las.training import plots as training_plots
from las.training.step import StepResult, TrainingStep

ANALYSES: dict[str, ModuleType] = {
    "alignments": alignments,
    "distributions": distributions,
    "gradient_norms": gradient_norms,
    "moments": moments,
    "covariate_shift": covariate_shift,
    "smoothness": smoothness,
}
"""Of a model, by name: modules with `measure`, `table` and `draw`."""

Found = dict[str, Any]


class AnalysisLog:
    """What analyses found, step by step: one file `<analysis>.jsonl` each, and pictures.

    Args:
        folder: of the files.
        names: of the analyses.
        grid: of `smoothness`.
    """

    def __init__(self, folder: Path, names: Sequence[str], grid: Grid) -> None:
        for name in names:
            if name not in ANALYSES:
                raise ConfigError(f"what={name}: there is no such analysis.{suggest(name, ANALYSES)}")
        self.folder, self.names, self.grid = folder, names, grid
        self.history: dict[str, list[Found]] = {name: bounded.stored_lines(self._path(name)) for name in names}

    def look(self, subject: Probe) -> Mapping[str, Found]:
        """Measure everything at a point of a training, which stays as it is, and write it down.

        What was found at that step before, or at a later one, is forgotten: a training that was resumed repeats it.
        """
        step, found = subject.step - 1, {}
        for name in self.names:
            with unchanged(subject.model, subject.updates.optimiser):
                options = {"grid": self.grid} if name == "smoothness" else {}
                found[name] = {"step": step, **ANALYSES[name].measure(subject, **options)}
        for name, values in found.items():
            self.history[name] = [*(each for each in self.history[name] if each["step"] < step), values]
            lines = [json.dumps(each, allow_nan=False) + "\n" for each in self.history[name]]
            self.folder.mkdir(parents=True, exist_ok=True)
            atomic.write(self._path(name), "".join(lines))
        return found

    def tables(self) -> list[Table]:
        """Of the last point."""
        return [ANALYSES[name].table(found[-1]) for name, found in self.history.items() if found]

    def pictures(self, title: str) -> list[Path]:
        """Of the last point and, of a training, over its steps; none without matplotlib."""
        place = plots.Place(self.folder, title)
        if training_plots.available():
            for name, found in self.history.items():
                if found:
                    ANALYSES[name].draw(found, place)
        return place.written

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.jsonl"


class MonitoredStep(TrainingStep):
    """The same updates, looked at before the first and then before every so many.

    Args:
        updates: those of the training; what they remember is remembered here too.
        look: called with the batches of an update and its number.
        every: steps from one look to the next.
    """

    def __init__(self, updates: TrainingStep, look: Callable[[Sequence[Batch], int], None], every: int) -> None:
        if every < 1:
            raise ConfigError(f"every={every} must be at least 1")
        vars(self).update(vars(updates))
        self._look, self._every = look, every

    def __call__(self, batches: Sequence[Batch], step: int) -> StepResult:
        if (step - 1) % self._every == 0:
            try:
                self._look(batches, step)
            except NumericalError as error:
                progress.say(f"step {step}: {error}")
        return super().__call__(batches, step)
