"""Sweeps: a run folder for each combination, broken ones are results, mistakes are found before any training."""

import importlib.metadata
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny
from console import Answer

from las.cli import sweep
from las.runtime.config import Config
from las.runtime.errors import ConfigError, DataError
from las.runtime.signals import Interrupted

Las = Callable[..., Answer]


@pytest.fixture
def short(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A tiny training whose run folder is chosen by its name and seed, below the folder of the test."""
    monkeypatch.chdir(corpus)
    return [override for override in tiny.overrides(corpus) if not override.startswith("run_dir")]


@pytest.mark.slow
def test_each_combination_is_trained_and_a_broken_training_is_a_result(short: list[str], las: Las) -> None:
    given = ["optim.lr=1e-12", "trainer.max_steps=8", "trainer.patience=20", "trainer.broken_after_epochs=1,100"]
    sweeping = ["train", "-m", "seed=1,2", *short, *given, "name=after${trainer.broken_after_epochs}"]
    answer = las(*sweeping)
    assert answer.code == 0, answer
    for seed in (1, 2):
        folders = [Path(f"runs/after{after}/timit/seed{seed}") for after in (1, 100)]
        broken, whole = (json.loads((folder / "result.json").read_text()) for folder in folders)
        assert "the model is not learning" in broken["broken"] and "broken" not in whole
        assert broken["seed"] == whole["seed"] == seed
        lines = answer.out.splitlines()
        assert any(line.startswith(f"{folders[0]}: broken at step") for line in lines)
        assert any(line.startswith(f"{folders[1]}: dev PER") for line in lines)
    again = las(*sweeping)
    assert again.code == 0 and again.out.count("is finished") == 4


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["submitit_local", "joblib"])
def test_other_launchers_train_in_processes_of_their_own(launcher: str, short: list[str], las: Las) -> None:
    package, _ = sweep.LAUNCHERS[launcher]
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{package} is not installed")
    answer = las("train", "-m", "seed=1,2", *short, f"hydra/launcher={launcher}")
    assert answer.code == 0, answer
    for seed in (1, 2):
        result = json.loads(Path(f"runs/baseline/timit/seed{seed}/result.json").read_text())
        assert result["seed"] == seed and result["steps"] == 4


def test_combinations_come_in_the_order_of_hydra() -> None:
    found = sweep.combinations(["seed=1,2", "+experiment=a,b", "name=x", "hydra/launcher=basic"])
    assert found == [(f"seed={seed}", f"+experiment={name}", "name=x") for seed in (1, 2) for name in ("a", "b")]
    assert sweep.combinations(["seed=range(1,4)"]) == [("seed=1",), ("seed=2",), ("seed=3",)]
    assert sweep.combinations(["shapes=[1,2]"]) == [("shapes=[1,2]",)]


def test_trainings_that_would_share_a_folder_are_refused(short: list[str], las: Las) -> None:
    answer = las("train", "-m", *short, "optim.lr=0.1,0.01")
    assert answer.code == 2 and not Path("runs").exists()
    assert "two trainings would share runs/baseline/timit/seed1" in answer.err
    assert "'name=x_${optim.lr}'" in answer.err


def test_mistakes_are_named_before_anything_is_trained(short: list[str], las: Las) -> None:
    for given, says in (
        (["+experiment=baseline,ln_bth"], "Did you mean ln_both"),
        (["seed=1,2", "trainer.max_step=3"], "Did you mean trainer.max_steps"),
        (["seed=1,2", "name"], "name"),
    ):
        answer = las("train", "-m", *short, *given)
        assert answer.code == 2 and says in answer.err and not Path("runs").exists(), answer


def test_a_launcher_that_is_not_installed_says_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(ConfigError, match=r"needs hydra-submitit-launcher: pip install 'las\[slurm\]'"):
        sweep.train(["-m", "hydra/launcher=submitit_slurm"])


def test_the_next_training_begins_whatever_became_of_the_last(
    short: list[str], las: Las, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds = []

    def train(config: Config) -> None:
        seeds.append(config["seed"])
        if config["seed"] == 1:
            raise DataError("no audio")
        raise ZeroDivisionError("of the program")

    monkeypatch.setattr(sweep, "train_config", train)
    answer = las("train", "-m", *short, "seed=1,2")
    assert seeds == [1, 2] and answer.code == 1
    assert "las train: no audio" in answer.err and "ZeroDivisionError: of the program" in answer.err
    assert "2 of 2 trainings have no result" in answer.err


def test_a_signal_ends_the_whole_sweep(short: list[str], las: Las, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = []

    def train(config: Config) -> None:
        seeds.append(config["seed"])
        raise Interrupted("saved", 75)

    monkeypatch.setattr(sweep, "train_config", train)
    with pytest.raises(SystemExit, match="75"):
        las("train", "-m", *short, "seed=1,2")
    assert seeds == [1]
