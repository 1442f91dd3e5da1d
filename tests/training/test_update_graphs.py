"""Whole updates as CUDA graphs, on stand-ins for a GPU and its graphs: the updates are those without."""

from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from gpu_stand_in import stand_in
from graph_stand_in import Graphs, graphs
from tiers import rest_slow
from tiny import MODEL
from torch import Tensor
from update_cases import batch, keyed, training

from las.data.loader import Batch
from las.nn.losses import LabelSmoothedCrossEntropy
from las.training import update_graphs
from las.training.optimization import GradientTransform, WeightNoise
from las.training.step import StepResult, TrainingStep
from las.training.update_graphs import UpdateGraphs

QUIET = ("model.listener.dropout=0.0", "model.listener.input_noise=0.0")
STILL = [*MODEL, *QUIET, "model.speller.dropout=0.0"]
WITHOUT_SPELLER = [*(each for each in MODEL if "speller" not in each), *QUIET]
CASES = {
    "attention": STILL,
    "dropout": MODEL,
    "batch norm": [*STILL, "+model.listener.output_norm=batch"],
    "masks": [*STILL, "augment=specaugment_ld"],
    "clipped and smoothed": [*STILL, "gradients.clip_norm=0.1", "gradients.l2=0.01", "loss.smoothing=0.1"],
    "clipped biases that add up": [*STILL, "gradients.clip_norm=0.1", "cell@model.listener.cell=ba2016"],
    "attention and CTC": [*STILL, "loss=joint_ctc_intermediate"],
    "CTC": [*WITHOUT_SPELLER, "model=ctc_small"],
    "transducer": [
        *(*WITHOUT_SPELLER, "model=transducer_small", "loss=transducer"),
        *("model.joint.size=8", "model.prediction.dropout=0.0"),
    ],
}


@pytest.fixture(autouse=True)
def captured_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update_graphs, "IN_PARTS", 0)


def updates(step: TrainingStep, count: int = 4, first: int = 1) -> list[StepResult]:
    """Updates with batches of two shapes in turns."""
    parts = short().split(3)
    return [step([keyed(parts[number % 2])], number) for number in range(first, first + count)]


def short() -> Batch:
    """A batch of a tenth of a second at most: each of its frames is operations here."""
    given = batch()
    samples = given.num_samples // 6
    waveforms = given.waveforms[:, :1500] * (torch.arange(1500) < samples.unsqueeze(1))
    return replace(given, waveforms=waveforms, num_samples=samples)


def state(step: TrainingStep) -> list[Tensor]:
    """Parameters and buffers."""
    return [each.detach().clone() for each in (*step.model.parameters(), *step.model.buffers())]


def agree(one: TrainingStep, other: TrainingStep) -> bool:
    return all(torch.allclose(a, b, atol=2e-5) for a, b in zip(state(one), state(other), strict=True))


class Unmet(Counter[Any]):
    """Counts nothing."""

    def __getitem__(self, key: Any) -> int:
        return 0


def by_operations(step: TrainingStep) -> None:
    """Let each update of a step be the first of its shape."""
    assert step.graphs is not None
    step.graphs.met = Unmet()


@pytest.mark.parametrize("name", rest_slow(CASES))
def test_updates_by_graphs_are_those_without(name: str) -> None:
    with stand_in() as gpu, graphs() as made:
        ours, right = training(*CASES[name]), training(*CASES[name])
        found = updates(ours, 5)
        assert isinstance(ours.graphs, UpdateGraphs) and ours.graphs.works and made.refused == 0
        # The first update makes the memory of the optimiser; then there is one of each shape. One replay was the trial.
        assert [graph.num_replays for graph in made] == [2, 1]
        gpu.waits.clear()
        found += updates(ours, 1, 6)
        assert gpu.waits.total() == 1, gpu.waits  # the result is read
        if name == "dropout":  # its draws depend on the padding
            by_operations(right)
        else:
            right.__dict__["graphs"] = None
        expected = updates(right, 6)
        for result, other in zip(found, expected, strict=True):
            assert result == pytest.approx(other, rel=1e-4)
        assert agree(ours, right)


def test_a_shape_is_captured_once_it_was_met_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update_graphs, "IN_PARTS", 2)
    with stand_in(), graphs() as made:
        ours, right = training(*STILL), training(*STILL)
        right.__dict__["graphs"] = None
        numbers = []
        for number in range(1, 6):
            ours([keyed(short())], number)
            assert ours.graphs is not None
            numbers.append((len(ours.graphs.graphs), len(made)))
            right([keyed(short())], number)
        # Steps of the speller are captured before. The first update makes the memory of the optimiser.
        assert [whole for whole, _ in numbers] == [0, 0, 0, 0, 1] and numbers[1][1] > 0 and agree(ours, right)


def test_graphs_follow_the_learning_rate_and_leave_out_what_is_not_finite() -> None:
    with stand_in(), graphs() as made:
        ours, right = training(*STILL), training(*STILL)
        right.__dict__["graphs"] = None
        for step in (ours, right):
            for number, rate in enumerate([0.01, 0.02, 0.0, 0.03], start=1):
                step.optimiser.param_groups[0]["lr"] = rate
                step([keyed(short())], number)
        assert len(made) > 0 and agree(ours, right)
        before = state(ours)
        broken = replace(short(), waveforms=torch.full_like(short().waveforms, torch.inf))
        assert not ours([keyed(broken)], 5).finite and all(map(torch.equal, state(ours), before))
        assert [group["lr"] for group in ours.optimiser.param_groups] == [0.03]
        assert not any(group["capturable"] for group in ours.optimiser.param_groups)
        assert ours([keyed(short())], 6).finite


def test_a_restored_optimiser_has_other_memory_and_graphs() -> None:
    with stand_in(), graphs() as made:
        ours, right = training(*STILL), training(*STILL)
        right.__dict__["graphs"] = None
        for step in (ours, right):
            updates(step)
        ours.optimiser.load_state_dict(deepcopy(ours.optimiser.state_dict()))
        num_captured = len(made)
        for step in (ours, right):
            updates(step, first=5)
        assert len(made) == num_captured + 2 and agree(ours, right)


def test_graphs_that_fail_are_not_used(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(self: Graphs, *given: Any, **options: Any) -> None:
        return None

    def too_large(self: Graphs, *given: Any, compiled: bool = False, **options: Any) -> Any:
        if compiled:
            raise torch.OutOfMemoryError("a test's")
        return Graphs.capture(self, *given, **options)

    for capture, remark in ((refused, ""), (too_large, "memory does not suffice")):
        with stand_in(), monkeypatch.context() as patch, graphs() as made:
            patch.setattr("las.nn.kernels.graphs.capture.captured", capture.__get__(made))
            ours = training(*STILL)
            found = updates(ours)
            assert ours.graphs is not None and not ours.graphs.works
            assert all(result.finite for result in found) and remark in capsys.readouterr().out
    with stand_in(), monkeypatch.context() as patch, graphs():
        patch.setattr(UpdateGraphs, "_agrees", lambda *given: False)
        ours, right = training(*STILL), training(*STILL)
        right.__dict__["graphs"] = None
        for step in (ours, right):
            updates(step)
        assert "gives other values" in capsys.readouterr().out and agree(ours, right)


class Own(LabelSmoothedCrossEntropy):
    """A loss that does not say whether an update with it can be a graph."""


class Declared(LabelSmoothedCrossEntropy):
    one_graph = True


class OwnGradients(GradientTransform):
    pass


class OwnNoise(WeightNoise):
    pass


class OwnAdam(torch.optim.Adam):
    pass


@pytest.mark.parametrize(
    "overrides",
    [
        ["loss=mwer"],
        ["loss=joint_ctc", "attention@model.speller.attention=ctc_triggered"],
        ["gradients=annealed_noise"],
        ["weight_noise=park_b"],
        ["optim=sgd"],
        ["model.speller.scheduled_sampling={_target_: las.PiecewiseLinear, points: [[1, 0.0], [9, 0.5]]}"],
    ],
)
def test_updates_that_depend_on_more_than_tensors_are_no_graphs(overrides: list[str]) -> None:
    with stand_in(), graphs():
        assert training(*STILL, *overrides).graphs is None


@pytest.mark.parametrize(
    "part, made",
    [("loss", Own), ("gradients", OwnGradients), ("weight_noise", OwnNoise), ("optimiser", OwnAdam)],
)
def test_a_part_of_ones_own_makes_updates_no_graphs(part: str, made: Callable[..., Any]) -> None:
    with stand_in(), graphs():
        step = training(*STILL)
        given = [step.model.parameters()] if part == "optimiser" else []
        setattr(step, part, made(*given, fused=True) if given else made())
        assert step.graphs is None


def test_a_loss_of_ones_own_says_that_updates_can_be_graphs() -> None:
    with stand_in(), graphs():
        step = training(*STILL)
        step.loss = Declared()
        assert step.graphs is not None
    assert training(*STILL, device="cpu").graphs is None
