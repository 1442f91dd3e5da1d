"""The trainings of a recipe's rows, one after another or some at the same time.

A training that diverges leaves its result. Each is what `las train` does with the same overrides.
"""

import contextlib
import os
import warnings
from collections.abc import Callable, Sequence

from las.analysis.smoothness import COMMON_GRID
from las.cli import analyze, prepare
from las.cli import train as cli_train
from las.config.targets import Surroundings
from las.reproduction import jobs as reproduction_jobs
from las.reproduction.jobs import Job
from las.runtime import progress
from las.runtime.errors import LasError, NumericalError

MONITORED = ("covariate_shift", "smoothness")
"""The analyses that `look_every` records during trainings."""
COMMON_DISTANCES = tuple(f"grid.{key}={value}" for key, value in vars(COMMON_GRID).items())
"""Overrides that measure smoothness at the same distances in all rows."""


def train(
    jobs: Sequence[Job], at_once: int, look_every: int | None = None, finished: Callable[[], None] = lambda: None
) -> None:
    """Train jobs one after another, or some at the same time in processes of joblib's; `finished` is called after each.

    The corpora are prepared first, so that no two trainings make the same one; those that begin with others come after
    all of these. Raises LasError without joblib, NumericalError for one that begins with a broken one.
    """
    if at_once == 1 or len(jobs) < 2:
        for number, job in enumerate(jobs, start=1):
            progress.say(f"== {number} of {len(jobs)}: {job.row.name}, seed {job.seed}")
            _require_source(job)
            train_one(job.overrides, look_every)
            finished()
        return
    begun = [job for job in jobs if job.source in jobs]
    if begun:
        train([job for job in jobs if job not in begun], at_once, look_every, finished)
        train(begun, at_once, look_every, finished)
        return
    for job in jobs:
        _require_source(job)
    try:
        from joblib import Parallel, delayed
    except ImportError as error:
        raise LasError("jobs=... of more than one needs joblib: pip install 'las-asr[joblib]'") from error
    prepare.prepare(list(jobs[0].overrides))
    threads = f"trainer.threads={max(1, (os.cpu_count() or 1) // at_once)}"
    work = (
        delayed(train_unseen)(reproduction_jobs.merge([threads], job.overrides), look_every, Surroundings.here())
        for job in jobs
    )
    answers = Parallel(n_jobs=at_once, return_as="generator_unordered")(work)
    with warnings.catch_warnings():
        # joblib replaces a process that has grown between two trainings, which is as intended, and warns of it.
        warnings.filterwarnings("ignore", "A worker stopped while some jobs were given", UserWarning)
        for number, answer in enumerate(answers, start=1):
            progress.say(f"{number} of {len(jobs)}: {answer}")
            finished()


def _require_source(job: Job) -> None:
    if job.source is not None and "broken" in (job.source.result or {}):
        raise NumericalError(
            f"row {job.row.name}, seed {job.seed}, begins with {job.source.directory}, which broke: leave it out with "
            "rows=[...] or fewer seeds=..."
        )


def train_one(overrides: Sequence[str], look_every: int | None = None) -> str:
    """Train, decode and score; a diverged training leaves its result. Returns a one-line summary.

    With `look_every` covariate shift and smoothness are measured on the way (`las.analysis`).
    """
    name = next(override for override in reversed(overrides) if override.startswith("name="))
    try:
        if look_every is not None:
            analyze.analyze([f"what=[{','.join(MONITORED)}]", f"every={look_every}", *COMMON_DISTANCES, *overrides])
        result = cli_train.train(list(overrides))
    except NumericalError as error:
        progress.say(f"diverged; recorded as a result: {error}")
        return f"{name} broken: {error}"
    return f"{name} seed={result['seed']}: {cli_train.summary(result)}"


def train_unseen(overrides: Sequence[str], look_every: int | None, surroundings: Surroundings) -> str:
    """Run `train_one` in a process of its own, which writes only to the logs of its runs."""
    with (
        open(os.devnull, "w", encoding="utf-8") as nowhere,
        contextlib.redirect_stdout(nowhere),
        surroundings.entered(),
    ):
        return train_one(overrides, look_every)
