"""Names of classes in configs: the public ones, those that release 0.1.0 stored, of modules that moved, and torch's."""

import functools
import importlib
import json
import re
import sys
from types import ModuleType

import pytest
import torch
from places import REPOSITORY

import las
from las.config import public
from las.config.build import compose
from las.config.targets import resolve
from las.runtime.errors import ConfigError
from las.storage import run_directory

GOLDEN = REPOSITORY / "tests" / "golden" / "0.1.0"


def targets(config: object) -> set[str]:
    return set(re.findall(r'"_target_": "([\w.]+)"', json.dumps(config)))


@pytest.mark.parametrize("name", sorted({**public.COMPONENTS, **public.TOOLS, **public.MODULES}))
def test_every_public_name_is_where_the_table_says(name: str) -> None:
    assert name in dir(las)
    value = getattr(las, name)
    assert value.__name__.rpartition(".")[2] == public.MODULES.get(name, name).rpartition(".")[2]
    if module := public.COMPONENTS.get(name) or public.TOOLS.get(name):
        assert value is getattr(importlib.import_module(module), name)


def test_every_former_name_has_one_public_name_that_a_config_may_use() -> None:
    assert len(set(public.FORMER.values())) == len(public.FORMER)
    for name in public.FORMER.values():
        assert resolve(name).__name__ == name.removeprefix("las.")


def test_every_card_uses_public_names() -> None:
    for path in (REPOSITORY / "configs").rglob("*.yaml"):
        for target in re.findall(r"^\s*_target_: (\S+)$", path.read_text(), re.MULTILINE):
            module, _, name = target.rpartition(".")
            assert module not in public.COMPONENTS.values(), f"{path}: las.{name} is the public name of {target}"
            assert module != "las" or name in public.COMPONENTS, path


def test_the_config_of_a_former_run_is_read_and_written_back() -> None:
    stored = json.loads((GOLDEN / "config.json").read_text())
    config = public.with_public_names(stored)
    assert targets(stored) & public.FORMER.keys() and not targets(config) & public.FORMER.keys()
    assert public.with_former_names(config) == stored


def test_digests_are_those_of_the_former_release() -> None:
    """The digest of a recipe's row names its run directory: with another one, finished rows would be trained again."""
    overrides = ["+experiment=ln_both", "corpus=synthetic_hard", "name=ln_both", "seed=3"]
    assert run_directory.signature_digest(compose("train", overrides)) == "1baaa3cf"
    other = compose("train", [*overrides, "model.features.log_floor=1e-10"])
    assert run_directory.signature_digest(other) != "1baaa3cf"


def test_an_unknown_name_is_told_the_nearest() -> None:
    with pytest.raises(AttributeError, match=r"BeamSerch.* BeamSearch"):
        _ = las.BeamSerch


@pytest.mark.parametrize("target", ["torch.nn.Linear", "torch.nn.Module", "torch.optim.AdamW", "torch.optim.SGD"])
def test_modules_and_optimisers_of_torch_are_allowed(target: str) -> None:
    assert resolve(target) is functools.reduce(getattr, target.split(".")[1:], torch)


def test_unknown_classes_of_allowed_modules_name_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"las\.nn\.cells\.lstm .* PlainLSTMCell"):
        resolve("las.nn.cells.lstm.PlainLSTMCel")
    with pytest.raises(ConfigError, match=r"module las\.nn\.cells\.mine"):
        resolve("las.nn.cells.mine.MyCell")


@pytest.mark.parametrize(
    "former",
    [
        "las.data.noise.AdditiveNoise",
        "las.data.augmentation.Augmentation",
        "las.nn.frame_losses.FrameCrossEntropy",
        "las.decoding.word_graph.WordGraphSearch",
        "las.decoding.scorers.min_length.MinLength",
        "las.training.weight_noise.WeightNoise",
    ],
)
def test_a_component_that_has_moved_is_found_by_its_former_module(former: str) -> None:
    assert resolve(former) is resolve(f"las.{former.rpartition('.')[2]}")


def test_a_class_of_ones_own_module_comes_before_a_component_of_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("las.nn.cells.mine")
    own = type("PlainLSTMCell", (torch.nn.Module,), {"__module__": module.__name__})
    vars(module)["PlainLSTMCell"] = own
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert resolve("las.nn.cells.mine.PlainLSTMCell") is own
