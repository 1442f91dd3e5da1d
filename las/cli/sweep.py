"""Verbs for each combination of values, in Hydra's order: `las train -m seed=1,2,3 +experiment=a,b`.

Trainings run by Hydra's sweeper and launchers, other verbs one after another. Each training has the run folder that it
would have alone, so a sweep that was stopped goes on where it was, and a training that is finished is not repeated. One
that diverges is recorded as a result, and the others go on.
"""

import functools
import hashlib
import importlib.metadata
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import OmegaConf

from las.cli.main import as_composed
from las.cli.train import say_unreached, summary, train_config
from las.config import folders as config_folders
from las.config import groups, tracebacks
from las.config.build import compose, config_directory
from las.config.groups import HYDRA, OF_SWEEPS
from las.config.overrides import combinations
from las.config.targets import Surroundings
from las.runtime import progress, signals
from las.runtime.errors import ConfigError, LasError, MissingValueError, NumericalError
from las.storage import atomic, bounded, run_records

Job = tuple[str, ...]
"""The overrides of one combination."""
Place = tuple[str, ...]
SWEEPS = Path("runs/sweeps")
"""The folder of what launchers write, and of the answers while a sweep is running."""
FLAGS = ("-m", "--multirun")
LAUNCHERS = {
    "submitit_local": ("hydra-submitit-launcher", "slurm"),
    "submitit_slurm": ("hydra-submitit-launcher", "slurm"),
    "joblib": ("hydra-joblib-launcher", "joblib"),
}
"""Launchers besides Hydra's own one: the package each is in, and the extra of las that installs it."""
WRITTEN = ("output", "page", "alignments", "programs", "pictures")
"""Keys that name what a verb writes."""
BY_DEFAULT = {
    "decode": ("checkpoint", "split", "audio"),
    "tune": ("checkpoint",),
    "demo": ("run_dir",),
    "train_lm": ("run_dir",),
}
"""Keys that decide together where a verb writes if it is not told by `output`."""


def train(overrides: list[str]) -> list[dict[str, Any] | None]:
    """Train all combinations; returns what result.json of each holds, in Hydra's order, None for those without one.

    Each training answers for itself, in whatever process a launcher starts it: a run folder may hold the result of
    another run. Raises ConfigError before anything is trained, for a combination that does not compose and for two
    that would share a run folder; LasError at the end, for trainings that did not come to a result.
    """
    chosen = [override for override in overrides if override not in FLAGS]
    _require_known(chosen)
    _require_launcher(chosen)
    jobs = combinations(chosen)
    configs = [compose("train", list(job)) for job in jobs]
    folders = [Path(config["run_dir"]) for config in configs]
    if (shared := _shared([((str(folder),), job) for folder, job in zip(folders, jobs, strict=True)])) is not None:
        (place,), other, job = shared
        raise ConfigError(
            f"two trainings would share {place}: {' '.join(other)} and {' '.join(job)}. Name them by what differs, in "
            f"single quotes: 'name=x_${{{_differs(job, other)}}}'"
        )
    if any(config_folders.own()):
        _require_package_section(chosen, jobs)
    progress.say(f"{len(jobs)} trainings")
    for job, config in zip(jobs, configs, strict=True):
        say_unreached(config, job)
    SWEEPS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="answers-", dir=SWEEPS) as place:
        ended = _launch(chosen, Path(place).absolute())
        answers = [_answer(Path(place), folder, ended) for folder in folders]
    for folder, answer in zip(folders, answers, strict=True):
        progress.say(f"{folder}: {summary(answer.result) if answer.result else f'no result: {answer.reason}'}")
    if failed := [str(folder) for folder, answer in zip(folders, answers, strict=True) if answer.result is None]:
        raise LasError(
            f"{len(failed)} of {len(jobs)} trainings have no result, for the reasons above: {', '.join(failed)}. The "
            "same command continues"
        )
    return [answer.result for answer in answers]


class Answer(NamedTuple):
    """Outcome of a training of a sweep: its result, or the reason why there is none."""

    result: dict[str, Any] | None = None
    reason: str = ""


def _launch(overrides: list[str], answers: Path) -> str:
    """Run all trainings by Hydra's launcher; returns why it ended early, empty if it did not."""
    try:
        with config_folders.plain_errors(), config_folders.hydra(config_directory()) as hydra:
            hydra.multirun("sweep", functools.partial(train_one, answers, Surroundings.here()), overrides)
    except ConfigError:
        raise
    except Exception as error:  # a launcher raises errors of its own where one of its processes was killed
        return f"{type(error).__name__}: {error}".strip()
    return ""


def train_one(answers: Path, surroundings: Surroundings, composed: Any) -> None:
    """Run one training of a sweep, here or elsewhere, and write its answer. A failure does not end the others.

    A signal is for the whole sweep: the process ends with the code of a training that was stopped.
    """
    config: Any = OmegaConf.to_container(composed, resolve=True)
    progress.say(f"== {config['run_dir']}")
    try:
        with surroundings.entered():
            answer = Answer(train_config(config))
    except signals.Interrupted as error:
        print(f"las train: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from error
    except NumericalError as error:
        progress.say(str(error))
        answer = Answer(run_records.result(surroundings.directory / config["run_dir"]), str(error))
    except LasError as error:
        print(f"las train: {error}", file=sys.stderr)
        answer = Answer(reason=str(error))
    except Exception as error:  # a bug: its traceback is printed, and the sweep goes on
        print(tracebacks.formatted(error), end="", file=sys.stderr)
        answer = Answer(reason=f"{type(error).__name__}: {error}")
    atomic.write_json(_place(answers, Path(config["run_dir"])), answer._asdict())


def _answer(answers: Path, folder: Path, ended: str) -> Answer:
    """Return the answer of the training in a run folder; `ended` says why the launcher ended early."""
    path = _place(answers, folder)
    if path.exists():
        return Answer(**bounded.stored(path))
    return Answer(reason=f"its process ended without an answer{f' ({ended})' if ended else ''}")


def _place(answers: Path, folder: Path) -> Path:
    return answers / f"{hashlib.sha256(str(folder).encode()).hexdigest()}.json"


def _require_known(overrides: Sequence[str]) -> None:
    """Raise ConfigError for Hydra keys that a sweep does not support: they would do nothing, or harm."""
    for override in overrides:
        key = override.lstrip("+~").partition("=")[0]
        if HYDRA.match(key) and not key.startswith(OF_SWEEPS):
            raise ConfigError(
                f"{override}: of Hydra's own keys a sweep takes {', '.join(OF_SWEEPS)}. Runs lie where run_dir says: "
                "'run_dir=/tmp/x/${name}/seed${seed}'"
            )


def _require_package_section(chosen: Sequence[str], jobs: Sequence[tuple[str, ...]]) -> None:
    """Raise ConfigError if Hydra's own section, of the sweep or of a training, is set by an option."""
    directory, of_hydra = config_directory(), [override for override in chosen if HYDRA.match(override)]
    with config_folders.plain_errors():
        whole = config_folders.load(directory, "sweep", chosen, multirun=True)
        groups.check_section(directory, "sweep", chosen, whole)
        for job in jobs:
            overrides = [*of_hydra, *job]
            groups.check_section(directory, "sweep", overrides, config_folders.load(directory, "sweep", overrides))


def _require_launcher(overrides: Sequence[str]) -> None:
    for override in overrides:
        key, _, name = override.partition("=")
        if key == "hydra/launcher" and name in LAUNCHERS:
            package, extra = LAUNCHERS[name]
            try:
                importlib.metadata.version(package)
            except importlib.metadata.PackageNotFoundError as error:
                raise ConfigError(f"{override} needs {package}: pip install 'las-asr[{extra}]'") from error


def run(name: str, config_name: str, verb: Callable[[list[str]], Any], overrides: Sequence[str]) -> None:
    """Run another verb than `train` with each combination; one that fails does not end the others.

    Raises ConfigError before the first for an override that cannot be parsed and for two runs that would write the
    same file; LasError at the end, if runs failed.
    """
    groups.check_hydra(config_directory(), config_name, list(overrides))
    jobs = combinations(overrides)
    _require_other_places(name, config_name, jobs)
    failed = []
    for number, job in enumerate(jobs, start=1):
        progress.say(f"== {number} of {len(jobs)}: las {name} {' '.join(job)}")
        try:
            verb(list(job))
        except LasError as error:
            print(f"las {name}: {error}", file=sys.stderr)
            failed.append(str(number))
    if failed:
        raise LasError(f"{len(failed)} of {len(jobs)} failed ({', '.join(failed)}): the reasons are above")


def _require_other_places(name: str, config_name: str, jobs: Sequence[tuple[str, ...]]) -> None:
    """Raise ConfigError for two runs that would write to the same place."""
    places: list[tuple[Place, Job]] = []
    for job in jobs:
        try:
            composed = compose(config_name, as_composed(name, list(job)))
        except MissingValueError:
            continue  # the verb says what is missing
        places += [((key, str(composed[key])), job) for key in WRITTEN if composed.get(key) is not None]
        if name in BY_DEFAULT and composed.get("output") is None:
            places.append((("output", *(str(composed[key]) for key in BY_DEFAULT[name])), job))
    if (shared := _shared(places)) is not None:
        place, other, job = shared
        raise ConfigError(
            f"two runs would write to the same place: {' '.join(other)} and {' '.join(job)}. Name it by what differs, "
            f"in single quotes: '{'name' if name in ('demo', 'train_lm') else place[0]}=x_${{{_differs(job, other)}}}'"
        )


def _shared(places: Sequence[tuple[Place, Job]]) -> tuple[Place, Job, Job] | None:
    """Return the first place that two jobs write to, with both."""
    writers: dict[Place, Job] = {}
    for place, job in places:
        if (other := writers.setdefault(place, job)) is not job:
            return place, other, job
    return None


def _differs(job: Job, other: Job) -> str:
    return next(a.partition("=")[0] for a, b in zip(job, other, strict=True) if a != b).lstrip("+")
