"""What configs may name as `_target_`: classes on the allow-list. Nothing else is touched, nor even imported."""

import functools
import importlib
import sys
from types import ModuleType

import hostile
import pytest
import torch

from las.config import public
from las.config.build import build
from las.config.targets import TORCH, resolve
from las.runtime.errors import ConfigError


@pytest.mark.parametrize("target", hostile.CALLS)
def test_targets_outside_the_allow_list_are_refused_and_nothing_of_them_is_imported(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported: list[str] = []
    real, inside = importlib.import_module, []

    def recorded(name: str, package: str | None = None) -> ModuleType:
        if not inside:  # what an allowed module imports in turn is its own matter
            imported.append(name)
        inside.append(name)
        try:
            return real(name, package)
        finally:
            inside.pop()

    monkeypatch.setattr(importlib, "import_module", recorded)
    for config in ({"_target_": target}, {"_target_": target, "_partial_": True, "args": "touch x"}):
        with pytest.raises(ConfigError, match="_target_"):
            build({"a": [{"_target_": "las.Schedule", "warmup_steps": config}]})
    allowed = (*public.PACKAGES, *public.COMPONENTS.values(), *TORCH)
    assert all(name.startswith(allowed) for name in imported)


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
