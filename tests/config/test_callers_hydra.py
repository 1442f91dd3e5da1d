"""Programs that use Hydra themselves: layers and configs of las are made in them, and their Hydra is untouched."""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import hydra
import pytest
from hydra import version
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton
from omegaconf import DictConfig, OmegaConf

import las
from las.config import build, folders

CELLS = sorted(path.stem for path in (build.config_directory() / "cell").glob("*.yaml"))


@pytest.fixture(autouse=True)
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder with the config of a program; Hydra's global state is as before afterwards."""
    (tmp_path / "program.yaml").write_text("size: 4\n")
    monkeypatch.chdir(tmp_path)
    before = dict(Singleton._instances)
    yield
    Singleton._instances.clear()
    Singleton._instances.update(before)


def use_las() -> None:
    """Make a layer and compose a config, and require Hydra's state to be what it was."""
    instances = dict(Singleton._instances)
    base, own = version.getbase(), GlobalHydra.instance().hydra
    assert las.LSTM(4, 4).cell == "ln_global"
    assert las.compose("score", ["reference=a", "hypothesis=b"])["reference"] == "a"
    assert version.getbase() == base and GlobalHydra.instance().hydra is own
    assert instances.items() <= Singleton._instances.items()


def test_inside_a_program_of_hydra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    @hydra.main(config_path=str(tmp_path), config_name="program", version_base="1.2")
    def main(own: DictConfig) -> None:
        use_las()
        assert HydraConfig.get().job.name == "test_callers_hydra"
        seen.append(own.size)

    monkeypatch.setattr(sys, "argv", ["program", "size=5", "hydra/job_logging=none", "hydra/hydra_logging=none"])
    main()
    assert seen == [5]


def test_while_hydra_is_initialised_nested_and_in_threads(tmp_path: Path) -> None:
    with hydra.initialize_config_dir(str(tmp_path), version_base="1.3", job_name="mine"):
        use_las()
        with ThreadPoolExecutor(4) as threads:
            composed = threads.map(lambda name: las.compose("score", [f"reference={name}", "hypothesis=x"]), "abcd")
            assert [each["reference"] for each in composed] == list("abcd")
        assert hydra.compose("program", ["size=6"]).size == 6
    use_las()


def test_a_layer_needs_no_hydra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hydra", None)  # importing it fails
    assert las.LSTM(4, 4, cell="zoneout").cell == "zoneout"


@pytest.mark.parametrize("name", CELLS)
def test_a_card_by_itself_is_what_hydra_composes(name: str) -> None:
    composed = folders.load(build.config_directory(), f"cell/{name}", [])["cell"]
    assert build.option("cell", name) == OmegaConf.to_container(composed, resolve=True)
