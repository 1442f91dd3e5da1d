"""Pretraining in stages: which there are, and trainings in them, stopped and started again."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from console import Las
from interrupted_trainings import require_same
from tiny import overrides, steps, tree

from las.cli import train
from las.config.build import Config, build, compose
from las.runtime.errors import ConfigError
from las.storage import checkpoint, run_directory
from las.training import pretraining, setup


def config(stages: list[Any]) -> Config:
    return compose("train", []) | {"pretraining": {"new_layers": "below_top", "stages": stages}}


def test_a_stage_is_the_training_with_some_changes() -> None:
    whole = config(
        [
            {"sub_epochs": 2, "width": 0.5, "accumulate": 3, "longest_tokens": 9, "loss": {"smoothing": 0.0}},
            {"sub_epochs": 3, "model": {"listener": {"num_layers": 2, "dropout": [0.0, 0.2]}, "ctc": {"a": 1}}},
        ]
    )
    first, second, last = pretraining.stages(whole)
    assert (first.until, second.until, last.until) == (2, 5, math.inf)
    assert [stage.is_last for stage in (first, second, last)] == [False, False, True] and last.config is whole
    assert first.config["model"]["listener"]["hidden_size"] == 64 and second.config["model"]["ctc"] == {"a": 1}
    assert first.changes == [
        "loss.smoothing: 0.1 -> 0.0",
        "model.listener.hidden_size: 128 -> 64",
        "trainer.accumulate: 1 -> 3",
        "at most 9 tokens",
    ]
    assert first.config["trainer"]["patience"] == 2, "a stage is not cut short"
    assert second.config["model"]["listener"] == whole["model"]["listener"] | {"dropout": [0.0, 0.2]}
    assert second.config["optim"] == whole["optim"] and "ctc" not in whole["model"]
    over = [pretraining.current_stage([first, second, last], done).number for done in (0, 1, 2, 4, 5, 99)]
    assert over == [1, 1, 2, 2, 3, 3]


IMPOSSIBLE = [
    ([{"sub_epoch": 1}], {}, r"pretraining\.stages\[0\]\.sub_epoch: .* Did you mean sub_epochs"),
    ([{"sub_epochs": 0}], {}, r"pretraining\.stages\[0\]: sub_epochs"),
    ([{"sub_epochs": 1}, {"sub_epochs": 1, "width": 2.0}], {}, r"pretraining\.stages\[1\]: .*width"),
    ([{"width": 0.5}], {}, r"pretraining\.stages\[0\]: .*sub_epochs"),
    ([5], {}, r"pretraining\.stages\[0\]=5"),
    ([{"sub_epochs": 1, "loss": 3}], {}, r"pretraining\.stages\[0\]\.loss=3"),
    ([{"sub_epochs": 1}], {"model": {"_target_": "las.LSTMLanguageModel"}}, "choose pretraining=none"),
    ([], {"pretraining": {"new_layers": "below", "stages": []}}, r"new_layers='below' .* Did you mean below_top"),
    ([{"sub_epochs": 1}, {"sub_epochs": 1, "width": 0.5}], {}, "stage 2 of 3 .* stage 1 of 3"),
]


@pytest.mark.parametrize(("stages", "sections", "says"), IMPOSSIBLE)
def test_stages_that_cannot_be_are_named(stages: list[Any], sections: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        pretraining.stages(config(stages) | sections)


STAGES = [
    "{sub_epochs:2,width:0.5,longest_tokens:4,model:{listener:{num_layers:1,time_reduction:[2]},"
    "ctc:{_target_:las.CTC,_partial_:true}},loss:{_target_:las.JointCTCLoss,smoothing:0.0}}",
    "{sub_epochs:1,accumulate:2,model:{listener:{num_layers:2,time_reduction:[2,1],dropout:[0.1,0.0]}}}",
]
GROWS = [
    *("model.listener.num_layers=3", "model.listener.time_reduction=[2,1,1]", "model.listener.reduction=max_pool"),
    *(f"pretraining.stages=[{','.join(STAGES)}]", "schedule=newbob_multi_epoch", "schedule.warmup_sub_epochs=4"),
    *("trainer.max_steps=10", "trainer.validate_every=2", "trainer.batch_size=1", "trainer.patience=1"),
    *("trainer.broken_after_epochs=99",),
]
"""Stages of 4 and 2 steps, each ending in the middle of an epoch, and 4 steps of the whole training."""


def long_words(root: Path) -> None:
    """Two training utterances get a text of more than four tokens."""
    for index in (6, 7):
        labels = root / f"TIMIT/TRAIN/DR1/FTR0/SX{index}.PHN"
        end = int(labels.read_text().split()[-2])
        names = ("h#", "aa", "iy", "aa", "h#")
        labels.write_text("".join(f"{end * i // 5} {end * (i + 1) // 5} {name}\n" for i, name in enumerate(names)))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the corpus and a training in stages that nobody disturbed, in `run`."""
    root = tree(tmp_path_factory.mktemp("stages"))
    long_words(root)
    train.train(overrides(root, *GROWS, "trainer.keep_checkpoints=99"))
    return root


def test_checkpoints_are_of_their_stage_and_the_best_of_the_last_one(whole: Path) -> None:
    found = {step: checkpoint.load(checkpoint.directory(whole / "run/checkpoints", step)) for step in (2, 4, 6, 8, 10)}
    assert [each.state["stage"] for each in found.values()] == [1, 1, 2, 3, 3]
    assert [each.config["model"]["listener"]["num_layers"] for each in found.values()] == [1, 1, 2, 3, 3]
    assert "ctc.output.weight" in found[4].model and "ctc.output.weight" not in found[6].model
    assert [len(each.state["validations"]) for each in found.values()] == [1, 2, 1, 1, 2]
    places = [[each.state[key] for key in ("epoch", "next_batch", "utterances")] for each in found.values()]
    assert places == [[0, 2, 6], [0, 4, 6], [1, 4, 8], [1, 6, 8], [1, 8, 8]]
    assert (whole / "run/checkpoints/best").read_text().strip() in ("step-00000008", "step-00000010")
    own = run_directory.RunDirectory(found[10].config).result
    assert own is not None and own["steps"] == 10 and own["train_utterances"] == 8


def test_the_schedule_goes_on_and_the_optimiser_does_not(whole: Path) -> None:
    rates = {line["step"]: line["learning_rate"] for line in steps(whole / "run") if line["event"] == "train"}
    expected = [0.04 + (1 - 0.04) * min(done, 3) / 3 for done in range(5)]
    assert [rates[step] for step in (1, 3, 5, 7, 9)] == pytest.approx([0.004 * share for share in expected])
    for step, own in ((4, 4), (6, 2), (8, 2), (10, 4)):
        optim = checkpoint.load(checkpoint.directory(whole / "run/checkpoints", step)).optim
        assert {float(value) for name, value in optim.items() if name.endswith(".step")} == {float(own)}


def test_a_disk_that_refuses_the_end_of_a_stage_ends_the_training(
    whole: Path, monkeypatch: pytest.MonkeyPatch, las: Las
) -> None:
    real = checkpoint.save

    def full(folder: Path, step: int, *rest: Any) -> Path:
        if step == 4:
            raise OSError("no space")
        return real(folder, step, *rest)

    more = overrides(whole, *GROWS, "trainer.keep_checkpoints=99", f"run_dir={whole / 'full'}")
    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "save", full)
        answer = las("train", *more)
    assert answer.code == 5 and "could not be" in answer.err
    assert las("train", *more).code == 0
    require_same(whole / "full", whole / "run", step=10)


def test_a_mistake_in_a_stage_is_found_before_anything_is_written(whole: Path, las: Las) -> None:
    place = f"run_dir={whole / 'wrong'}"
    las("train", *overrides(whole, "pretraining.stages=[{sub_epochs:1,model:{listener:{num_layer:1}}}]", place)).fails(
        2, "model.listener.num_layer: Listener has"
    )
    las("train", *overrides(whole, "pretraining.stages=[{sub_epochs:1,longest_tokens:1}]", place)).fails(
        3, "stages[0].longest_tokens=1: every utterance"
    )
    assert not (whole / "wrong/metrics.jsonl").exists()


def test_a_training_that_ends_in_a_stage_says_so(whole: Path, las: Las) -> None:
    """At its very end, too, and when only the result is missing."""
    more = overrides(whole, *GROWS, "trainer.max_steps=4", f"run_dir={whole / 'short'}")
    for resumed in (False, True):
        answer = las("train", *more)
        assert answer.code == 0 and "raise trainer.max_steps" in answer.out
        assert ("resuming at step" in answer.out) == resumed
        result = whole / "short/result.json"
        assert json.loads(result.read_text())["steps"] == 4
        result.unlink()


ZEINELDEEN = ["model=las_switchboard", "schedule=newbob_multi_epoch", "schedule.warmup_from=0.1"]
ZEINELDEEN += ["schedule.warmup_sub_epochs=10"]
DEPTHS = {
    "zeineldeen2020": [(4, 8, 1), (4, 8, 1), (5, 8, 1), (6, 8, 1), (6, 8, 1)],
    "zeineldeen2020_baseline": [(4, 8, 1), (4, 8, 2), (5, 8, 2), (6, 8, 2), (6, 8, 1)],
    "zeyer2018": [(2, 32, 1), (2, 32, 1), (3, 32, 1), (4, 32, 1), (5, 32, 1), (6, 32, 1), (6, 8, 1), (6, 8, 1)],
}


@pytest.mark.parametrize("card", DEPTHS)
def test_the_stages_of_the_papers(card: str) -> None:
    """Layers, reduction of time and batches of an update; every tensor but those of new layers is taken over."""
    stages = pretraining.stages(compose("train", [*ZEINELDEEN, f"pretraining={card}", "+scale=tiny"]))
    corpus = build(compose("train", [])["corpus"])
    assert [stage.until for stage in stages] == [*(5 * number for number in range(1, len(stages))), math.inf]
    assert [stage.config["loss"]["smoothing"] for stage in stages] == [0.0] * (len(stages) - 1) + [0.1]
    models = [setup.build_stage(stage, corpus).model for stage in stages]
    found = [
        (len(made.listener.layers), math.prod(made.listener.reductions), stage.config["trainer"]["accumulate"])
        for made, stage in zip(models, stages, strict=True)
    ]
    assert found == DEPTHS[card]
    assert [dropout.p for dropout in models[0].listener.dropouts] == [
        *[0.3] * (len(models[0].listener.layers) - 1),
        0.0,
    ]
    for small, large, stage in zip(models, models[1:], stages[1:], strict=False):
        transfer = pretraining.transfer_parameters(
            small.state_dict(), large, small.listener.hidden_size, stage.new_layers
        )
        assert not transfer.dropped and not transfer.enlarged
        depths = len(small.listener.layers), len(large.listener.layers)
        layer = f"listener.layers.{depths[1] - 2}."
        assert all(name.startswith(layer) for name in transfer.new) and bool(transfer.new) == (depths[0] < depths[1])
