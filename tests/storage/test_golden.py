"""Checkpoints of every release, and of commit 4f2ad9d, are opened, decode and are continued (`make_golden.py`)."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import tiny
import tiny_words
from make_golden import GOLDEN, STEP
from torch import nn

import las
from las.cli import train
from las.decoding import transcriber
from las.lm import loading
from las.lm.perplexity import perplexity
from las.nn.dropout import Dropout
from las.reproduction import markdown, recipe, results, tables

RELEASES = sorted(GOLDEN.iterdir())
DROPOUT_OF_TORCH = {"0.1.0"}
"""Those whose losses were recorded while dropout drew PyTorch's random numbers."""


@pytest.fixture(params=RELEASES, ids=lambda release: release.name)
def golden(request: pytest.FixtureRequest) -> Path:
    found: Path = request.param
    return found


def expected(golden: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((golden / "expected.json").read_text())
    return found


def test_this_release_has_one() -> None:
    assert las.__version__ in {release.name for release in RELEASES}, "make it: python tests/helpers/make_golden.py"


def test_it_decodes_what_it_decoded(golden: Path) -> None:
    found = transcriber.load(golden).transcribe(golden / "audio.wav")
    assert found.text == expected(golden)["text"] and found.text
    assert found.score == pytest.approx(expected(golden)["score"], abs=1e-5)


def test_its_training_goes_on_as_it_went_on(golden: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the end, with the same losses, which those of a fresh optimiser would not be."""
    if golden.name in DROPOUT_OF_TORCH:
        monkeypatch.setattr(Dropout, "forward", nn.Dropout.forward)
    monkeypatch.chdir(corpus)
    run = shutil.copytree(golden, "run")
    result = train.train(expected(golden)["overrides"])
    losses = {str(line["step"]): line["loss"] for line in tiny.steps(Path(run)) if line["event"] == "train"}
    assert losses == pytest.approx(expected(golden)["losses"], rel=1e-3)
    assert f"resuming at step {STEP} " in Path("run/log.txt").read_text()
    assert result["steps"] == STEP + len(losses) and result["splits"]["test"]["utterances"] == 2


def test_a_bundle_and_a_language_model_of_a_commit_load() -> None:
    """What `las export` and `las train_lm` wrote at 4f2ad9d."""
    place = GOLDEN / "4f2ad9d"
    found = transcriber.load(place / "model.las").transcribe(place / "audio.wav")
    assert found.text == expected(place)["text"]
    lm, tokens = loading.load_neural(place / "lm")
    measured = perplexity(lm, [tokens.encode(text) for text in tiny_words.HELD_OUT])
    stored = json.loads((place / "lm/result.json").read_text())["splits"]["test"]
    assert measured.of_all == pytest.approx(stored["perplexity"], rel=1e-5)


def test_a_table_of_results_of_a_commit_has_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `las reproduce` wrote at 4f2ad9d, by a recipe that was deleted since: JSON, and the table made of it."""
    path = GOLDEN / "4f2ad9d/recipe/bo18_code_hypotheses-open-an4.json"
    shutil.copytree(recipe.directory() / "settings", tmp_path / "settings")
    shutil.copy(path.parent / "bo18_code_hypotheses.yaml", tmp_path)
    monkeypatch.setattr(recipe, "directory", lambda: tmp_path)
    asked, table = recipe.read("bo18_code_hypotheses"), results.read(path)
    lines = markdown.table_lines(tables.headings(asked, table), tables.rows(asked, table))
    stored = path.with_suffix(".md").read_text("utf-8").splitlines()
    assert lines == [line for line in stored if line.startswith("|")]


def test_it_holds_no_path_of_the_machine_that_made_it(golden: Path) -> None:
    for path in golden.rglob("*.json"):
        assert '"/' not in path.read_text(), path
