"""`make gpu`: what it measures is there, runs in small without a GPU, and needs few packages. No time is asserted."""

import math
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import check_gpu
import pytest
import torch
from benchmarks import gpu_layers, inputs, models, peak, records, report, side_by_side, targets
from benchmarks.ledger import Ledger
from benchmarks.models import Subject
from benchmarks.records import Row
from benchmarks.settings import Settings
from benchmarks.shapes import SHAPES
from torch.utils.flop_counter import FlopCounterMode

from las.config.build import compose
from las.nn.kernels import choice

ABSENT = (
    "hydra",
    "omegaconf",
    "yaml",
    "soundfile",
    "jiwer",
    "sentencepiece",
    "tensorboard",
    "matplotlib",
    "safetensors",
)
WITHOUT = f"""
import importlib.abc, runpy, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {ABSENT}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def settings_on(device: str) -> Settings:
    return Settings({}, "lstm", "", torch.device(device), torch.float32, 1, 1, 0.1, {}, [], [], [], "c0ffee")


def run(folder: Path, *parts: str) -> list[Row]:
    """The rows of parts, run as on a machine that lacks what is absent."""
    script = str(check_gpu.REPOSITORY / "tests/helpers/check_gpu.py")
    given = [sys.executable, "-c", WITHOUT, script, *parts, "--output", str(folder), "--commit", "c0ffee"]
    subprocess.run(given, cwd=folder, check=True, timeout=600)
    return [row for file in sorted(folder.glob("gpu_*.jsonl")) for row in records.read(file)]


def test_what_is_tested_is_there() -> None:
    assert all((check_gpu.REPOSITORY / each).exists() for each in check_gpu.TESTS)


def test_all_parts_together_take_five_minutes_at_most() -> None:
    assert sum(part.budget_s for part in check_gpu.PARTS.values()) <= 300


def test_rounds_name_what_exists() -> None:
    for each in (*gpu_layers.ON_GPU, *gpu_layers.IN_SMALL):
        assert {*each.cells} <= gpu_layers.CELLS.keys() and {*each.shapes} <= SHAPES.keys()
    measured = {shape for each in gpu_layers.ON_GPU for shape in each.shapes}
    assert measured == {f"S{number}" for number in range(1, 11)}


@pytest.mark.skipif(torch.cuda.is_available(), reason="measures in full on a GPU")
def test_a_search_where_little_is_installed(tmp_path: Path) -> None:
    (row,) = [row for row in run(tmp_path, "search") if row["commit"] == "c0ffee"]
    assert row["tokens_per_utterance"] == 3 and row["search_ms"] > 0 and row["device"] == "cpu"


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="measures in full on a GPU")
def test_every_part_in_small(tmp_path: Path) -> None:
    rows = [row for row in run(tmp_path, *check_gpu.PARTS) if row["commit"] == "c0ffee"]
    assert {row["suite"] for row in rows} == {"check", "lstm", "model", "decode", "train"}
    assert not [row for row in rows if row.get("refused")]
    checked = [row for row in rows if row["suite"] == "check"]
    assert len(checked) == 3 and all(row["difference"] <= row["tolerance"] for row in checked)
    trained = [row for row in rows if row["suite"] == "train"]
    assert [(row["processes"], row["seeds"]) for row in trained] == [(2, 1), (1, 2)]
    assert all(row["updates_per_s"] > 0 for row in trained) and trained[1]["ratio_to_processes"] > 0
    assert all("Not run" not in report.pages([rows])[name] for name in {row["suite"] for row in rows})
    assert [each.text for each in targets.verdicts(targets.ON_CUDA, rows)] == ["not run on a GPU"] * len(
        targets.ON_CUDA
    )


def written(name: str, dtype: str = "bfloat16", commit: str = "new") -> Row:
    shared = {"suite": "lstm", "shape": "S4", "cell": "ln_global", "machine": "GPU", "device": "cuda"}
    return {**shared, "implementation": name, "dtype": dtype, "commit": commit}


def test_rows_are_written_as_they_come_and_replace_older_ones(tmp_path: Path) -> None:
    before, path = tmp_path / "before.jsonl", tmp_path / "rows.jsonl"
    records.write(before, [written("triton", commit="old"), written("plain", commit="old")])
    ledger = Ledger(path, before, settings_on("cpu"), 100.0)

    def rows() -> Iterator[Row]:
        yield written("triton")
        assert [row["commit"] for row in records.read(path)] == ["old", "new"]
        yield written("triton") | {"work": "another size"}

    ledger.measure("a", rows)
    found = [(row["implementation"], row["commit"]) for row in records.read(path)]
    assert found == [("plain", "old"), ("triton", "new"), ("triton", "new")]


def test_an_error_ends_one_measurement_alone(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "rows.jsonl", tmp_path / "none.jsonl", settings_on("cpu"), 100.0)

    def rows() -> Iterator[Row]:
        yield written("triton")
        raise RuntimeError("no such kernel")

    ledger.measure("a", rows)
    ledger.measure("b", lambda: [written("plain")])
    assert ledger.failed == ["a: RuntimeError: no such kernel"]
    assert [row["implementation"] for row in records.read(ledger.path)] == ["triton", "plain"]


def test_nothing_begins_after_the_seconds_of_a_part(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "rows.jsonl", tmp_path / "none.jsonl", settings_on("cpu"), 0.0)
    ledger.measure("a", lambda: [written("triton")])
    assert ledger.not_run == ["a"] and not ledger.path.exists()


def test_what_cannot_be_compiled_ahead_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    side_by_side.compiled(math.sqrt, [4.0, -1.0])
    (line,) = capsys.readouterr().out.splitlines()
    assert "-1.0" in line and "ValueError" in line


def test_models_are_those_of_the_configs() -> None:
    """By name and shape of every parameter; the demo's whole, of the others the listener and the speller's cell."""

    def shapes(model: torch.nn.Module) -> dict[str, torch.Size]:
        return {name: each.shape for name, each in model.named_parameters()}

    demo = inputs.subject(compose("train", ["+experiment=ln_encoder_only"])).parts.model
    assert shapes(models.demo()) == shapes(demo)
    small = ["model.listener.hidden_size=8", "cell@model.listener.cell=ln_global", "corpus=synthetic"]
    for kind, model in (
        ("las_switchboard", models.end_to_end(hidden_size=8)),
        ("hybrid_6", models.hybrid(hidden_size=8)),
    ):
        made = inputs.subject(compose("train", [f"model={kind}", *small])).parts.model
        assert shapes(model.listener) == shapes(made.get_submodule("listener"))


@pytest.mark.parametrize("subject", models.SUBJECTS.values(), ids=lambda subject: subject.name)
def test_operations_of_an_update(subject: Subject) -> None:
    """Against torch's count of its own products, by the plain kernel, of utterances of one length."""
    small = replace(subject, make=lambda: subject.make(hidden_size=8), durations_s=torch.full((2,), 0.5))
    model, batch = small.make(), small.batch()
    with FlopCounterMode(display=False) as counter, choice.use_kernel("plain"):
        model.forward_batch(batch, lambda features, *_, **__: features)
    by_module = {name: sum(counts.values()) for name, counts in counter.get_flop_counts().items()}
    features = sum(count for name, count in by_module.items() if name.endswith(("features", "LogMel")))
    layers = peak.listener_operations(model, batch)
    without_gradient = 2 * layers["listener"] - layers["listener_backward"]
    expected = 3 * (by_module["Global"] - features) - without_gradient
    assert features and peak.update_operations(model, batch) == pytest.approx(
        expected, rel=0.04
    )  # the plain kernel computes padding
