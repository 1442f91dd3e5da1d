"""The results of a recipe's trainings as plain numbers, from which tables and verdicts are made.

They are written next to the table (`<recipe>-<tier>-<corpus>.json`), so that verdicts can be computed
again without the runs.
"""

import itertools
import json
import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from las.data.corpora.synthetic import LARGE
from las.reproduction import run_numbers
from las.reproduction.convergence import (
    LEVELS,
    SECONDS_TO_COMMON,
    STEPS_TO_COMMON,
    Curve,
    common_level,
    level_measures,
    times,
)
from las.reproduction.excerpts import Excerpt
from las.reproduction.jobs import Job
from las.reproduction.recipe import SMOKE, Recipe
from las.reproduction.run_numbers import LATE_SHARE
from las.reproduction.statistics import Summary, summary
from las.runtime.errors import StorageError
from las.scoring import error_rates
from las.storage import atomic, bounded, run_records

MEASURES = {
    "test": "error rate of the test",
    "dev": "best error rate of the dev part",
    "steps_to_converge": "step of the best dev error",
    "steps_to_within_one_percent": "first step within 1 % of the best dev error",
    "seconds": "time of training",
    "update_ms": "milliseconds per update in the fastest stretch between validations",
    "entropy": "entropy of attention at the best step",
    "diagonality": "diagonality of attention at the best step",
    "coverage": "coverage of attention at the best step",
    "train_loss": f"mean training loss of the last {100 * LATE_SHARE:.0f} % of updates",
    "dev_loss": "lowest dev loss",
    "last_dev_loss": "dev loss in the end",
    "loss_change": "mean change of the loss on the same utterances by an update, relative to it",
    "batch_loss_change": "mean difference of the losses of successive batches, relative to them",
    "ics": "mean shift of a layer's gradient by the update below it, relative to the gradient",
    "loss_range": "range of the loss along the gradient, at the same distances in all rows, relative to the loss",
    "gradient_change": "largest change of the gradient along it, at the same distances, relative to its length",
    "beta": "effective beta in units of the weights' own norms, at the same distances in all rows",
    "own_loss_range": "range of the loss along the gradient at distances of each row's own, relative to the loss",
    "own_gradient_change": "largest change of the gradient at distances of each row's own, relative to its length",
    "own_beta": "effective beta at distances of each row's own, in units of the weights' own norms",
    "weight_drift": "mean change of the deciles of weight matrices between validations, in standard deviations",
    "gain_drift": "the same of gains and biases",
    "mixed_weight_drift": "the same of matrices, gains and biases together, which are not the same in all rows",
    STEPS_TO_COMMON: "first step with the best dev error of the table's worst training",
    SECONDS_TO_COMMON: "seconds of training until then",
    **{level_measures(level)[0]: f"first step with a dev error of {100 * level:.0f} %" for level in LEVELS},
    **{level_measures(level)[1]: f"seconds to a dev error of {100 * level:.0f} %" for level in LEVELS},
}
"""The numbers of a training, besides those of further test sets such as `hub5_01`."""
EACH_SEED = "each seed, by dev loss"
"""The seeds and the measure that choose the learning rates of a table."""
FORMER = {
    "loss_change": "batch_loss_change",
    "loss_range": "own_loss_range",
    "gradient_change": "own_gradient_change",
    "beta": "own_beta",
    "weight_drift": "mixed_weight_drift",
}
"""Measures of tables without curves, those of earlier releases, under the names of what they measured."""


@dataclass(frozen=True)
class Outcome:
    """One training: numbers by name, or why it diverged. `interval` is the test error's, over speakers or utterances,
    as `interval_over` says.

    `curve` is None, `chance_error` unknown (None) and `digest`, that of the job, empty in tables of earlier releases;
    `select` is the criterion of the best checkpoint; `rate` is the learning rate where a tier tries several.
    """

    seed: int
    copy: int
    steps: int
    commit: str
    broken: str
    values: Mapping[str, float]
    interval: tuple[float, float] | None
    interval_over: str = "utterances"
    curve: Curve | None = None
    chance_error: float | None = None
    select: str = "dev_error"
    digest: str = ""
    rate: float | None = None

    @property
    def dev_loss(self) -> float:
        """The lowest dev loss; infinite where there is none."""
        return self.values.get("dev_loss", math.inf)

    @property
    def converged(self) -> bool | None:
        """True if dev got less than 2 % better over the last fifth of the steps; None where that is not known.

        Without a curve, a first step within 1 % of the best error before that tells that it did.
        """
        if self.curve is not None:
            return self.curve.converged(self.select)
        early = self.values.get("steps_to_within_one_percent", self.steps) <= (1 - run_records.LAST_SHARE) * self.steps
        return True if early else None


@dataclass(frozen=True)
class Line:
    """A row of the recipe with its trainings so far; `tried` are those with learning rates that were not chosen."""

    name: str
    label: str
    outcomes: tuple[Outcome, ...]
    tried: tuple[Outcome, ...] = ()

    @property
    def sound(self) -> list[Outcome]:
        """The outcomes of trainings that did not diverge."""
        return [outcome for outcome in self.outcomes if not outcome.broken]

    @property
    def num_converged(self) -> int | None:
        """The number of sound trainings that have converged; None where that is not known of one."""
        known = [outcome.converged for outcome in self.sound]
        return None if None in known else known.count(True)

    def values(self, measure: str) -> list[float]:
        """Return the values of a measure, of all trainings that have it."""
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
    excerpt: Excerpt | None = None
    """The part of run folders that pages show; None in tables of earlier releases."""
    chosen_by: str = "seed 1, by dev error"
    """The seeds and the measure that chose the learning rates; the default is that of earlier releases."""
    looks: tuple[int, ...] = ()
    """Numbers of seeds at which claims were judged while seeds were added (`until=decided`); empty without that."""

    def line(self, name: str) -> Line:
        """Return a row by its name; without trainings where there is none."""
        return next((line for line in self.lines if line.name == name), Line(name, name, ()))

    @property
    def common_level(self) -> float | None:
        """The best dev error of the worst training that is not broken, a fraction; None without curves."""
        sound = [outcome for line in self.lines for outcome in line.sound]
        return common_level([outcome.curve for outcome in sound if outcome.curve is not None])

    @property
    def stem(self) -> str:
        """The common stem of the table's file names."""
        return f"{self.recipe}-{self.tier}-{self.corpus}"


def stem(recipe: Recipe, tier: str, jobs: Sequence[Job]) -> str:
    """Return the common stem of the file names of a table of jobs."""
    return f"{recipe.name}-{tier}-{_corpus(jobs)}"


def _corpus(jobs: Sequence[Job]) -> str:
    return str(jobs[0].config["corpus"]["name"]) if jobs else "none"


def collect(
    recipe: Recipe, tier: str, jobs: Sequence[Job], command: str, known: Sequence[Table] = (), looks: Sequence[int] = ()
) -> Table:
    """Return the table of all finished jobs, here or in tables of former trainings, `known`, with their looks."""
    metric = known[0].metric if known else "phone_error_rate"
    former = stored(known, jobs)
    by_row: dict[str, list[Outcome]] = {row.name: [] for row in recipe.rows}
    for job in jobs:
        if (result := job.result) is not None:
            by_row[job.row.name].append(outcome(job, result, judged=tier != SMOKE))
            metric = next((name for each in result["splits"].values() for name in _metrics(each)), metric)
        elif job.directory in former:
            by_row[job.row.name].append(replace(former[job.directory], rate=job.rate))
    lines = []
    for row in recipe.rows:
        taken, others = divided(by_row[row.name], {job.rate for job in jobs if job.row.name == row.name})
        lines.append(Line(row.name, row.label, tuple(taken), tuple(others)))
    own = [table for table in known if table.recipe == recipe.name]
    excerpt = next((table.excerpt for table in reversed(own) if table.excerpt is not None), None)
    all_looks = tuple(sorted({*looks, *(look for table in own for look in table.looks)}))
    rows = Table(recipe.name, tier, _corpus(jobs), metric, command, tuple(lines), excerpt, EACH_SEED, all_looks)
    return with_times(rows)


def divided(trained: Sequence[Outcome], rates: Set[float | None]) -> tuple[list[Outcome], list[Outcome]]:
    """Divide a row's trainings into those that count and the others: each seed chooses its learning rate.

    It takes the lowest dev loss, once it is trained with all `rates`. Broken trainings come last; of equals the lower
    rate is taken. A choice made by one seed for all would be a chance that no interval over seeds contains.
    """
    taken, others = list[Outcome](), list[Outcome]()
    for _, group in itertools.groupby(trained, lambda each: (each.seed, each.copy)):
        best, *rest = sorted(group, key=lambda each: (bool(each.broken), each.dev_loss, each.rate or 0.0))
        is_whole = {best.rate, *(each.rate for each in rest)} >= rates
        (taken if is_whole else others).append(best)
        others += rest
    return taken, others


def stored(known: Sequence[Table], jobs: Sequence[Job]) -> dict[Path, Outcome]:
    """Return outcomes of jobs that tables have, by the jobs' folders: those of the same row, seed, copy and digest."""
    outcomes = {
        (line.name, each.seed, each.copy, each.digest): each
        for table in known
        for line in table.lines
        for each in (*line.outcomes, *line.tried)
        if each.digest
    }
    places = {job.directory: (job.row.name, job.seed, job.copy, job.digest) for job in jobs}
    return {folder: outcomes[place] for folder, place in places.items() if place in outcomes}


def with_times(table: Table) -> Table:
    """Return the table with each training's steps and seconds to the error that all reach, and to fixed ones."""
    common = table.common_level

    def timed(each: Outcome) -> Outcome:
        return each if each.curve is None else replace(each, values={**each.values, **times(each.curve, common)})

    return replace(table, lines=tuple(replace(line, outcomes=tuple(map(timed, line.outcomes))) for line in table.lines))


def outcome(job: Job, result: Mapping[str, Any], judged: bool = True) -> Outcome:
    """Return the numbers of one finished training.

    Unless `judged` is false, one that ends no better than chance is broken.
    """
    metrics = job.metrics()
    curve = Curve.of(metrics)
    chance_error = (result.get("chance_level") or {}).get("error")
    values = run_numbers.of_events(metrics) | rates(result["splits"])
    steps = ("steps_to_converge", "steps_to_within_one_percent")
    values |= {key: float(result[key]) for key in steps if result.get(key) is not None}
    values |= run_numbers.probes(job.directory / "analysis")
    values |= run_numbers.drifts(job.directory / "tensorboard")
    broken = (result.get("broken") or "").replace(str(job.directory), "the run folder")
    if judged and not broken and curve is not None:
        broken = below_chance(curve.dev_error[-1], chance_error)
    test = test_split(result["splits"])
    interval = test.get("interval")
    return Outcome(
        seed=job.seed,
        copy=job.copy,
        steps=result["steps"],
        commit=str(result.get("commit")),
        broken=broken,
        values=values,
        interval=None if interval is None else (interval[0], interval[1]),
        interval_over=test.get("interval_over") or "utterances",
        curve=curve,
        chance_error=chance_error,
        select=result.get("select") or "dev_error",
        digest=job.digest,
        rate=job.rate,
    )


def fault(job: Job) -> str:
    """Return a sentence about the files of a training that are damaged; empty if they are sound."""
    try:
        job.metrics()
        run_numbers.probes(job.directory / "analysis")
        splits = (job.result or {}).get("splits", {})
        if lacking := [split for split, values in splits.items() if not _metrics(values)]:
            raise StorageError(f"{job.directory / 'result.json'}: damaged (no error rate of {', '.join(lacking)})")
    except StorageError as error:
        return str(error)
    return ""


def below_chance(last_error: float, chance_error: float | None) -> str:
    """Reason why a training counts as broken, that it ends no better than chance; empty otherwise."""
    if chance_error is None or last_error < chance_error:
        return ""
    return (
        f"the dev error at the end, {100 * last_error:.1f} %, is not below the {100 * chance_error:.1f} % of a model "
        "that ignores the audio"
    )


def rates(splits: Mapping[str, Any]) -> dict[str, float]:
    """Error rates by name: `test` is that of `test_split`; further ones have their own names."""
    by_name = {}
    for split, values in splits.items():
        rate = next(values[name] for name in _metrics(values))
        by_name[split.replace("-", "_")] = rate
        by_name |= {
            f"{split}_{name.lower()}": next(part[key] for key in _metrics(part))
            for name, part in (values.get("subsets") or {}).items()
        }
    if splits:
        by_name["dev"] = by_name[next(iter(splits)).replace("-", "_")]
        by_name["test"] = next(test_split(splits)[name] for name in _metrics(test_split(splits)))
    return by_name


def test_split(splits: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part `test_large` if there is one, else the first after the dev part, or that; nothing without any."""
    if LARGE in splits:
        return splits[LARGE]
    return next(itertools.islice(splits.values(), 1, None), next(iter(splits.values()), {}))


def _metrics(values: Mapping[str, Any]) -> list[str]:
    return [name for name in error_rates.SHORT_NAMES if values.get(name) is not None]


def write(table: Table, path: Path) -> None:
    """Write a table as JSON, lists of numbers and of words on one line each."""
    excerpt = None if table.excerpt is None else table.excerpt.to_dict()
    atomic.write(path, _dumped(asdict(replace(table, excerpt=None)) | {"excerpt": excerpt}) + "\n")


def _dumped(value: Any, indent: str = "\n") -> str:
    inner = indent + " "
    if isinstance(value, Mapping) and value:
        parts = [f"{json.dumps(key, ensure_ascii=False)}: {_dumped(each, inner)}" for key, each in value.items()]
        return f"{{{inner}{f',{inner}'.join(parts)}{indent}}}"
    if isinstance(value, list | tuple) and any(isinstance(each, Mapping) for each in value):
        return f"[{inner}{f',{inner}'.join(_dumped(each, inner) for each in value)}{indent}]"
    return json.dumps(value, ensure_ascii=False)


def read(path: Path) -> Table:
    """Return a table that `write` wrote. Raises StorageError for any other content."""
    values = bounded.stored(path)
    try:
        lines = []
        for line in values["lines"]:
            outcomes, tried = (tuple(map(_read_outcome, line.get(key, ()))) for key in ("outcomes", "tried"))
            lines.append(Line(line["name"], line["label"], outcomes, tried))
        excerpt = None if values.get("excerpt") is None else Excerpt.from_dict(values["excerpt"])
        looks = tuple(values.get("looks", ()))
        return Table(**values | {"lines": tuple(lines), "excerpt": excerpt, "looks": looks})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StorageError(
            f"{path}: no table of results, or damaged ({error!r}): restore it, or move it away"
        ) from error


def _read_outcome(stored: Mapping[str, Any]) -> Outcome:
    """Return a training of a table; one that was written without a curve has the measures of earlier releases."""
    values = dict(stored)
    if values["interval"] is not None:
        values["interval"] = tuple(values["interval"])
    if "curve" not in values:
        values["values"] = {FORMER.get(name, name): value for name, value in values["values"].items()}
    elif values["curve"] is not None:
        values["curve"] = Curve.from_dict(values["curve"])
    return Outcome(**values)
