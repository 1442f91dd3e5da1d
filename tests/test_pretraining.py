"""Pretraining: what a model takes over from a smaller one, and trainings in stages, stopped and started again."""

import copy
import json
import math
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Answer
from test_faults_stages import PLACES, Stage, in_the_first_update
from test_trainer import stopped_after
from tiny import overrides, steps, tree

from las import assembly, build, checkpoint, commands, pretraining, run
from las.errors import ConfigError
from las.keeping import Keeper
from las.model import ListenAttendSpell

SYMBOLS = 12
SIZES = [
    *("model.features.num_mels=6", "model.listener.num_layers=2", "model.listener.time_reduction=[2,1]"),
    *("model.speller.hidden_size=10", "model.speller.embedding_size=3", "model.speller.attention.key_size=5"),
    *("model.listener.dropout=0.0", "model.speller.dropout=0.0", "model.listener.input_noise=0.0"),
]


def model(*more: str) -> ListenAttendSpell:
    made: ListenAttendSpell = build.build(build.compose("train", [*SIZES, *more])["model"], where="model")(
        16000, SYMBOLS
    )
    with torch.no_grad():
        for name, tensor in made.state_dict().items():
            if name.startswith(("listener", "speller", "ctc")):
                tensor.normal_()  # biases and gains too, else copies could not be told from what was there
    return made


def layered(num_layers: int, *more: str) -> ListenAttendSpell:
    factors = f"[{','.join(['2'] + ['1'] * (num_layers - 1))}]"
    sizes = [f"model.listener.num_layers={num_layers}", f"model.listener.time_reduction={factors}"]
    return model(*sizes, "model.listener.reduction=max_pool", "model.listener.hidden_size=4", *more)


def of_layer(tensors: dict[str, torch.Tensor], index: int) -> list[torch.Tensor]:
    return [tensor for name, tensor in sorted(tensors.items()) if name.startswith(f"listener.layers.{index}.")]


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(one) == len(other) > 0 and all(map(torch.equal, one, other))


@pytest.mark.parametrize(("place", "came_from"), [("below_top", [0, 1, None, 2]), ("on_top", [0, 1, 2, None])])
def test_new_layers_go_where_the_config_says(place: str, came_from: list[int | None]) -> None:
    small, large = layered(3), layered(4)
    before, drawn = copy.deepcopy(small.state_dict()), copy.deepcopy(large.state_dict())
    carried = pretraining.carry(small.state_dict(), large, 4, place)
    after = large.state_dict()
    for index, source in enumerate(came_from):
        assert same(of_layer(after, index), of_layer(drawn, index) if source is None else of_layer(before, source))
    others = [name for name in after if not name.startswith("listener.layers.")]
    assert same([after[name] for name in others], [before[name] for name in others])
    new = came_from.index(None)
    assert str(carried) == f"{len(before)} tensors; new: listener.layers.{new}"
    assert all(map(torch.equal, small.state_dict().values(), before.values()))


def test_the_only_layer_stays_the_first_one() -> None:
    small, large = layered(1), layered(3)
    drawn = copy.deepcopy(large.state_dict())
    pretraining.carry(small.state_dict(), large, 4, "below_top")
    after = large.state_dict()
    assert same(of_layer(after, 0), of_layer(small.state_dict(), 0))
    assert same(of_layer(after, 1) + of_layer(after, 2), of_layer(drawn, 1) + of_layer(drawn, 2))


GROWN = {
    "pyramid, location": [],
    "additive, CTC": ["attention@model.speller.attention=additive", "loss=joint_ctc"],
    "fertility, maximum": ["attention@model.speller.attention=weight_feedback", "model.listener.reduction=max_pool"],
    "maxout of everything": ["+model.speller.readout=maxout", "+model.speller.readout_reads=state_and_token"],
    "residual": ["model.listener.reduction=mean", "+model.listener.residual_from=1"],
    "frames side by side": ["model.listener.input_reduction=3", "model.listener.time_reduction=[3,1]"],
}


@pytest.mark.parametrize("options", GROWN.values(), ids=GROWN)
def test_a_wider_model_whose_new_units_are_silent_is_the_smaller_one(options: list[str]) -> None:
    """So every part of every tensor went to its own place: gates, directions, frames side by side, other inputs."""
    small, large = (model(f"model.listener.hidden_size={size}", *options).eval() for size in (4, 7))
    with torch.no_grad():
        for parameter in large.parameters():
            parameter.zero_()
    carried = pretraining.carry(small.state_dict(), large, 4, "below_top")
    assert carried.grown and not carried.new and not carried.left
    given = torch.randn(2, 6000), torch.tensor([6000, 4000]), torch.tensor([[3, 1, 2], [4, 5, 0]])
    one, other = small(*given), large(*given)
    torch.testing.assert_close(other.logits, one.logits, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(other.weights, one.weights, atol=1e-4, rtol=1e-4)
    if one.heard is not None:
        torch.testing.assert_close(other.heard.log_probs, one.heard.log_probs, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("cell", ["ln_global", "ln_per_gate", "zeineldeen2020_joined_cell", "weight_norm", "bn_input"])
def test_what_was_there_is_in_the_grown_tensors_and_the_rest_is_as_drawn(cell: str) -> None:
    """Parts of four units each, e.g. the gates: they are the first four of seven."""
    card = f"cell@model.listener.cell={cell}"
    small, large = (model(f"model.listener.hidden_size={size}", card) for size in (4, 7))
    drawn = copy.deepcopy(large.state_dict())
    carried = pretraining.carry(small.state_dict(), large, 4, "below_top")
    assert not carried.new and not carried.left
    assert len(carried.grown) >= 2 * 2 * 3
    for name in carried.grown:
        old, new, first = small.state_dict()[name], large.state_dict()[name], drawn[name]
        kept = new == first
        assert int(kept.sum()) == new.numel() - old.numel()
        assert torch.equal(new[~kept], old.flatten())
        if name.startswith("listener.layers.") and name.endswith(("bias", "gain")):
            assert not kept.view(-1, 7)[:, :4].any() and kept.view(-1, 7)[:, 4:].all()


def test_a_head_that_only_one_of_them_has() -> None:
    with_ctc, without = (layered(2, *more) for more in (["loss=joint_ctc"], []))
    drawn = copy.deepcopy(with_ctc.state_dict())
    assert str(pretraining.carry(with_ctc.state_dict(), without, 4, "on_top")).endswith("; left behind: ctc.output")
    assert str(pretraining.carry(without.state_dict(), with_ctc, 4, "on_top")).endswith("; new: ctc.output")
    assert torch.equal(with_ctc.ctc.output.weight, drawn["ctc.output.weight"])


def test_what_changed_in_another_way_begins_anew() -> None:
    """A layer of a pyramid reads fewer rows side by side: nobody knows which of its weights are meant."""
    small, large = (
        model("model.listener.hidden_size=4", f"model.listener.time_reduction={f}") for f in ("[4,1]", "[2,1]")
    )
    drawn = copy.deepcopy(large.state_dict())
    carried = pretraining.carry(small.state_dict(), large, 4, "below_top")
    assert carried.new == [f"listener.layers.1.{way}.cell.input_weight" for way in ("forwards", "backwards")]
    assert str(carried).endswith(f"; new: {', '.join(carried.new)}")
    assert all(torch.equal(large.state_dict()[name], drawn[name]) for name in carried.new)


def config(stages: list[dict[str, Any]], **section: Any) -> build.Config:
    composed = build.compose("train", [])
    return composed | {"pretraining": {"new_layers": "below_top", "stages": stages} | section}


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
    over = [pretraining.current([first, second, last], done).number for done in (0, 1, 2, 4, 5, 99)]
    assert over == [1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize(
    ("stages", "section", "says"),
    [
        (
            [{"sub_epoch": 1}],
            {},
            r"pretraining\.stages\[0\]\.sub_epoch: Changes has no such key\. Did you mean sub_epochs",
        ),
        ([{"sub_epochs": 0}], {}, r"pretraining\.stages\[0\]: sub_epochs must be at least 1"),
        ([{"sub_epochs": 1}, {"sub_epochs": 1, "width": 2.0}], {}, r"pretraining\.stages\[1\]: .*width above 0"),
        ([{"width": 0.5}], {}, r"pretraining\.stages\[0\]: .*sub_epochs"),
        ([5], {}, r"pretraining\.stages\[0\]=5 should be a mapping"),
        ([{"sub_epochs": 1, "loss": 3}], {}, r"pretraining\.stages\[0\]\.loss=3 should be of type"),
        ([], {"new_layers": "below"}, r"pretraining\.new_layers=below: .* Did you mean below_top"),
        (
            [{"sub_epochs": 1}, {"sub_epochs": 1, "width": 0.5}],
            {},
            r"stage 2 of 3 has a smaller listener than stage 1 of 3",
        ),
    ],
)
def test_stages_that_cannot_be_are_named(stages: list[Any], section: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        pretraining.stages(config(stages, **section))


def test_a_model_without_a_listener_has_no_stages() -> None:
    whole = config([{"sub_epochs": 1}]) | {"model": {"_target_": "las.lm.neural.LanguageModel"}}
    with pytest.raises(ConfigError, match="no listener that could grow: choose pretraining=none"):
        pretraining.stages(whole)


STAGES = [
    "{sub_epochs:2,width:0.5,longest_tokens:4,model:{listener:{num_layers:1,time_reduction:[2]},"
    "ctc:{_target_:las.ctc.CTC,_partial_:true}},loss:{_target_:las.loss.JointCTC,smoothing:0.0}}",
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


@pytest.fixture(scope="module", autouse=True)
def one_commit() -> Iterator[None]:
    """Somebody may commit to the checkout while tests run."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(run, "commit", lambda: "that of the test")
        yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the corpus and a training in stages that nobody disturbed, in `run`."""
    root = tree(tmp_path_factory.mktemp("stages"))
    long_words(root)
    commands.train(overrides(root, *GROWS, "trainer.keep_checkpoints=99"))
    return root


def test_the_log_names_every_stage(whole: Path) -> None:
    log = (whole / "run/log.txt").read_text()
    lines = [line for line in log.splitlines() if line.startswith(("stage", "baseline:"))]
    assert [line.split(":")[0] for line in lines] == [
        "stage 1 of 3, to the end of sub-epoch 2",
        "baseline",
        "stage 2 of 3, to the end of sub-epoch 3",
        "baseline",
        "stage 2 of 3 takes over from stage 1",
        "stage 3 of 3",
        "baseline",
        "stage 3 of 3 takes over from stage 2",
    ]
    assert "model.listener.num_layers: 3 -> 1" in lines[0] and "at most 4 tokens" in lines[0]
    assert "6 training utterances" in lines[1] and "8 training utterances" in lines[3]
    assert "2 of them an update" in lines[3] and "an update" not in lines[6]
    assert lines[4].endswith("into larger ones; new: listener.layers.1; left behind: ctc.output")
    assert lines[5] == "stage 3 of 3: the whole training" and lines[7].endswith("tensors; new: listener.layers.1")


def test_checkpoints_are_of_their_stage_and_the_best_of_the_last_one(whole: Path) -> None:
    found = {step: checkpoint.load(checkpoint.directory(whole / "run/checkpoints", step)) for step in (2, 4, 6, 8, 10)}
    assert [each.state["stage"] for each in found.values()] == [1, 1, 2, 3, 3]
    assert [each.config["model"]["listener"]["num_layers"] for each in found.values()] == [1, 1, 2, 3, 3]
    assert "ctc.output.weight" in found[4].model and "ctc.output.weight" not in found[6].model
    assert [len(each.state["validations"]) for each in found.values()] == [1, 2, 1, 1, 2]
    places = [[each.state[key] for key in ("epoch", "next_batch", "utterances")] for each in found.values()]
    assert places == [[0, 2, 6], [0, 4, 6], [1, 4, 8], [1, 6, 8], [1, 8, 8]]
    assert (whole / "run/checkpoints/best").read_text().strip() in ("step-00000008", "step-00000010")
    own = run.Run(found[10].config).result
    assert own is not None and own["steps"] == 10 and own["train_utterances"] == 8


def test_the_schedule_goes_on_and_the_optimiser_does_not(whole: Path) -> None:
    rates = {line["step"]: line["learning_rate"] for line in steps(whole / "run") if line["event"] == "train"}
    expected = [0.04 + (1 - 0.04) * min(done, 3) / 3 for done in range(5)]
    assert [rates[step] for step in (1, 3, 5, 7, 9)] == pytest.approx([0.004 * share for share in expected])
    for step, own in ((4, 4), (6, 2), (8, 2), (10, 4)):
        optim = checkpoint.load(checkpoint.directory(whole / "run/checkpoints", step)).optim
        assert {float(value) for name, value in optim.items() if name.endswith(".step")} == {float(own)}


def require_same(root: Path, name: str) -> None:
    one, two = (checkpoint.load(checkpoint.directory(root / each / "checkpoints", 10)) for each in ("run", name))
    for tensors, others in ((one.model, two.model), (one.optim, two.optim)):
        assert tensors.keys() == others.keys()
        assert all(torch.equal(tensors[key], others[key]) for key in tensors)
    assert one.state == two.state and steps(root / "run") == steps(root / name)


@pytest.mark.parametrize("step", [1, 3, 5, 7, 9])
def test_stopped_within_a_stage_nothing_changes(step: int, whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more = [*GROWS, "trainer.keep_checkpoints=99", f"run_dir={whole / str(step)}"]
    stopped_after(monkeypatch, whole, step, *more)
    torch.manual_seed(step)
    commands.train(overrides(whole, *more))
    require_same(whole, str(step))


@pytest.mark.parametrize("step", [4, 6])
def test_stopped_between_two_stages_nothing_changes(step: int, whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed when the last checkpoint of a stage is there, and once more before the next one has any."""
    more = [*GROWS, "trainer.keep_checkpoints=99", f"run_dir={whole / f'between{step}'}"]
    save = Keeper.save

    def stopping(self: Keeper, *args: Any) -> None:
        save(self, *args)
        if args[0].step == step:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Keeper, "save", stopping)
        with pytest.raises(KeyboardInterrupt):
            commands.train(overrides(whole, *more))
    stopped_after(monkeypatch, whole, step + 1, *more)
    commands.train(overrides(whole, *more))
    require_same(whole, f"between{step}")


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_a_signal_between_two_stages_changes_nothing(
    place: Callable[[Stage], None], whole: Path, las: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stage is saved, whenever it comes, and no update is repeated."""
    name = place.__name__
    more = ["train", *overrides(whole, *GROWS, "trainer.keep_checkpoints=99", f"run_dir={whole / name}")]
    with monkeypatch.context() as patched:
        place(Stage(4, lambda: os.kill(os.getpid(), signal.SIGTERM), patched.setattr))
        answer = las(*more)
    assert answer.code == 75 and "las train: stopped by " in answer.err and not (whole / name / "lock.json").exists()
    saved = 4 + (place is in_the_first_update)
    assert max((whole / name / "checkpoints").glob("step-*")).name == f"step-{saved:08}"
    answer = las(*more)
    assert answer.code == 0 and f"resuming at step {saved} " in answer.out
    require_same(whole, name)


def test_a_disk_that_refuses_the_end_of_a_stage_ends_the_training(
    whole: Path, monkeypatch: pytest.MonkeyPatch, las: Callable[..., Answer]
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
    assert answer.code == 5 and "the checkpoint at the end of stage 1 of 3 could not be written" in answer.err
    assert las("train", *more).code == 0
    require_same(whole, "full")


def test_a_mistake_in_a_stage_is_found_before_anything_is_written(whole: Path, las: Callable[..., Answer]) -> None:
    place = f"run_dir={whole / 'wrong'}"
    answer = las(
        "train", *overrides(whole, "pretraining.stages=[{sub_epochs:1,model:{listener:{num_layer:1}}}]", place)
    )
    assert answer.code == 2 and "model.listener.num_layer: Listener has no such key" in answer.err
    answer = las("train", *overrides(whole, "pretraining.stages=[{sub_epochs:1,longest_tokens:1}]", place))
    assert answer.code == 3 and "stages[0].longest_tokens=1: every utterance is longer" in answer.err
    assert not (whole / "wrong/metrics.jsonl").exists()


def test_a_training_that_ends_in_a_stage_says_so(whole: Path, las: Callable[..., Answer]) -> None:
    """At its very end, too, and when only the result is missing."""
    more = overrides(whole, *GROWS, "trainer.max_steps=4", f"run_dir={whole / 'short'}")
    for resumed in (False, True):
        answer = las("train", *more)
        assert answer.code == 0 and "ended in stage 1 of 3 of pretraining: raise trainer.max_steps" in answer.out
        assert ("resuming at step 4" in answer.out) == resumed
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
    stages = pretraining.stages(build.compose("train", [*ZEINELDEEN, f"pretraining={card}", "+scale=tiny"]))
    corpus = build.build(build.compose("train", [])["corpus"])
    assert [stage.until for stage in stages] == [*(5 * number for number in range(1, len(stages))), math.inf]
    assert [stage.config["loss"]["smoothing"] for stage in stages] == [0.0] * (len(stages) - 1) + [0.1]
    models = [assembly.build_stage(stage, corpus).parts.model for stage in stages]
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
        carried = pretraining.carry(small.state_dict(), large, small.listener.hidden_size, stage.new_layers)
        assert not carried.left and not carried.grown
        depths = len(small.listener.layers), len(large.listener.layers)
        layer = f"listener.layers.{depths[1] - 2}."
        assert all(name.startswith(layer) for name in carried.new) and bool(carried.new) == (depths[0] < depths[1])
