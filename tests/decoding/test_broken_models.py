"""A model whose parameters or scores are not numbers is an error with its own exit code, never an empty text."""

import math
from pathlib import Path

import pytest
import torch
from console import Las
from tiny import wav

import las as package
from las.decoding.transcriber import Transcriber
from las.runtime.errors import NumericalError
from las.storage import bundle, checkpoint

SEARCHES = {"greedy": package.GreedySearch(), "beam": package.BeamSearch(2)}


@pytest.fixture
def broken(trained_copy: Path) -> Path:
    """The finished run with one parameter of every checkpoint that is not a number."""
    for directory in (trained_copy / "checkpoints").glob("step-*"):
        saved = checkpoint.load(directory)
        saved.model["speller.output.bias"][0] = math.nan
        checkpoint.save(directory.parent, int(saved.state["step"]), saved.model, saved.optim, saved.state, saved.config)
    return trained_copy


def test_every_verb_refuses_a_model_of_nan(broken: Path, trained: Path, las: Las, tmp_path: Path) -> None:
    recording, exported = wav(trained, "mdab0_sx1"), tmp_path / "x.las"
    arpa = tmp_path / "x.arpa"
    arpa.write_text("\\data\\\nngram 1=3\n\n\\1-grams:\n-1 <s>\n-1 </s>\n-1 aa\n\n\\end\\\n")
    for command in (
        ["decode", f"checkpoint={broken}", f"audio={recording}"],
        ["decode", f"checkpoint={broken}", "split=test"],
        ["transcribe", f"checkpoint={broken}", f"input={recording}"],
        ["tune", f"checkpoint={broken}", f"search.lm.path={arpa}"],
        ["export", f"checkpoint={broken}", f"output={exported}"],
        ["average", f"run={broken}", "last=2"],
    ):
        answer = las(*command)
        assert answer.code == 4 and "NaN" in answer.err and "speller.output.bias" in answer.err, answer
        assert "1 of " in answer.err and str(broken / "checkpoints") in answer.err
    with pytest.raises(NumericalError, match=r"speller\.output\.bias"):
        package.load(str(broken))
    assert not exported.exists() and not list(broken.glob("average*")) and not list((broken / "decoded").glob("*"))


@pytest.mark.parametrize("value", [3e38, math.inf, math.nan])
@pytest.mark.parametrize("search", SEARCHES)
def test_scores_that_are_not_numbers_are_no_empty_text(search: str, value: float, trained: Path) -> None:
    transcriber: Transcriber = package.load(str(trained / "run"), search=SEARCHES[search])
    with torch.no_grad():
        for parameter in transcriber.model.speller.parameters():
            parameter.fill_(value)
    with pytest.raises(NumericalError, match=r"at 0\.0 s: .* \(NaN\)"):
        transcriber.transcribe(wav(trained, "mdab0_sx1"))


def test_a_bundle_of_such_a_model(trained: Path, tmp_path: Path, las: Las) -> None:
    path = tmp_path / "x.las"
    saved, _ = checkpoint.find(trained / "run")
    saved.model["listener.layers.0.forwards.cell.weight_hh"] = torch.full((1,), math.nan)
    bundle.write(path, saved.model, saved.state, saved.config)
    answer = las("transcribe", f"checkpoint={path}", f"input={wav(trained, 'mdab0_sx1')}")
    assert answer.code == 4 and f"{path}: 1 of " in answer.err
