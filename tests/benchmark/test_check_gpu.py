"""`make gpu` with a GPU and without: what is run, where it is written, what is printed."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from benchmarks import records
from benchmarks.settings import settings

from las.config.build import compose

REPOSITORY = Path(__file__).parents[2]
ROW = {"suite": "lstm", "implementation": "triton", "cell": "ln_global", "device": "cuda", "machine": "NVIDIA H200"}


@pytest.fixture
def check_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, in a checkout where nothing is run: the command is recorded, its file written."""
    spec = importlib.util.spec_from_file_location("check_gpu", REPOSITORY / "tests" / "helpers" / "check_gpu.py")
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.commands = []

    def run(arguments: list[str], check: bool = False) -> int:
        module.commands.append(arguments)
        for each in arguments:
            if each.startswith("output="):
                rows = [ROW | {"shape": "S1", "ratio_to_lstm": 0.7, "ratio_to_best": 2.0}] if module.there else [ROW]
                records.write(Path(each.removeprefix("output=")), rows)
        return 1 if "pytest" in arguments else 0

    monkeypatch.setattr(module, "run", run)
    monkeypatch.setattr(module, "REPOSITORY", tmp_path)
    return module


def test_without_a_gpu_the_same_in_small(
    check_gpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check_gpu.there = False
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert check_gpu.main() == 1, "the status of the tests"
    tests, *measured = check_gpu.commands
    assert tests[:2] == ["-m", "pytest"] and all((REPOSITORY / each).exists() for each in check_gpu.TESTS)
    assert [each[1] for each in measured] == ["suite=lstm", "suite=model", "suite=decode"]
    assert {path.name for path in (tmp_path / "build" / "gpu").iterdir()} == {
        f"gpu_{suite}.jsonl" for suite in check_gpu.MEASURED
    }
    out = capsys.readouterr().out
    assert "GPU: none: the same on the CPU, in small" in out
    assert out.count("not measured") == 13 and out.count("not checked without a GPU: ") == 3


def test_with_a_gpu_the_page_has_the_verdicts(
    check_gpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check_gpu.there = True
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")
    assert check_gpu.main() == 1
    assert check_gpu.commands[-1] == ["scripts/benchmark.py", "page=docs/performance.md"]
    assert (tmp_path / "docs" / "performance" / "gpu_lstm.jsonl").exists()
    lines = capsys.readouterr().out.splitlines()
    assert any("layer S1, `ln_global` / `nn.LSTM`" in line and "met" in line and "0.70" in line for line in lines)
    assert any("layer S1, `ln_global` / cuDNN's best" in line and "missed" in line and "2.00" in line for line in lines)
    assert not any("not checked" in line for line in lines)


def test_what_is_measured_can_be_asked_for(check_gpu: Any) -> None:
    for measured in (check_gpu.MEASURED, check_gpu.IN_SMALL):
        for suite, keys in measured.items():
            config = compose("benchmark", ["+experiment=ln_encoder_only", *keys, "device=cpu"])
            assert settings(config, suite, "").suite == config["suite"] == suite
