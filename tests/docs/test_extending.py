"""The files of docs/extending.md, written into a copy of the project, are all it takes to add what they add."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs" / "extending.md").read_text("utf-8")
NAMED_BLOCK = re.compile(r"^`([\w/.]+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)

USES_THE_EXAMPLES = """
import sys, torch
from las.data import sampler
from las.data.loader import Loader
from las.reproduction import jobs, recipe
from las.runtime.config import build, compose
from las.nn.cells.ln_input import LNInputLSTMCell
from las.nn.cells.ln_joined import LNJoinedLSTMCell
from las.nn.attention.cosine import CosineAttention

mine = recipe.read("mine")
given = jobs.overrides_of(mine, mine.rows[1], "open", ["corpus=folder", f"corpus.root={sys.argv[1]}"])
config = compose("train", list(given))
assert config["name"] == "ln_input_joined" and config["run_dir"] == "runs/ln_input_joined/folder/seed1"
corpus = build(config["corpus"], where="corpus")
prepared = corpus.prepare(sys.argv[2])
assert {split: len(found) for split, found in prepared.items()} == {"train": 2, "dev": 1, "test": 1}
assert corpus.problems(prepared["train"], lambda samples: samples) == []
assert corpus.normalise("HI Ho") == ["hi", "ho"] and prepared["train"][0].speaker == "ann"
model = build(config["model"], where="model")(corpus.sample_rate, corpus.tokens.size)
assert type(model.listener.layers[0].forwards.cell) is LNInputLSTMCell
assert type(model.speller.cells[0]) is LNJoinedLSTMCell and model.speller.cells[0].cell_norm == "state"
assert type(model.speller.attention) is CosineAttention
loader = Loader(prepared["train"], corpus.tokens, corpus.sample_rate, num_workers=0)
(_, batch), = loader.batches(sampler.sequential(prepared["train"], sampler.BatchSize(2)))
sums = build(config["loss"])(
    model(batch.waveforms, batch.num_samples, batch.targets).logits, batch.targets, batch.num_tokens
)
sums.loss.backward()
assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
print("examples work")
"""


@pytest.mark.slow
def test_the_examples_of_extending_run_in_a_copy(tmp_path: Path) -> None:
    """Its files and nothing else make a model of the new cells and attention learn from the new corpus."""
    for folder in ("las", "configs", "recipes"):
        shutil.copytree(REPOSITORY / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    files = NAMED_BLOCK.findall(PAGE)
    assert len(files) == len(re.findall(r"^```(?:python|yaml)$", PAGE, re.MULTILINE)) == 9
    for name, content in files:
        assert not (tmp_path / name).exists(), f"{name} is an example but exists"
        (tmp_path / name).write_text(content)
    noise = np.random.default_rng(1).normal(size=16000) / 10
    for name in ("train/ann_1", "train/bob_1", "dev/cat_1", "test/dan_1"):
        path = tmp_path / "recordings" / f"{name}.wav"
        path.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(path, noise, 16000, "PCM_16")
        path.with_suffix(".txt").write_text("hi  there\n")
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", USES_THE_EXAMPLES, str(tmp_path / "recordings"), str(tmp_path / "manifests")]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "examples work", done.stdout + done.stderr


def leave_out(folder: str, names: list[str]) -> set[str]:
    """What a copy of the checkout does not need: hidden and compiled files, corpora and runs."""
    made = {"data", "runs"} if Path(folder) == REPOSITORY else set()
    return {name for name in names if name.startswith(".") or name == "__pycache__" or name in made}


@pytest.mark.slow
def test_the_examples_of_extending_pass_the_tests_that_take_every_card(tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY, tmp_path / "copy", ignore=leave_out)
    for name, content in NAMED_BLOCK.findall(PAGE):
        (tmp_path / "copy" / name).write_text(content)
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "copy"), "PYTHONDONTWRITEBYTECODE": "1"}
    tests = ["tests/nn"]
    command = [sys.executable, "-m", "pytest", *tests, "-k", "(ln_input or ln_joined_state or cosine) and not costs"]
    done = subprocess.run(command, cwd=tmp_path / "copy", env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
