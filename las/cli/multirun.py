"""`las decode -m checkpoint=a,b split=dev,test`: a verb once for each combination of values, in Hydra's order.

Sweeps of trainings are `las.cli.sweep`'s, which has launchers too.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any

from las.cli.show_config import as_composed
from las.config import build, groups
from las.config.overrides import combinations
from las.runtime import progress
from las.runtime.errors import ConfigError, LasError, MissingValueError

WRITTEN = ("output", "page", "alignments", "programs", "pictures")
"""Keys that name what a verb writes."""
BY_DEFAULT = {
    "decode": ("checkpoint", "split", "audio"),
    "tune": ("checkpoint",),
    "demo": ("run_dir",),
    "train_lm": ("run_dir",),
}
"""Keys that decide together where a verb writes if it is not told by `output`."""


def run(name: str, config_name: str, verb: Callable[[list[str]], Any], overrides: Sequence[str]) -> None:
    """Run a verb with each combination; one that fails does not end the others.

    Raises ConfigError before the first for an override that cannot be parsed and for two runs that would write the
    same file; LasError at the end, if runs failed.
    """
    groups.check_hydra(build.config_directory(), config_name, list(overrides))
    jobs = combinations(overrides)
    _require_apart(name, config_name, jobs)
    failed = []
    for number, job in enumerate(jobs, start=1):
        progress.say(f"== {number} of {len(jobs)}: las {name} {' '.join(job)}")
        try:
            verb(list(job))
        except LasError as error:
            print(f"las {name}: {error}", file=sys.stderr)
            failed.append(number)
    if failed:
        raise LasError(f"{len(failed)} of {len(jobs)} failed ({', '.join(map(str, failed))}): the reasons are above")


def _require_apart(name: str, config_name: str, jobs: Sequence[tuple[str, ...]]) -> None:
    """Raise ConfigError for two runs that would write to the same place."""
    writers: dict[tuple[str, ...], tuple[str, ...]] = {}
    for job in jobs:
        try:
            composed = build.compose(config_name, as_composed(name, list(job)))
        except MissingValueError:
            continue  # the verb says what is missing
        places: list[tuple[str, ...]] = [(key, str(composed[key])) for key in WRITTEN if composed.get(key) is not None]
        if name in BY_DEFAULT and composed.get("output") is None:
            places.append(("output", *(str(composed[key]) for key in BY_DEFAULT[name])))
        for place in places:
            if (other := writers.setdefault(place, job)) is not job:
                changed = next(a.partition("=")[0] for a, b in zip(job, other, strict=True) if a != b).lstrip("+")
                key = "name" if name in ("demo", "train_lm") else place[0]
                raise ConfigError(
                    f"two runs would write to the same place: {' '.join(other)} and {' '.join(job)}. Name it by what "
                    f"differs, in single quotes: '{key}=x_${{{changed}}}'"
                )
