"""The trainings of a recipe: one job for each row and seed, with its directory and its progress.

A job's folder is `<runs>/<row>/<corpus>/seed<n>-<digest>`; the digest is of all that decides what is trained, so that
rows of several recipes share what is the same, and another setting never meets the run of a former one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from las.config.build import Config, compose
from las.config.groups import check_name
from las.reproduction.recipe import Recipe, Row, Tier
from las.runtime.errors import ConfigError
from las.storage import run_directory, run_records


@dataclass(frozen=True)
class Job:
    """One training. `copy` counts trainings with the same seed, from 1; `rate` is one of the tier's learning rates;
    `source` is the training that it begins with the best checkpoint of."""

    row: Row
    seed: int
    copy: int
    overrides: tuple[str, ...]
    config: Config
    directory: Path
    rate: float | None = None
    source: "Job | None" = None

    @property
    def digest(self) -> str:
        """The digest of all that decides what is trained, the seed included."""
        return self.directory.name.rpartition("-")[2]

    @property
    def result(self) -> dict[str, Any] | None:
        """The content of result.json if the training is finished or has diverged, else None."""
        return run_records.result(self.directory)

    def metrics(self) -> list[dict[str, Any]]:
        """Return the events so far, without an incomplete line at the end."""
        return run_records.events(self.directory)

    @property
    def step(self) -> int:
        """The last step in metrics.jsonl."""
        return _last_step(self.metrics())

    @property
    def max_steps(self) -> int:
        """The number of updates at which the training ends at the latest."""
        return int(self.config["trainer"]["max_steps"])


def merge(*groups: Iterable[str]) -> tuple[str, ...]:
    """Return overrides without those that a later one replaces (same key, with or without a plus)."""
    merged: dict[str, str] = {}
    for override in (each for group in groups for each in group):
        merged[override.partition("=")[0].lstrip("+")] = override
    return tuple(merged.values())


def overrides_of(recipe: Recipe, row: Row, tier_name: str, given: Sequence[str] = ()) -> tuple[str, ...]:
    """All overrides of a row except name, seed and directory: of the tier, the row, the corpus, and last `given`."""
    tier = recipe.tier(tier_name)
    at_tier = row.at.get(tier_name, ())
    before = merge(tier.overrides, row.overrides, at_tier, given)
    corpus = next((each.partition("=")[2] for each in before if each.startswith("corpus=")), "")
    return merge(tier.overrides, tier.per_corpus.get(corpus, ()), row.overrides, at_tier, given)


def jobs(
    recipe: Recipe,
    tier_name: str,
    seeds: int | None,
    runs: Path,
    given: Sequence[str],
) -> list[Job]:
    """Return the jobs of a recipe in the order in which they are trained: a seed of every row, then the next seed.

    At a tier with learning rates, each seed of a row is trained with each of them, or of the row's own. `optim.lr`
    among the overrides of a row or the `given` ones replaces the rates. Raises ConfigError for an unknown tier,
    mistakes in overrides, and a row after one that has several trainings with a seed.
    """
    tier = recipe.tier(tier_name)
    for key in ("name", "seed", "run_dir"):
        if any(override.partition("=")[0] == key for override in given):
            raise ConfigError(f"{key}=... is what the rows differ in: choose seeds=... and runs_dir=... instead")
    count = tier.seeds if seeds is None else seeds
    if count < 1:
        raise ConfigError(f"seeds={count} must be at least 1")
    planned = [(row, *which) for row in recipe.rows for which in _trainings(row, tier, count)]
    planned.sort(key=lambda each: each[1:])  # stable: rows keep their order within a seed
    made: list[Job] = []
    for row, seed, copy in planned:
        sources = [job for job in made if (job.row.name, job.seed) == (row.after, seed)]
        if row.after and len(sources) != 1:
            raise ConfigError(
                f"recipe {recipe.name}, row {row.name}: after: {row.after} has {len(sources)} trainings with seed "
                f"{seed}, and which of them it goes on from is open: one learning rate (optim.lr=...) makes it one"
            )
        for rate in _rates(row, tier, (*row.overrides, *row.at.get(tier_name, ()), *given)):
            source = sources[0] if sources else None
            made.append(_job(recipe, row, tier_name, seed, copy, runs, given, rate, source))
    return made


def _rates(row: Row, tier: Tier, overrides: Sequence[str]) -> tuple[float | None, ...]:
    """Return the learning rates that a row is trained with; None for that of its config or its `overrides`."""
    if not tier.rates or any(override.partition("=")[0] == "optim.lr" for override in overrides):
        return (None,)
    return row.rates or tier.rates


def _trainings(row: Row, tier: Tier, count: int) -> list[tuple[int, int]]:
    """(seed, copy) of each training of a row."""
    if row.repeat == "runs":
        return [(1, copy) for copy in range(1, min(count, tier.runs) + 1)]
    return [(seed, 1) for seed in range(1, count + 1)]


def _job(
    recipe: Recipe,
    row: Row,
    tier: str,
    seed: int,
    copy: int,
    runs: Path,
    given: Sequence[str],
    rate: float | None,
    source: Job | None,
) -> Job:
    name = f"{row.name}_{copy}" if row.repeat == "runs" else row.name
    own = (*given, *([] if rate is None else [f"optim.lr={rate:g}"]))
    overrides = (*overrides_of(recipe, row, tier, own), f"name={name}", f"seed={seed}")
    try:
        check_name("name", name)
        config = compose("train", list(overrides))
    except ConfigError as error:
        raise ConfigError(f"recipe {recipe.name}, row {row.name}: {error}") from error
    start = config["warm_start"]
    if source is not None:  # the digest is that of the folder below `runs`, and the same on every machine
        start = start | {"from": str(source.directory.relative_to(runs))}
    digest = run_directory.signature_digest(config | {"warm_start": start})
    directory = runs / name / config["corpus"]["name"] / f"seed{seed}-{digest}"
    config |= {"run_dir": str(directory)}
    overrides = (*overrides, _path("run_dir", directory))
    if source is not None:
        config |= {"warm_start": start | {"from": str(source.directory)}}
        overrides = merge(overrides, [_path("warm_start.from", source.directory)])
    return Job(row, seed, copy, overrides, config, directory, rate, source)


def _path(key: str, path: Path) -> str:
    """Return the override that sets a key to a path of any characters."""
    escaped = str(path).replace("\\", "\\\\").replace("'", "\\'")
    return f"{key}='{escaped}'"


def seconds(metrics: Sequence[dict[str, Any]]) -> float:
    """Seconds that a training computed: the time between its events, without pauses in which it was stopped."""
    return run_records.seconds([event["time"] for event in metrics])


def expected(waiting: Sequence[Job], finished: Sequence[Job]) -> dict[Path, float | None]:
    """Seconds that each job still needs, by the speed of finished ones: of its own row, else of all; None before any.

    The keys are the jobs' directories.
    """
    rates: dict[str, list[float]] = {}
    for job in finished if waiting else ():
        metrics = job.metrics()
        if (taken := seconds(metrics)) > 0:
            rates.setdefault(job.row.name, []).append(_last_step(metrics) / taken)
    of_all = [rate for each in rates.values() for rate in each]
    needed = dict[Path, float | None]()
    for job in waiting:
        known = rates.get(job.row.name, of_all)
        needed[job.directory] = (job.max_steps - job.step) / fmean(known) if known else None
    return needed


def _last_step(metrics: Sequence[dict[str, Any]]) -> int:
    return max((int(event.get("step", 0)) for event in metrics), default=0)
