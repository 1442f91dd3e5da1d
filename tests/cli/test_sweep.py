"""Sweeps: a run folder for each combination, broken ones are results, mistakes are found before any training."""

import contextlib
import importlib.metadata
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny
from console import Las
from omegaconf import OmegaConf

from las.cli import sweep
from las.config.build import Config
from las.runtime.errors import ConfigError, NumericalError, StorageError
from las.runtime.signals import Interrupted
from las.storage import atomic


@pytest.fixture
def short(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A tiny training whose run folder is chosen by its name and seed, below the folder of the test."""
    monkeypatch.chdir(corpus)
    return [override for override in tiny.overrides(corpus) if not override.startswith("run_dir")]


@pytest.mark.slow
def test_each_combination_is_trained_and_a_broken_training_is_a_result(short: list[str], las: Las) -> None:
    given = ["optim.lr=1e-12", "trainer.max_steps=8", "trainer.patience=20", "trainer.broken_after_epochs=1,100"]
    sweeping = ["train", "-m", "seed=1,2", *short, *given, "name=after${trainer.broken_after_epochs}"]
    answer = las(*sweeping).succeeds()
    for seed in (1, 2):
        folders = [Path(f"runs/after{after}/timit/seed{seed}") for after in (1, 100)]
        broken, whole = (json.loads((folder / "result.json").read_text()) for folder in folders)
        assert "not learning" in broken["broken"] and "broken" not in whole
        assert broken["seed"] == whole["seed"] == seed
        lines = answer.out.splitlines()
        assert any(line.startswith(f"{folders[0]}: broken at step") for line in lines)
        assert any(line.startswith(f"{folders[1]}: dev PER") for line in lines)
    again = las(*sweeping)
    assert again.code == 0 and again.out.count("is finished") == 4


def test_combinations_come_in_the_order_of_hydra() -> None:
    found = sweep.combinations(["seed=1,2", "+experiment=a,b", "name=x", "hydra/launcher=basic"])
    assert found == [(f"seed={seed}", f"+experiment={name}", "name=x") for seed in (1, 2) for name in ("a", "b")]
    assert sweep.combinations(["seed=range(1,4)"]) == [("seed=1",), ("seed=2",), ("seed=3",)]
    assert sweep.combinations(["shapes=[1,2]"]) == [("shapes=[1,2]",)]


def test_a_launcher_that_is_not_installed_says_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(ConfigError, match=r"hydra-submitit-launcher.*'las-asr\[slurm\]'"):
        sweep.train(["-m", "hydra/launcher=submitit_slurm"])


def test_a_signal_ends_the_whole_sweep(short: list[str], las: Las, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = []

    def train(config: Config) -> None:
        seeds.append(config["seed"])
        raise Interrupted("saved", 75)

    monkeypatch.setattr(sweep, "train_config", train)
    with pytest.raises(SystemExit, match="75"):
        las("train", "-m", *short, "seed=1,2")
    assert seeds == [1]


def test_a_result_of_another_run_is_not_that_of_a_refused_training(
    short: list[str], las: Las, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [Path(f"runs/baseline/timit/seed{seed}") for seed in (1, 2, 3, 4)]
    former = {"steps": 9, "splits": {"dev": {"phone_error_rate": 0.01}}, "steps_to_converge": 9}
    for folder in folders:
        atomic.write_json(folder / "result.json", former)

    def train(config: Config) -> dict[str, Any]:
        own = {1: former | {"steps_to_converge": 5}, 2: former | {"broken": "not finite", "steps": 3}}
        if config["seed"] == 3:
            raise StorageError("it holds a run of another configuration")
        if config["seed"] == 4:
            raise MemoryError("too large")
        atomic.write_json(Path(config["run_dir"]) / "result.json", own[config["seed"]])
        if config["seed"] == 2:
            raise NumericalError("not finite")
        return own[config["seed"]]

    monkeypatch.setattr(sweep, "train_config", train)
    answer = las("train", "-m", *short, "seed=1,2,3,4")
    assert answer.code == 1
    table = answer.out.splitlines()[-4:]
    assert [line.partition(": ")[0] for line in table] == list(map(str, folders))
    assert table[0].endswith("at step 5") and table[1].endswith("broken at step 3: not finite")
    assert table[2].endswith("another configuration") and table[3].endswith("MemoryError: too large")
    assert answer.code == 1 and f"{folders[2]}, {folders[3]}." in answer.err
    assert list(sweep.SWEEPS.glob("answers-*")) == []


def test_trainings_that_a_launcher_lost_are_named(short: list[str], las: Las, monkeypatch: pytest.MonkeyPatch) -> None:
    class Launcher:
        """Hydra with a launcher that loses the process of the second training."""

        def multirun(self, name: str, task: Callable[[Any], None], overrides: list[str]) -> None:
            task(OmegaConf.create({"run_dir": "runs/baseline/timit/seed1"}))
            raise RuntimeError("a worker was killed")

    monkeypatch.setattr(sweep, "train_config", lambda config: {"steps": 1, "splits": {}, "steps_to_converge": 1})
    monkeypatch.setattr(sweep, "say_unreached", lambda config, job: None)
    monkeypatch.setattr(sweep.config_folders, "hydra", lambda folder: contextlib.nullcontext(Launcher()))
    monkeypatch.setattr(
        sweep, "compose", lambda name, job: {"run_dir": f"runs/baseline/timit/{job[-1].replace('=', '')}"}
    )
    answer = las("train", "-m", *short, "seed=1,2").fails(1, "1 2 runs/baseline/timit/seed2.")
    last = answer.out.splitlines()[-1]
    assert last.startswith("runs/baseline/timit/seed2: no result: ") and "worker was killed" in last


def test_what_hydra_refuses_is_a_mistake_of_the_command(short: list[str], las: Las) -> None:
    las("train", "-m", *short, "seed=1,2", "hydra.launcher.n_job=2", "hydra/launcher=joblib").fails(2, "n_job")


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["submitit_local", "joblib"])
def test_other_launchers_answer_for_their_own_trainings(launcher: str, short: list[str], las: Las) -> None:
    pytest.importorskip(f"hydra_plugins.hydra_{launcher.partition('_')[0]}_launcher")
    folder = Path("runs/baseline/timit/seed2")
    atomic.write_json(folder / "result.json", {"steps": 9, "splits": {}, "steps_to_converge": 9})
    answer = las("train", "-m", *short, "seed=1,2", f"hydra/launcher={launcher}").fails(1, f"1 2 {folder}.")
    trained, refused = answer.out.splitlines()[-2:]
    assert trained.startswith("runs/baseline/timit/seed1: dev PER")
    assert refused.startswith(f"{folder}: no result: {folder}/config.json: ")
