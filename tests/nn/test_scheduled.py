"""Numbers that change during training: lines, jumps, and what they count."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from console import Answer
from interrupted_trainings import require_same, stopped_after
from tiny import overrides

from las.cli import train
from las.config import build
from las.data.loader import Batch
from las.training.step import StepResult, TrainingStep


@pytest.mark.parametrize(
    ("points", "unit", "expected"),
    [
        ([[10, 0.0], [20, 0.4], [40, 0.2]], "steps", {1: 0.0, 10: 0.0, 15: 0.2, 20: 0.4, 30: 0.3, 40: 0.2, 10**6: 0.2}),
        # A jump: label smoothing that Park et al. 2019 switch off when the decay of their schedule L begins.
        ([[140_000, 0.1], [140_000, 0.0]], "steps", {1: 0.1, 139_999: 0.1, 140_000: 0.0, 140_001: 0.0}),
        ([[5, 0.1]], "steps", {1: 0.1, 5: 0.1, 6: 0.1}),
        ([[1, 0.0], [5, 0.4]], "sub_epochs", {1: 0.0, 2: 0.1, 5: 0.4, 6: 0.4}),
    ],
)
def test_lines_from_point_to_point_and_constants_outside(points: list, unit: str, expected: dict) -> None:
    ramp = build.build({"_target_": "las.PiecewiseLinear", "points": points, "unit": unit})
    found = [ramp.value_at(at, 10**7) if unit == "steps" else ramp.value_at(10**7, at) for at in expected]
    assert found == pytest.approx([*expected.values()])


RAMPS = [
    "loss.smoothing={_target_:las.PiecewiseLinear,points:[[2,0.3],[3,0.1]]}",
    "model.speller.scheduled_sampling={_target_:las.PiecewiseLinear,points:[[1,0.2],[2,0.6]],unit:sub_epochs}",
]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, float, float]]:
    """(step, smoothing, sampling) of every update."""
    found: list[tuple[int, float, float]] = []
    start = TrainingStep.start

    def noting(self: TrainingStep, batches: Sequence[Batch], step: int) -> Callable[[], StepResult]:
        found.append((step, self.loss.smoothing, self.model.speller.scheduled_sampling))
        return start(self, batches, step)

    monkeypatch.setattr(TrainingStep, "start", noting)
    return found


def test_training_follows_the_ramps_and_a_stop_changes_no_bit(
    corpus: Path, seen: list[tuple[int, float, float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Smoothing by step; sampling by sub-epoch, of which each has two steps."""
    train.train(overrides(corpus, *RAMPS))
    assert seen == [(1, 0.3, 0.2), (2, 0.3, 0.2), (3, 0.1, 0.6), (4, 0.1, 0.6)]
    again = f"run_dir={corpus / 'again'}"
    stopped_after(monkeypatch, corpus, 3, *RAMPS, again)
    train.train(overrides(corpus, *RAMPS, again))
    assert seen[4:] == [*seen[:3], *seen[2:4]]
    require_same(corpus / "run", corpus / "again")


def test_a_ramp_that_makes_no_line_is_named_before_training(corpus: Path, las: Callable[..., Answer]) -> None:
    answer = las("train", *overrides(corpus, "loss.smoothing={_target_:las.PiecewiseLinear,points:[[1,0.1,0.2]]}"))
    assert answer.code == 2 and "points=[[1, 0.1, 0.2]]" in answer.err
