"""Cells with a state of their own from training to a bundle: resumed exactly, searched with a beam, exported."""

from pathlib import Path

import pytest
import tiny
from console import Las
from interrupted_trainings import require_same, stopped_after
from tiers import rest_slow

LISTENERS = ("min_lstm", "slstm", "projected_lstm", "gru", "li_gru", "sli_gru", "min_gru", "ln_gru")
SPELLERS = ("slstm", "projected_lstm", "min_gru", "li_gru", "sli_gru", "gru", "min_lstm", "ln_gru")


@pytest.mark.parametrize(("listener", "speller"), rest_slow(zip(LISTENERS, SPELLERS, strict=True)))
def test_a_training_is_resumed_searched_and_exported(
    listener: str, speller: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, las: Las
) -> None:
    tiny.tree(tmp_path)
    cells = [f"cell@model.listener.cell={listener}", f"cell@model.speller.cell={speller}", "model.speller.num_layers=2"]
    given = [*cells, "search=beam", "search.size=3"]
    las("train", *tiny.overrides(tmp_path, *given, f"run_dir={tmp_path / 'whole'}")).succeeds("finished after 4 steps")
    stopped_after(monkeypatch, tmp_path, 3, *given)
    las("train", *tiny.overrides(tmp_path, *given)).succeeds("resuming at step")
    require_same(tmp_path / "run", tmp_path / "whole")
    bundle, said = tmp_path / "model.las", []
    las("export", f"checkpoint={tmp_path / 'run'}", f"output={bundle}").succeeds()
    for model in (tmp_path / "run", bundle):
        said.append(
            las("transcribe", f"checkpoint={model}", f"input={tiny.wav(tmp_path, 'fadg0_sx0')}")
            .succeeds()
            .out.splitlines()[:-1]
        )
    assert said[0] == said[1]


@pytest.mark.slow
@pytest.mark.parametrize("cell", ["slstm", "min_gru"])
def test_a_language_model_of_such_cells_is_trained(cell: str, tmp_path: Path, las: Las) -> None:
    tiny.tree(tmp_path)
    given = [*tiny.corpus(tmp_path), f"run_dir={tmp_path / 'lm'}", *tiny.SHORT, f"cell@lm.cell={cell}"]
    las("train_lm", *given, "lm.hidden_size=8", "lm.embedding_size=4").succeeds("finished after 4 steps")
