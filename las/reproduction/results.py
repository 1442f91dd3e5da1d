"""The results of a recipe's trainings as plain numbers, from which tables and verdicts are made.

They are written beside the table (`recipes/results/<recipe>-<tier>-<corpus>.json`), so that verdicts can be computed
again without the runs.
"""

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from las.reproduction import weight_histograms
from las.reproduction.jobs import Job, seconds
from las.reproduction.recipe import Recipe
from las.reproduction.statistics import Summary, summary
from las.scoring import error_rates
from las.storage import atomic, bounded

LATE_SHARE = 0.1
"""The share of the last updates, whose mean loss is the final training loss."""

MEASURES = {
    "test": "error rate of the test",
    "dev": "best error rate of the dev part",
    "steps_to_converge": "step of the best dev error",
    "steps_to_within_one_percent": "first step within 1 % of the best dev error",
    "seconds": "time of training",
    "entropy": "entropy of attention at the best step",
    "diagonality": "diagonality of attention at the best step",
    "coverage": "coverage of attention at the best step",
    "train_loss": f"mean training loss of the last {100 * LATE_SHARE:.0f} % of updates",
    "dev_loss": "lowest dev loss",
    "last_dev_loss": "dev loss in the end",
    "loss_change": "mean change of the training loss from one update to the next, relative to it",
    "ics": "mean shift of a layer's gradient by the update below it, relative to the gradient",
    "loss_range": "range of the loss along the gradient, relative to the loss",
    "gradient_change": "largest change of the gradient along it, relative to its length",
    "beta": "effective beta in units of the weights' own norms",
    "weight_drift": "mean change of the weights' deciles from one validation to the next, in their standard deviations",
}
"""The numbers of a training, beside those of further test sets such as `hub5_01`."""


@dataclass(frozen=True)
class Outcome:
    """One training: numbers by name, or why it diverged. `interval` is the test error's, over speakers or utterances,
    as `interval_over` says."""

    seed: int
    copy: int
    steps: int
    commit: str
    broken: str
    values: Mapping[str, float]
    interval: tuple[float, float] | None
    interval_over: str = "utterances"


@dataclass(frozen=True)
class Line:
    """A row of the recipe with its trainings so far."""

    name: str
    label: str
    outcomes: tuple[Outcome, ...]

    @property
    def sound(self) -> list[Outcome]:
        """The outcomes of trainings that did not diverge."""
        return [outcome for outcome in self.outcomes if not outcome.broken]

    def values(self, measure: str) -> list[float]:
        """The values of a measure, of all trainings that have it."""
        return [outcome.values[measure] for outcome in self.sound if measure in outcome.values]

    def summary(self, measure: str) -> Summary | None:
        """Mean and spread, None without a value."""
        return summary(values) if (values := self.values(measure)) else None


@dataclass(frozen=True)
class Table:
    """All rows of a recipe on a corpus at a tier."""

    recipe: str
    tier: str
    corpus: str
    metric: str
    command: str
    lines: tuple[Line, ...]

    def line(self, name: str) -> Line:
        """A row by its name; without trainings where there is none."""
        return next((line for line in self.lines if line.name == name), Line(name, name, ()))

    @property
    def stem(self) -> str:
        """The common stem of the table's file names."""
        return f"{self.recipe}-{self.tier}-{self.corpus}"


def collect(recipe: Recipe, tier: str, jobs: Sequence[Job], command: str) -> Table:
    """The table of all jobs that are finished."""
    lines, metric = [], "phone_error_rate"
    for row in recipe.rows:
        outcomes = []
        for job in jobs:
            if job.row.name == row.name and (result := job.result) is not None:
                outcomes.append(outcome(job, result))
                metric = next((name for each in result["splits"].values() for name in _metrics(each)), metric)
        lines.append(Line(row.name, row.label, tuple(outcomes)))
    corpus = jobs[0].config["corpus"]["name"] if jobs else "none"
    return Table(recipe.name, tier, corpus, metric, command, tuple(lines))


def outcome(job: Job, result: Mapping[str, Any]) -> Outcome:
    """The numbers of one finished training."""
    metrics = job.metrics()
    values = _event_numbers(metrics) | rates(result["splits"])
    steps = ("steps_to_converge", "steps_to_within_one_percent")
    values |= {key: float(result[key]) for key in steps if key in result}
    values |= probes(job.directory / "analysis")
    if (drift := weight_drift(job.directory / "tensorboard")) is not None:
        values["weight_drift"] = drift
    test = test_split(result["splits"])
    interval = test.get("interval")
    return Outcome(
        seed=job.seed,
        copy=job.copy,
        steps=result["steps"],
        commit=str(result["commit"]),
        broken=result.get("broken", "").replace(str(job.directory), "the run folder"),
        values=values,
        interval=None if interval is None else (interval[0], interval[1]),
        interval_over=test.get("interval_over", "utterances"),
    )


def rates(splits: Mapping[str, Any]) -> dict[str, float]:
    """Error rates by name: `test` is the first split that is not the dev part; further ones have their own names."""
    by_name = {}
    for split, values in splits.items():
        rate = next(values[name] for name in _metrics(values))
        by_name[split.replace("-", "_")] = rate
        by_name |= {
            f"{split}_{name.lower()}": next(part[key] for key in _metrics(part))
            for name, part in values.get("subsets", {}).items()
        }
    if splits:
        by_name["dev"] = by_name[next(iter(splits)).replace("-", "_")]
        by_name["test"] = next(test_split(splits)[name] for name in _metrics(test_split(splits)))
    return by_name


def test_split(splits: Mapping[str, Any]) -> Mapping[str, Any]:
    """The first split after the dev part; the dev part where there is no other; nothing where nothing was decoded."""
    return next(itertools.islice(splits.values(), 1, None), next(iter(splits.values()), {}))


def _metrics(values: Mapping[str, Any]) -> list[str]:
    return [name for name in error_rates.SHORT_NAMES if name in values]


def _event_numbers(metrics: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Numbers from the events of a training."""
    losses = [event["loss"] for event in metrics if event.get("event") == "train"]
    validations = [event for event in metrics if event.get("event") == "validation"]
    numbers = {"seconds": seconds(list(map(dict, metrics)))}
    if losses:
        numbers["train_loss"] = statistics.fmean(losses[-max(1, round(LATE_SHARE * len(losses))) :])
    changes = [abs(b - a) / abs(a) for a, b in itertools.pairwise(losses) if a]
    if changes:
        numbers["loss_change"] = statistics.fmean(changes)
    if validations:
        best = min(validations, key=lambda event: (event["dev_error"], event["step"]))
        numbers |= {key: best["alignment"][key] for key in ("entropy", "diagonality", "coverage")}
        numbers["dev_loss"] = min(event["dev_loss"] for event in validations)
        numbers["last_dev_loss"] = validations[-1]["dev_loss"]
    return numbers


def weight_drift(board: Path) -> float | None:
    """The change of the weights' distributions, from the histograms of a run; None where there are none."""
    changes = [
        statistics.fmean(weight_histograms.changes(each))
        for each in weight_histograms.read(board).values()
        if len(each) > 1
    ]
    return statistics.fmean(changes) if changes else None


def probes(folder: Path) -> dict[str, float]:
    """Means over the probes of `las analyze` during a training; empty where there are none."""
    measured = {}
    if smoothness := bounded.stored_lines(folder / "smoothness.jsonl"):
        looks = [(each, each["gradient"]) for each in smoothness]
        measured["loss_range"] = statistics.fmean((max(g["losses"]) - min(g["losses"])) / e["loss"] for e, g in looks)
        measured["gradient_change"] = statistics.fmean(max(g["differences"]) / e["gradient_norm"] for e, g in looks)
        measured["beta"] = statistics.fmean(g["scale_free_beta"] for _, g in looks)
    # Nothing lies below the first group, whose shift is none.
    shifts = [group for each in bounded.stored_lines(folder / "covariate_shift.jsonl") for group in each["groups"][1:]]
    if shifts:
        measured["ics"] = statistics.fmean(group["weights"]["relative"] for group in shifts)
    return measured


def write(table: Table, path: Path) -> None:
    """Write a table as JSON."""
    atomic.write_json(path, asdict(table))


def read(path: Path) -> Table:
    """A table that `write` wrote."""
    values = bounded.stored(path)
    lines = []
    for line in values["lines"]:
        outcomes = [
            Outcome(**each | {"interval": None if each["interval"] is None else tuple(each["interval"])})
            for each in line["outcomes"]
        ]
        lines.append(Line(line["name"], line["label"], tuple(outcomes)))
    return Table(**values | {"lines": tuple(lines)})
