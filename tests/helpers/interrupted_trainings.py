"""Trainings of the tiny corpus that are interrupted, and the comparison of two of them."""

from pathlib import Path

import pytest
import torch
from tiny import overrides, steps

from las.cli import train
from las.storage import checkpoint
from las.training.trainer import Trainer


def stopped_after(monkeypatch: pytest.MonkeyPatch, root: Path, step: int, *more: str) -> None:
    """A training that is interrupted when the update of a step is done."""
    update = Trainer._update

    def stopping(self: Trainer, batch):
        outcome = update(self, batch)
        if self.state.step == step:
            raise KeyboardInterrupt
        return outcome

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "_update", stopping)
        with pytest.raises(KeyboardInterrupt):
            train.train(overrides(root, *more))


def require_same(run: Path, other: Path) -> None:
    """Two runs left the same bits: model, optimiser, state, and the same lines of metrics."""
    one, two = (checkpoint.load(checkpoint.directory(folder / "checkpoints", 4)) for folder in (run, other))
    for tensors, others in ((one.model, two.model), (one.optim, two.optim)):
        assert tensors.keys() == others.keys()
        assert all(torch.equal(tensors[name], others[name]) for name in tensors)
    assert [key for key in one.state if one.state[key] != two.state[key]] == []
    assert steps(run) == steps(other)
    assert [line["step"] for line in steps(run)] == [1, 2, 2, 3, 4, 4]
    for split in ("dev", "test"):
        assert (run / f"hypotheses.{split}.jsonl").read_text() == (other / f"hypotheses.{split}.jsonl").read_text()
