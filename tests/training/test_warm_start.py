"""A new training begins with the parameters of a trained model: which tensors, which rows, which stay frozen."""

import json
import shutil
from pathlib import Path

import pytest
import tiny_frames
import torch
from console import Las
from interrupted_trainings import require_same, stopped_after
from tiers import rest_slow
from tiny import forge, overrides

from las.cli import train
from las.storage import checkpoint
from las.storage.checkpoint import Checkpoint

ONE_STEP = ["trainer.max_steps=1", "trainer.validate_every=1"]


def first_and_last(run: Path, step: int = 4) -> Checkpoint:
    return checkpoint.load(checkpoint.directory(run / "checkpoints", step))


def warm(trained: Path, run: Path, *more: str) -> list[str]:
    """The overrides of a training in `run` that begins with the parameters of the finished one."""
    return overrides(trained, f"run_dir={run}", f"warm_start.from={trained / 'run'}", *more)


def origins(run: Path) -> dict[str, tuple[str, bool]]:
    listed = json.loads((run / "warm_start.json").read_text())["tensors"]
    return {each["name"]: (each["origin"], each["frozen"]) for each in listed}


def test_all_of_a_model_is_taken_and_frozen_parts_keep_their_values(trained: Path, tmp_path: Path, las: Las) -> None:
    """All others change, so that it is not the training that changes nothing."""
    run = tmp_path / "run"
    answer = las("train", *warm(trained, run, "warm_start.freeze=[listener,attention]")).succeeds_quietly()
    source, own = checkpoint.find(trained / "run")[0].model, first_and_last(run).model
    for name, tensor in own.items():
        frozen = name.startswith(("features.", "listener.", "speller.attention."))
        assert torch.equal(tensor, source[name]) == frozen, name
    listed = origins(run)
    assert {origin for origin, _ in listed.values()} == {"carried"}
    frozen_names = {name for name in own if name.startswith(("listener.", "speller.attention."))}
    assert {name for name, (_, frozen) in listed.items() if frozen} == frozen_names
    for words in ("listener.layers.0: ", f"{len(listed)} tensors carried", f"{len(frozen_names)} of them frozen"):
        assert words in answer.out
    assert json.loads((run / "warm_start.json").read_text())["source"]["step"] == 4
    assert "source -> here" not in answer.out


def test_a_thawed_part_is_trained_from_that_step_on(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Interrupted in the step that thaws it, the same bits come out; the source is not needed any more."""
    place = shutil.copytree(trained / "run", tmp_path / "source")
    changes = ["warm_start.freeze=[listener]", "warm_start.thaw_step=3", f"warm_start.from={place}"]
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    train.train(warm(trained, whole, *changes))
    stopped_after(monkeypatch, trained, 3, f"run_dir={stopped}", *changes)
    shutil.rmtree(place)
    capsys.readouterr()
    train.train(overrides(trained, f"run_dir={stopped}", *changes))
    out = capsys.readouterr().out
    assert "resuming at step" in out and "3: listener thawed:" in out
    require_same(stopped, whole)
    source = checkpoint.find(trained / "run")[0].model
    names = [name for name in source if name.startswith("listener.")]
    assert all(torch.equal(first_and_last(whole, 2).model[name], source[name]) for name in names)
    assert not any(torch.equal(first_and_last(whole).model[name], source[name]) for name in names)


@pytest.mark.parametrize("statistics", rest_slow(["source", "corpus"]))
def test_statistics_of_the_features_are_those_that_were_asked_for(
    statistics: str, trained: Path, tmp_path: Path, las: Las
) -> None:
    source = shutil.copytree(trained / "run", tmp_path / "source")
    best = checkpoint.find(source)[0]
    other = checkpoint.save(
        tmp_path / "other",
        1,
        best.model | {"features.mean": torch.full((8,), 7.0)},
        best.optim,
        best.state,
        best.config,
    )
    run = tmp_path / "run"
    changes = [f"warm_start.from={other}", f"warm_start.statistics={statistics}", *ONE_STEP]
    assert las("train", *overrides(trained, f"run_dir={run}", *changes)).code == 0
    mean = first_and_last(run, 1).model["features.mean"]
    assert torch.equal(mean, best.model["features.mean"] if statistics == "corpus" else torch.full((8,), 7.0))
    assert origins(run)["features.mean"] == ("fitted" if statistics == "corpus" else "carried", False)


def test_statistics_of_other_features_are_refused_and_fitted_on_request(
    trained: Path, tmp_path: Path, las: Las
) -> None:
    changes = ["model.features.num_mels=9", "warm_start.parts=[embedding,output]"]
    las("train", *warm(trained, tmp_path / "run", *changes, "warm_start.statistics=source")).fails(
        2, "cannot be carried"
    )
    assert las("train", *warm(trained, tmp_path / "run", *changes, *ONE_STEP)).code == 0
    assert origins(tmp_path / "run")["features.mean"] == ("fitted", False)


def test_rows_are_carried_by_symbol(trained: Path, tmp_path: Path, las: Las) -> None:
    """48 phones become 39, in another order; the boundary stays the first."""
    run = tmp_path / "run"
    changes = ["corpus.phone_set=39", "optim.lr=1e-60", "model.listener.dropout=0.4", *ONE_STEP]
    answer = las("train", *warm(trained, run, *changes)).succeeds_quietly()
    source, own = checkpoint.find(trained / "run")[0], first_and_last(run, 1)
    there, here = (["</s>", *each.state["corpus"]["tokens"]["symbols"]] for each in (source, own))
    assert there != here and len(set(here) & set(there)) == 40
    for name in ("speller.embedding.weight", "speller.output.weight", "speller.output.bias"):
        for row, symbol in enumerate(here):
            assert torch.equal(own.model[name][row], source.model[name][there.index(symbol)]), (name, symbol)
        assert origins(run)[name] == ("resized", False)
    assert "differ (source -> here): listener.dropout: 0.1 -> 0.4\n" in answer.out
    assert "40 of 40" in answer.out and "are left behind:" in answer.out


def test_new_symbols_keep_their_initial_values(trained: Path, tmp_path: Path, las: Las) -> None:
    narrow, run, plain = tmp_path / "narrow", tmp_path / "run", tmp_path / "plain"
    assert las("train", *overrides(trained, f"run_dir={narrow}", "corpus.phone_set=39", *ONE_STEP)).code == 0
    changes = [f"warm_start.from={narrow}", "warm_start.freeze=[output]", "optim.lr=1e-60", *ONE_STEP]
    answer = las("train", *overrides(trained, f"run_dir={run}", *changes))
    assert las("train", *overrides(trained, f"run_dir={plain}", "optim.lr=1e-60", *ONE_STEP)).code == 0
    assert "39 of 48" in answer.out
    assert "with the initial" in answer.out
    new = json.loads((run / "warm_start.json").read_text())["new"]
    symbols = ["</s>", *first_and_last(run, 1).state["corpus"]["tokens"]["symbols"]]
    rows = [symbols.index(symbol) for symbol in new]
    own, drawn = (first_and_last(each, 1).model["speller.output.weight"] for each in (run, plain))
    assert len(rows) == 9 and torch.equal(own[rows], drawn[rows]) and not torch.equal(own, drawn)


def test_a_bundle_and_a_head_that_the_source_lacks(trained: Path, tmp_path: Path, las: Las) -> None:
    bundle, run = tmp_path / "model.las", tmp_path / "run"
    assert las("export", f"checkpoint={trained / 'run'}", f"output={bundle}").code == 0
    changes = [f"warm_start.from={bundle}", "loss=joint_ctc", *ONE_STEP]
    las("train", *overrides(trained, f"run_dir={run}", *changes)).succeeds_quietly()
    assert origins(run)["ctc.output.weight"] == ("drawn anew", False)
    assert origins(run)["listener.layers.0.forwards.cell.bias"] == ("carried", False)
    other = ["warm_start.parts=[ctc]", f"run_dir={tmp_path / 'none'}"]
    las("train", *overrides(trained, *changes, *other)).fails(2, "it has none")
    las("train", *overrides(trained, *changes, "warm_start.freeze=[ctc]", other[1])).fails(2, "has no ctc,")


def test_another_architecture_is_refused_with_shapes_and_what_fits(trained: Path, tmp_path: Path, las: Las) -> None:
    run = tmp_path / "run"
    answer = las("train", *warm(trained, run, "model.listener.hidden_size=6"))
    assert answer.code == 2 and not run.exists()
    assert "of another architecture" in answer.err
    assert "listener.layers.0.forwards.cell.input_weight: [32, 16]" in answer.err
    assert "model.listener.hidden_size: 8" in answer.err
    assert "that fit: warm_start.parts=[embedding,output]" in answer.err
    changes = ["model.listener.hidden_size=6", "warm_start.parts=[embedding,output]", *ONE_STEP]
    assert las("train", *warm(trained, run, *changes)).code == 0
    las(
        "train",
        *warm(trained, tmp_path / "deep", "model.listener.num_layers=3", "model.listener.time_reduction=[2,1,1]"),
    ).fails(2, "cell.input_weight: (absent) ->")


REFUSED = {
    "warm_start.parts=[listner]": (2, "warm_start.parts: there is no part 'listner'. Did you mean listener"),
    "warm_start.freeze=[ctc]": (2, "warm_start.freeze: "),
    "warm_start.thaw_step=5": (2, "warm_start.thaw_step=5: there is nothing to thaw"),
    "warm_start.statistics=mine": (2, "warm_start.statistics='mine' does"),
    "warm_start.from=nowhere": (5, "warm_start.from=nowhere: there is no such file or folder"),
    "warm_start.from=null warm_start.freeze=[listener]": (2, "freeze, thaw_step and statistics need a trained model"),
    "warm_start.parts=[speller] warm_start.freeze=[listener]": (2, "listener would be frozen at random values"),
    "pretraining.stages=[{sub_epochs:1}]": (2, "a model that grows in stages begins with new parameters"),
}


@pytest.mark.parametrize("changes", rest_slow(REFUSED, keep=2))
def test_settings_that_make_no_sense_are_named(changes: str, trained: Path, tmp_path: Path, las: Las) -> None:
    code, says = REFUSED[changes]
    answer = las("train", *warm(trained, tmp_path / "run", *changes.split()))
    assert (answer.code, says in answer.err) == (code, True), answer.err
    assert not (tmp_path / "run").exists()


def test_a_source_that_is_no_recogniser_is_refused(trained: Path, trained_copy: Path, tmp_path: Path, las: Las) -> None:
    directory = trained_copy / "checkpoints/step-00000004"
    forge(directory, "config", {"model": {"_target_": "las.LSTMLanguageModel"}})
    las("train", *overrides(trained, f"run_dir={tmp_path / 'own'}", f"warm_start.from={directory}")).fails(
        5, "trained recogniser ('features')"
    )


def test_a_language_model_does_not_start_warm(trained: Path, tmp_path: Path, las: Las) -> None:
    words = ["corpus=timit", f"corpus.root={trained / 'TIMIT'}", f"run_dir={tmp_path / 'run'}"]
    las("train_lm", *words, f"warm_start.from={trained / 'run'}").fails(2, "only recognisers")


def test_the_states_of_an_acoustic_model_are_taken_where_they_are_the_same(corpus: Path, las: Las) -> None:
    las("train", *tiny_frames.overrides(corpus)).succeeds()
    source = checkpoint.find(corpus / "run")[0]
    same = ["warm_start.freeze=[states]", f"warm_start.from={corpus / 'run'}", f"run_dir={corpus / 'same'}", *ONE_STEP]
    answer = las("train", *tiny_frames.overrides(corpus, *same)).succeeds_quietly()
    assert "left behind" not in answer.out and "log_priors, bigram" in answer.out
    listed = origins(corpus / "same")
    assert listed["output.weight"] == ("carried", True) and listed["log_priors"] == ("fitted", False)
    own = first_and_last(corpus / "same", 1).model
    assert torch.equal(own["output.weight"], source.model["output.weight"])
    rows = ["++model.listener.input_reduction=3", "warm_start.parts=[states]", f"run_dir={corpus / 'rows'}", *ONE_STEP]
    las("train", *tiny_frames.overrides(corpus, *same[1:2], *rows)).fails(2, "other states of phones")


def test_states_of_other_phones_are_left_behind(corpus: Path, las: Las) -> None:
    las("train", *tiny_frames.overrides(corpus)).succeeds()
    folder = checkpoint.directory(corpus / "run" / "checkpoints", 4)
    state = json.loads((folder / "state.json").read_text())
    state["corpus"]["tokens"]["symbols"].reverse()
    forge(folder, "state", state)
    more = [f"warm_start.from={folder}", f"run_dir={corpus / 'other'}", *ONE_STEP]
    answer = las("train", *tiny_frames.overrides(corpus, *more)).succeeds_quietly()
    assert "left behind in the source: output" in answer.out
    assert origins(corpus / "other")["output.weight"] == ("drawn anew", False)
    frozen = [*more[:1], f"run_dir={corpus / 'frozen'}", "warm_start.freeze=[states]"]
    las("train", *tiny_frames.overrides(corpus, *frozen)).fails(2, "other states of phones")
