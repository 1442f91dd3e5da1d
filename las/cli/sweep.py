"""`las train -m seed=1,2,3 +experiment=a,b`: one training for each combination, by Hydra's sweeper and launchers.

Each training has the run folder that it would have alone, so a sweep that was stopped goes on where it was, and a
training that is finished is not repeated. One that diverges is recorded as a result, and the others go on.
"""

import functools
import hashlib
import importlib.metadata
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import OmegaConf

from las.cli.train import say_unreached, summary, train_config
from las.config import folders as config_folders
from las.config import hydra_section, tracebacks
from las.config.build import compose, config_directory
from las.config.groups import HYDRA
from las.config.hydra_section import OF_SWEEPS
from las.config.overrides import combinations
from las.runtime import progress, signals
from las.runtime.errors import ConfigError, LasError, NumericalError
from las.storage import atomic, bounded, run_records

SWEEPS = Path("runs/sweeps")
"""The folder of what launchers write, and of the answers while a sweep is running."""
FLAGS = ("-m", "--multirun")
LAUNCHERS = {
    "submitit_local": ("hydra-submitit-launcher", "slurm"),
    "submitit_slurm": ("hydra-submitit-launcher", "slurm"),
    "joblib": ("hydra-joblib-launcher", "joblib"),
}
"""Launchers besides Hydra's own one: the package each is in, and the extra of las that installs it."""


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
    _require_apart(jobs, folders)
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
            hydra.multirun("sweep", functools.partial(train_one, answers), overrides)
    except ConfigError:
        raise
    except Exception as error:  # a launcher raises errors of its own where one of its processes was killed
        return f"{type(error).__name__}: {error}".strip()
    return ""


def train_one(answers: Path, composed: Any) -> None:
    """Run one training of a sweep, here or elsewhere, and write its answer. A failure does not end the others.

    A signal is for the whole sweep: the process ends with the code of a training that was stopped.
    """
    config: Any = OmegaConf.to_container(composed, resolve=True)
    progress.say(f"== {config['run_dir']}")
    try:
        answer = Answer(train_config(config))
    except signals.Interrupted as error:
        print(f"las train: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from error
    except NumericalError as error:
        progress.say(str(error))
        answer = Answer(run_records.result(Path(config["run_dir"])), str(error))
    except LasError as error:
        print(f"las train: {error}", file=sys.stderr)
        answer = Answer(reason=str(error))
    except Exception as error:  # a bug: its traceback is printed, and the sweep goes on
        print(tracebacks.formatted(error), end="", file=sys.stderr)
        answer = Answer(reason=f"{type(error).__name__}: {error}")
    atomic.write_json(_place(answers, Path(config["run_dir"])), answer._asdict())


def _answer(answers: Path, folder: Path, ended: str) -> Answer:
    """The answer of the training in a run folder; `ended` says why the launcher ended early."""
    path = _place(answers, folder)
    if path.exists():
        return Answer(**bounded.stored(path))
    return Answer(reason=f"its process ended without an answer{f' ({ended})' if ended else ''}")


def _place(answers: Path, folder: Path) -> Path:
    return answers / f"{hashlib.sha256(str(folder).encode()).hexdigest()}.json"


def _require_apart(jobs: Sequence[tuple[str, ...]], folders: Sequence[Path]) -> None:
    job_by_folder: dict[Path, tuple[str, ...]] = {}
    for job, folder in zip(jobs, folders, strict=True):
        if (other := job_by_folder.setdefault(folder, job)) is not job:
            changed = next(b.partition("=")[0] for a, b in zip(other, job, strict=True) if a != b).lstrip("+")
            raise ConfigError(
                f"two trainings would share {folder}: {' '.join(other)} and {' '.join(job)}. Name them by what "
                f"differs, in single quotes: 'name=x_${{{changed}}}'"
            )


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
    """Raise ConfigError if Hydra's own section, of the sweep or of a training, is set by a card."""
    directory, of_hydra = config_directory(), [override for override in chosen if HYDRA.match(override)]
    with config_folders.plain_errors():
        whole = config_folders.load(directory, "sweep", chosen, multirun=True)
        hydra_section.check(directory, "sweep", chosen, whole)
        for job in jobs:
            overrides = [*of_hydra, *job]
            hydra_section.check(directory, "sweep", overrides, config_folders.load(directory, "sweep", overrides))


def _require_launcher(overrides: Sequence[str]) -> None:
    for override in overrides:
        key, _, name = override.partition("=")
        if key == "hydra/launcher" and name in LAUNCHERS:
            package, extra = LAUNCHERS[name]
            try:
                importlib.metadata.version(package)
            except importlib.metadata.PackageNotFoundError as error:
                raise ConfigError(f"{override} needs {package}: pip install 'las-asr[{extra}]'") from error
