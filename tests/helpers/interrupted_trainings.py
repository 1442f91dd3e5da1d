"""Trainings of the tiny corpus that are interrupted, and the comparison of two of them."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from tiny import overrides, steps

from las.cli import train
from las.training.trainer import Trainer


def stopped_after(monkeypatch: pytest.MonkeyPatch, root: Path, step: int, *more: str) -> None:
    """A training of the tiny corpus that is interrupted when the update of a step is done."""
    stopped(monkeypatch, step, overrides(root, *more))


def stopped(monkeypatch: pytest.MonkeyPatch, step: int, given: Sequence[str]) -> None:
    """A training that is interrupted when the update of a step is done."""
    start = Trainer._start_update

    def stopping(self: Trainer, batch, ids):
        update = start(self, batch, ids)
        if self.state.step == step:
            raise KeyboardInterrupt
        return update

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "_start_update", stopping)
        with pytest.raises(KeyboardInterrupt):
            train.train([*given])


def require_same(run: Path, other: Path, step: int = 4) -> None:
    """Two runs ended at a step with the same bits: model, optimiser, state, metrics, hypotheses and pointers."""
    names = [f"checkpoints/step-{step:08d}/{part}" for part in ("model.safetensors", "optim.safetensors", "state.json")]
    names += ["checkpoints/best", "checkpoints/latest", "hypotheses.dev.jsonl", "hypotheses.test.jsonl"]
    assert [name for name in names if (run / name).read_bytes() != (other / name).read_bytes()] == []
    assert steps(run) == steps(other)
