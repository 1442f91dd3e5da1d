"""What configs may name as `_target_`: classes on the allow-list. Nothing else is touched, nor even imported."""

import functools
import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from las import build
from las.errors import ConfigError

REFUSED = [
    "os.system",
    "posix.system",
    "subprocess.Popen",
    "builtins.eval",
    "builtins.exec",
    "pickle.loads",
    "pathlib.Path",
    "torch.load",
    "torch.hub.load",
    "torch.serialization.load",
    "torch.utils.cpp_extension.load_inline",
    "torch.nn.functional.relu",
    "torch.nn.Parameter",
    "torch.nn.modules.module.torch.load",
    "torch.optim.torch.load",
    "torch.optim._multi_tensor.torch",
    "hydra.utils.instantiate",
    "las.atomic.write_json",
    "las.run.Run",
    "las.commands.train",
    "las.cli.main",
    "las.build.importlib.import_module",
    "las.build.build",
    "las.audio.load",
    "las.checkpoint.save",
    "las.cells.os.system",
    "las.cells.lstm.torch.load",
    "las.cells.base.nn",
    "las.cells.base.layer_norm",
    "las.corpora.base.ThreadPoolExecutor",
    "las.corpora.base.Path",
    "las.corpora.timit.read",
    "las.cellsx.Thing",
    "las.search.torch",
    "las",
    "las.cells",
    "os",
    "",
    ".",
    "..os.system",
    "las..cells.lstm.PlainLSTMCell",
]


@pytest.mark.parametrize("target", REFUSED)
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
            build.build({"a": [{"_target_": "las.schedule.Schedule", "warmup_steps": config}]})
    allowed = (*build.PACKAGES, *build.TORCH)
    assert all(name.startswith(allowed) for name in imported)


def test_a_module_of_a_stranger_is_never_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "las_planted.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Thing: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        ConfigError, match=r"las_planted\.Thing is not allowed: a config may name classes of las\.attention"
    ):
        build.build({"_target_": "las_planted.Thing"})
    assert not (tmp_path / "ran").exists()
    assert "las_planted" not in sys.modules


@pytest.mark.parametrize("target", ["torch.nn.Linear", "torch.nn.Module", "torch.optim.AdamW", "torch.optim.SGD"])
def test_modules_and_optimisers_of_torch_are_allowed(target: str) -> None:
    assert build.resolve(target) is functools.reduce(getattr, target.split(".")[1:], torch)


def test_unknown_classes_of_allowed_modules_name_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"las\.cells\.lstm has no such class\. Did you mean PlainLSTMCell\?"):
        build.resolve("las.cells.lstm.PlainLSTMCel")
    with pytest.raises(ConfigError, match=r"there is no module las\.cells\.mine"):
        build.resolve("las.cells.mine.MyCell")
