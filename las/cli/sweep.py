"""`las train -m seed=1,2,3 +experiment=a,b`: one training for each combination, by Hydra's sweeper and launchers.

Each training has the run folder that it would have alone, so a sweep that was stopped goes on where it was, and a
training that is finished is not repeated. One that diverges is recorded as a result, and the others go on.
"""

import importlib.metadata
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hydra
from omegaconf import OmegaConf

from las.cli.train import summary, train_config
from las.runtime import progress, signals
from las.runtime.config import compose, config_directory
from las.runtime.config_groups import HYDRA
from las.runtime.errors import ConfigError, LasError, NumericalError
from las.runtime.overrides import combinations
from las.storage import bounded

FLAGS = ("-m", "--multirun")
OF_SWEEPS = ("hydra/launcher", "hydra.launcher", "hydra/sweeper", "hydra.sweeper", "hydra.sweep")
"""The prefixes of Hydra's own keys that a sweep accepts."""
LAUNCHERS = {
    "submitit_local": ("hydra-submitit-launcher", "slurm"),
    "submitit_slurm": ("hydra-submitit-launcher", "slurm"),
    "joblib": ("hydra-joblib-launcher", "joblib"),
}
"""Launchers beside Hydra's own one: the package each is in, and the extra of las that installs it."""


def train(overrides: list[str]) -> list[dict[str, Any] | None]:
    """Train all combinations; returns what result.json of each holds, in Hydra's order, None for those without one.

    Raises ConfigError before anything is trained, for a combination that does not compose and for two that would share
    a run folder; LasError at the end, for trainings without a result.
    """
    chosen = [override for override in overrides if override not in FLAGS]
    _require_known(chosen)
    _require_launcher(chosen)
    jobs = combinations(chosen)
    folders = [Path(compose("train", list(job))["run_dir"]) for job in jobs]
    _require_apart(jobs, folders)
    progress.say(f"{len(jobs)} trainings")
    original_arguments, sys.argv = sys.argv, ["las", "-m", *chosen]
    try:
        hydra.main(str(config_directory().resolve()), "sweep", version_base="1.3")(train_one)()
    finally:
        sys.argv = original_arguments
    results = [_result(folder) for folder in folders]
    for folder, result in zip(folders, results, strict=True):
        progress.say(f"{folder}: {summary(result) if result else 'no result'}")
    if None in results:
        raise LasError(
            f"{results.count(None)} of {len(jobs)} trainings have no result: the reasons are above. The same command "
            "continues"
        )
    return results


def train_one(composed: Any) -> None:
    """Run one training of a sweep, here or elsewhere. A failure does not end the others.

    A signal is for the whole sweep: the process ends with the code of a training that was stopped.
    """
    config: Any = OmegaConf.to_container(composed, resolve=True)
    progress.say(f"== {config['run_dir']}")
    try:
        train_config(config)
    except signals.Interrupted as error:
        print(f"las train: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from error
    except NumericalError as error:
        progress.say(str(error))
    except LasError as error:
        print(f"las train: {error}", file=sys.stderr)
    except Exception:  # a bug: its traceback is printed, and the sweep goes on
        traceback.print_exc()


def _result(folder: Path) -> dict[str, Any] | None:
    path = folder / "result.json"
    return bounded.stored(path) if path.exists() else None


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


def _require_launcher(overrides: Sequence[str]) -> None:
    for override in overrides:
        key, _, name = override.partition("=")
        if key == "hydra/launcher" and name in LAUNCHERS:
            package, extra = LAUNCHERS[name]
            try:
                importlib.metadata.version(package)
            except importlib.metadata.PackageNotFoundError as error:
                raise ConfigError(f"{override} needs {package}: pip install 'las[{extra}]'") from error
