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
FILES = dict(NAMED_BLOCK.findall(PAGE))
ADDED = [Path(name).stem for name in FILES if name.startswith(("configs/cell/", "configs/attention/"))]

LISTING = ["docs/test_docs.py", "test_layout.py", "config/test_public.py", "cli/test_options.py"]
LISTING += ["reproduction/test_recipe.py"]
"""Tests of what the package and its documents list; a file of one's own is no fault of theirs."""

USES_THE_EXAMPLES = """
import sys, torch
from las.cli import main
from las.data.loader import BatchSize, Loader, sequential
from las.reproduction import jobs, recipe
from las.config.build import build, compose
from las.nn.cells.fast_weights import FastWeightCell
from las.nn.cells.ln_joined import LNJoinedLSTMCell
from las.nn.attention.cosine import CosineAttention

mine = recipe.read("mine")
given = jobs.overrides_of(mine, mine.rows[1], "open", ["corpus=folder", f"corpus.root={sys.argv[1]}"])
config = compose("train", list(given))
assert config["name"] == "fast_joined" and config["run_dir"] == "runs/fast_joined/folder/seed1"
corpus = build(config["corpus"], where="corpus")
prepared = corpus.prepare(sys.argv[2])
assert {split: len(found) for split, found in prepared.items()} == {"train": 2, "dev": 1, "test": 1}
assert corpus.problems(prepared["train"], lambda samples: samples) == []
assert corpus.normalise("HI Ho") == ["hi", "ho"] and prepared["train"][0].speaker == "ann"
model = build(config["model"], where="model")(corpus.sample_rate, corpus.tokens.size)
assert type(model.listener.layers[0].forwards.cell) is FastWeightCell
assert type(model.speller.cells[0]) is LNJoinedLSTMCell and model.speller.cells[0].cell_norm == "state"
assert type(model.speller.attention) is CosineAttention
loader = Loader(prepared["train"], corpus.tokens, corpus.sample_rate, num_workers=0)
(_, batch), = loader.batches(sequential(prepared["train"], BatchSize(2)))
output = model(batch.waveforms, batch.num_samples, batch.targets)
build(compose("train", ["loss=confident"])["loss"]).objective(model, output, batch).backward()
assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())

verbs = [
    ["train", "attention@model.speller.attention=gaussian_mixture", "+scorer@search.words=word_reward", "+scale=tiny"]
    + ["corpus=folder", f"corpus.root={sys.argv[1]}", "search.words.weight=0.3", "loss=confident", "name=mixture"]
    + ["trainer.max_steps=2", "trainer.validate_every=1"],
    ["decode", "checkpoint=runs/mixture/folder/seed1", "split=dev", "search.nbest=2"],
    ["transcribe", "checkpoint=runs/mixture/folder/seed1", f"input={sys.argv[1]}/dev/cat_1.wav"],
    ["tune", "checkpoint=runs/mixture/folder/seed1", "search=beam", "+scorer@search.words=word_reward"]
    + ["+weights.words=[0.2,0.3]", "weights.lm=null", "weights.coverage=null", "length_normalisation=[1.0]"],
    ["decode", "checkpoint=runs/mixture/folder/seed1", "split=test", "search=tuned", "search.nbest=2"],
]
for verb in verbs:
    assert main.main(verb) == 0, verb
for split in ("dev", "test"):
    assert '"words": ' in open(f"runs/mixture/folder/seed1/decoded/hypotheses.{split}.jsonl").read()
print("examples work")
"""


PLACES = {
    "cell": "las/nn/cells",
    "attention": "las/nn/attention",
    "loss": "las/nn",
    "scorer": "las/decoding/scorers",
    "corpus": "las/data/corpora",
}


@pytest.mark.parametrize("kind", PLACES)
def test_one_more_takes_a_module_and_an_option_and_no_other_file(kind: str) -> None:
    """The section names no third file; the slow tests below run all of them in a copy with nothing else changed."""
    (section,) = re.findall(rf"^## An? {kind}$(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL)
    files = [Path(name) for name, _ in NAMED_BLOCK.findall(section)]
    modules, options = files[::2], files[1::2]
    assert [path.stem for path in modules] == [path.stem for path in options] != []
    assert {path.parent.as_posix() for path in modules} == {PLACES[kind]}
    assert {path.parent.as_posix() for path in options} == {f"configs/{kind}"}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout with the files of the page."""

    def leave_out(folder: str, names: list[str]) -> set[str]:
        made = {"data", "runs", "build", "dist"} if Path(folder) == REPOSITORY else set()
        return {name for name in names if name.startswith(".") or name == "__pycache__" or name in made}

    copy = shutil.copytree(REPOSITORY, tmp_path_factory.mktemp("extended") / "copy", ignore=leave_out)
    assert len(FILES) == len(re.findall(r"^```(?:python|yaml)$", PAGE, re.MULTILINE)) >= 13
    for name, content in FILES.items():
        assert not (copy / name).exists(), f"{name} is an example but exists"
        (copy / name).write_text(content)
    return copy


def run(checkout: Path, *command: str | Path) -> str:
    """Run a command of Python in the copy; its output. Fails unless it succeeds."""
    environment = os.environ | {"PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": "1"}
    given = [sys.executable, *command]
    done = subprocess.run(given, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_examples_run_in_a_copy(checkout: Path) -> None:
    """Its files and nothing else make models of the new parts learn from the new corpus, and decode."""
    noise = np.random.default_rng(1).normal(size=16000) / 10
    for name in ("train/ann_1", "train/bob_1", "dev/cat_1", "test/dan_1"):
        path = checkout / "recordings" / f"{name}.wav"
        path.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(path, noise, 16000, "PCM_16")
        path.with_suffix(".txt").write_text("hi  there\n")
    said = run(checkout, "-c", USES_THE_EXAMPLES, checkout / "recordings", checkout / "manifests")
    assert said.splitlines()[-1] == "examples work"


def pytest_in(checkout: Path, *arguments: str) -> None:
    run(checkout, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments)


@pytest.mark.slow
def test_make_check_passes_with_the_examples(checkout: Path) -> None:
    for task in (["check"], ["format", "--check"]):
        run(checkout, "-m", "ruff", *task, "--no-cache", *(name for name in FILES if name.endswith(".py")))


@pytest.mark.slow
def test_make_test_lists_no_example_as_a_fault(checkout: Path) -> None:
    chosen = "not as_far_as_it_can_be_told and not misspelt"
    pytest_in(checkout, "-m", "not slow", "-k", chosen, *(f"tests/{name}" for name in LISTING))


@pytest.mark.slow
def test_the_tests_that_take_every_option_take_the_examples(checkout: Path) -> None:
    pytest_in(checkout, "tests/nn", "-k", f"({' or '.join(ADDED)}) and not costs")
