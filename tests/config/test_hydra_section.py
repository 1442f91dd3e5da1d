"""User folders of options: none can make Hydra run anything, and one that nobody named hides nothing of the package."""

import os
from pathlib import Path
from typing import Any

import pytest
from console import Las
from omegaconf import OmegaConf
from tiers import rest_slow

from las.cli import sweep
from las.config.build import config_directory

KEYS = {
    "env_set": "job: {env_set: {LAS_PLANTED: x}}",
    "env_copy": "job: {env_copy: [LAS_NOT_SET]}",
    "chdir": "job: {chdir: true}",
    "callbacks": "callbacks: {x: {_target_: joblib.load, filename: planted.pkl}}",
    "sweeper": "sweeper: {params: {+hydra.job.chdir: 'true'}}",
    "sweeper target": "sweeper: {_target_: hydra_plugins.planted.Sweeper}",
    "launcher target": "launcher: {_target_: hydra_plugins.planted.Launcher}",
    "logging": "job_logging: {version: 1, handlers: {x: {(): os.system, command: touch planted}}, root: {level: INFO}}",
    "hydra_logging": "hydra_logging: {version: 1, root: {level: DEBUG}}",
    "mode": "mode: RUN",
    "run dir": "run: {dir: ../outside}",
    "sweep dir": "sweep: {dir: ../outside}",
    "subdir": "output_subdir: ../outside",
    "searchpath": "searchpath: [pkg://os]",
    "overrides": "overrides: {task: [seed=7]}",
    "verbose": "verbose: true",
    "resolver": "sweep: {subdir: '${oc.env:HOME}'}",
}
"""Values of an option below `hydra`, each of which Hydra would act on in a sweep."""


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, str | None]]:
    """Trainings of a sweep, which are not run: the steps of each, and what is planted in its environment."""
    trained: list[tuple[Any, str | None]] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        sweep,
        "train_one",
        lambda answers, surroundings, composed: trained.append(
            (composed.trainer.max_steps, os.environ.get("LAS_PLANTED"))
        ),
    )
    return trained


def option(name: str, text: str, folder: str = "configs") -> None:
    path = Path(folder, f"{name}.yaml")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize("kind", rest_slow(list(KEYS), keep=3))
def test_no_option_sets_a_key_of_hydra(kind: str, trained: list[Any], las: Las) -> None:
    option("experiment/mine", f"# @package _global_\nhydra:\n  {KEYS[kind]}\n")
    answer = las("train", "-m", "seed=1,2", "+experiment=mine")
    answer.fails(2, "" if kind in ("env_copy", "searchpath") else "hydra. option")  # those cannot be composed
    assert not trained
    assert sorted(path.name for path in Path().iterdir()) == ["configs"] and not Path("../outside").exists()


@pytest.mark.parametrize(
    ("name", "text", "given"),
    rest_slow(
        [
            ("optim/mine", "# @package hydra.job\nenv_set: {LAS_PLANTED: x}\n", ["optim=mine"]),
            ("optim/mine", "# @package hydra\njob: {env_set: {LAS_PLANTED: x}}\n", ["optim=mine"]),
            ("experiment/mine", "# @package _global_\nhydra: {job: {chdir: true}}\n", ["+experiment=baseline,mine"]),
            (
                "experiment/mine",
                "# @package _global_\ndefaults: [override /hydra/launcher: joblib]\n",
                ["+experiment=mine"],
            ),
        ],
        keep=3,
    ),
)
def test_wherever_it_stands(name: str, text: str, given: list[str], trained: list[Any], las: Las) -> None:
    """Packages in the first line, defaults, and the option of one training of several."""
    option(name, text)
    las("train", "-m", "seed=1,2", *given).fails(2, "hydra.")
    assert not trained


def test_a_folder_that_the_command_names_sets_no_key_of_hydra_either(trained: list[Any], las: Las) -> None:
    """Nor where only the sweep as a whole has the option, because each training has another in its place."""
    option("trainer/default", "# @package _global_\nhydra: {job: {env_set: {LAS_PLANTED: x}}}\n", "mine")
    for given in (["seed=1,2"], ["trainer=smoke,long", "name=${trainer.max_steps}"]):
        las("train", "-m", *given, "--config-dir=mine").fails(2, "hydra.job.env_set")
    assert not trained


@pytest.mark.parametrize("name", ["launcher/basic", "launcher/mine", "sweeper/basic", "callbacks/mine", "config"])
def test_groups_of_hydra_are_refused_in_a_named_folder_and_not_found(name: str, trained: list[Any], las: Las) -> None:
    for folder in ("configs", "mine"):
        option("optim/other", "_target_: torch.optim.SGD\n", folder)
        option(f"hydra/{name}", "_target_: os.system\n", folder)
    las("train", "--config-dir=mine", "--cfg", "hydra").fails(2, "mine/hydra:")
    assert las("list", "optim").err == ""


def test_other_verbs_refuse_such_options_too(trained: list[Any], las: Las) -> None:
    option("search/mine", "# @package _global_\nhydra: {callbacks: {x: {_target_: os.system}}}\n")
    for command in (["decode", "checkpoint=x"], ["train"], ["train", "--cfg", "job"], ["train", "--info"]):
        las(*command, "search=mine").fails(2, "hydra.callbacks")


def test_a_found_folder_adds_options_and_hides_none(trained: list[Any], las: Las) -> None:
    evil = "# @package _global_\nhydra: {job: {env_set: {LAS_PLANTED: x}}}\n"
    option("trainer/default", evil)
    shipped = (config_directory() / "trainer/default.yaml").read_text()
    option("trainer/mine", shipped.replace("max_steps: 500", "max_steps: 7"))
    answer = las("train", "-m", "trainer=default,mine", "name=${trainer.max_steps}")
    assert trained == [(500, None), (7, None)], answer
    first = answer.err.splitlines()[0]
    assert first.startswith(f"own configs of {Path('configs').absolute()}: trainer/mine;"), first
    assert ": trainer/default (--config-dir=configs" in first
    option("trainer/default", shipped.replace("max_steps: 500", "max_steps: 9"))
    answer = las("train", "--config-dir=configs", "--cfg", "job", "-p", "trainer")
    assert "max_steps: 9" in answer.out and answer.err.endswith(": trainer/default\n")
    option("trainer/default", shipped.replace("max_steps: 500", "max_steps: 8"))
    assert "max_steps: 8" in las("train", "--config-dir=configs", "--cfg", "job", "-p", "trainer").out
    assert "max_steps: 500" in las("train", "--cfg", "job", "-p", "trainer").out


@pytest.mark.parametrize(
    "value",
    rest_slow(["${oc.env:HOME}", "${oc.${name}:HOME}", "a${${name}:x}", "${now:%Y}", "${hydra:job.name}"], keep=2),
)
def test_a_value_calls_no_resolver(value: str, trained: list[Any], las: Las) -> None:
    option("trainer/mine", OmegaConf.to_yaml({"defaults": ["smoke", "_self_"], "device": value}))
    las("train", "trainer=mine").fails(2, "${seed}")
