"""A run that is finished or stopped goes on with a greater length, as if it had been interrupted."""

import json
import shutil
from pathlib import Path

import pytest
from console import Las
from interrupted_trainings import require_same
from tiers import rest_slow
from tiny import overrides, steps, tree

from las.cli import train
from las.storage import checkpoint, run_directory


@pytest.fixture(scope="module")
def longer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tiny corpus, and a run that was planned for six steps in `run`."""
    root = tree(tmp_path_factory.mktemp("longer"))
    train.train(overrides(root, "trainer.max_steps=6"))
    return root


@pytest.mark.parametrize("first", rest_slow([3, 4]))
def test_a_finished_run_goes_on_as_one_that_was_planned_longer(first: int, longer: Path, las: Las) -> None:
    """Of four steps, at the end of a sub-epoch; of three, in the midst of one."""
    run = longer / f"from{first}"
    own = overrides(longer, f"run_dir={run}")
    assert las("train", *own, f"trainer.max_steps={first}").code == 0
    before = json.loads((run / "result.json").read_text())
    answer = las("train", *own, "trainer.max_steps=6").succeeds_quietly()
    resumed = first if first == 4 else 2
    says = f"continued for longer: trainer.max_steps {first} -> 6. The learning rate goes on by the schedule: 0.004 at"
    assert f"{says} step {resumed}, 0.004 at step {resumed + 1}, 0.004 at step 6" in answer.out
    require_same(run, longer / "run", step=6)
    result = json.loads((run / "result.json").read_text())
    assert result.pop("extensions") == [{"steps": first, "trainer": {"max_steps": [first, 6]}}]
    assert result == json.loads((longer / "run" / "result.json").read_text())
    assert json.loads((run / "config.json").read_text())["trainer"]["max_steps"] == 6
    place = run / "finished" / f"step-{first:08d}"
    assert json.loads((place / "result.json").read_text()) == before
    assert {path.name for path in place.iterdir()} >= {"hypotheses.dev.jsonl", "hypotheses.test.jsonl"}
    assert (place / f"step-{first:08d}").is_dir() == (first == 3)
    again = las("train", *own, "trainer.max_steps=6")
    assert again.code == 0 and "is finished" in again.out


@pytest.mark.slow
def test_an_early_end_is_known_where_an_epoch_is_cut_into_parts(longer: Path, las: Las) -> None:
    cut = ["trainer.validate_every=null", "trainer.sub_epochs=1"]
    runs = [longer / "cut_whole", longer / "cut_short"]
    for run, lengths in zip(runs, ([6], [3, 6]), strict=True):
        for length in lengths:
            own = overrides(longer, f"run_dir={run}", *cut, f"trainer.max_steps={length}")
            assert las("train", *own).code == 0
    assert (runs[1] / "finished/step-00000003/step-00000003").is_dir()
    require_same(*runs, step=6)


def test_the_rate_that_is_printed_is_that_of_the_schedule(longer: Path, las: Las, tmp_path: Path) -> None:
    own = overrides(longer, f"run_dir={tmp_path / 'run'}")
    decaying = ["schedule=exponential", "schedule.warmup_steps=0", "schedule.start_step=0", "schedule.decay_steps=10"]
    own += [*decaying, "schedule.final=0.01", "trainer.validate_every=1"]
    assert las("train", *own, "trainer.max_steps=1").code == 0
    out = las("train", *own, "trainer.max_steps=2").out
    assert "step 1, 0.00159" in out
    rates = [line["learning_rate"] for line in steps(tmp_path / "run") if line["event"] == "train"]
    assert rates == pytest.approx([0.004 * 0.01**0.1, 0.004 * 0.01**0.2])


REFUSED = {
    "shorter": (
        ["trainer.max_steps=3"],
        "trainer.max_steps was 4, and 3 would make the run shorter: a run can only be continued for longer",
    ),
    "another limit ended it": (["trainer.patience=9"], "this run ended at step 4 by trainer.max_steps=4"),
    "less patience": (["trainer.max_steps=6", "trainer.patience=7"], "trainer.patience was 8, and 7 would make"),
    "a limit where was none": (["+trainer.max_sub_epochs=9"], "trainer.max_sub_epochs was null, and 9 would make"),
    "something else": (["trainer.max_steps=6", "optim.lr=0.5"], "trainer.max_steps: 4 -> 6"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_other_changes_of_length_are_refused(case: str, trained: Path, trained_copy: Path, las: Las) -> None:
    changes, says = REFUSED[case]
    before = {path: path.read_bytes() for path in trained_copy.rglob("*") if path.is_file()}
    answer = las("train", *overrides(trained, f"run_dir={trained_copy}", *changes))
    assert answer.code == 5 and str(trained_copy) in answer.err
    assert says in answer.err and answer.err.endswith("name=baseline_2\n")
    assert before == {path: path.read_bytes() for path in trained_copy.rglob("*") if path.is_file()}


def test_another_version_is_refused_before_anything_is_moved(
    trained: Path, trained_copy: Path, las: Las, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = run_directory.origin
    monkeypatch.setattr(run_directory, "origin", lambda vocabulary: origin(vocabulary) | {"code": "another"})
    before = (trained_copy / "result.json").read_bytes()
    las("train", *overrides(trained, f"run_dir={trained_copy}", "trainer.max_steps=6")).fails(5, "allow_drift=[code]")
    assert (trained_copy / "result.json").read_bytes() == before


def test_a_run_that_lost_patience_needs_more_of_it(trained: Path, trained_copy: Path, las: Las) -> None:
    path = trained_copy / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"steps": 2}))
    las("train", *overrides(trained, f"run_dir={trained_copy}", "trainer.max_steps=6")).fails(
        5, "2 by trainer.patience=8:"
    )
    path.write_text(json.dumps(json.loads(path.read_text()) | {"broken": "it diverged"}))
    las("train", *overrides(trained, f"run_dir={trained_copy}", "trainer.max_steps=6")).fails(5, "as broken at")


def test_a_stopped_run_may_be_given_more_steps(longer: Path, trained: Path, trained_copy: Path, las: Las) -> None:
    """Without a result it was stopped, here after its first checkpoint; the change is recorded all the same."""
    (trained_copy / "result.json").unlink()
    shutil.rmtree(trained_copy / "checkpoints" / "step-00000004")
    las("train", *overrides(trained, f"run_dir={trained_copy}", "trainer.max_steps=6")).succeeds("resuming at step")
    changes = json.loads((trained_copy / "extensions.json").read_text())["changes"]
    assert changes == [{"steps": None, "trainer": {"max_steps": [4, 6]}}]
    assert not (trained_copy / "finished").exists()
    one, two = (checkpoint.load(run / "checkpoints/step-00000006") for run in (trained_copy, longer / "run"))
    assert (one.directory / "model.safetensors").read_bytes() == (two.directory / "model.safetensors").read_bytes()
