"""The option `kernel`: what computes the LSTMs is chosen, logged, and no part of what a run is."""

from collections.abc import Callable
from pathlib import Path

import pytest
from console import Answer
from interrupted_trainings import stopped_after
from tiny import overrides, steps

from las.cli import train


def losses(run: Path) -> list[float]:
    return [line["loss"] for line in steps(run) if line["event"] == "train"]


def test_kernels_train_alike_are_named_in_the_log_and_may_change(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped_after(monkeypatch, corpus, 3, "kernel=plain")
    train.train(overrides(corpus, "kernel=auto"))
    log = (corpus / "run/log.txt").read_text()
    assert log.index("recurrences: plain (as asked); speller: plain") < log.index("resuming at step 2")
    assert log.count("recurrences: ") == log.count("speller: ") == 2
    train.train(overrides(corpus, f"run_dir={corpus / 'auto'}", "trainer.tf32=false"))
    assert losses(corpus / "run") == pytest.approx(losses(corpus / "auto"), rel=1e-5)


def test_a_kernel_that_does_not_exist_is_an_error(corpus: Path, las: Callable[..., Answer]) -> None:
    answer = las("train", *overrides(corpus, "kernel=cpuu"))
    assert answer.code != 0 and "'cpuu'" in answer.err and "mean cpu" in answer.err
    assert not (corpus / "run").exists()
    answer = las("decode", f"checkpoint={corpus}", "split=test", "kernel=3")
    assert answer.code != 0 and "kernel '3'" in answer.err
    answer = las("train", *overrides(corpus, "kernel=autograd"))
    assert answer.code != 0 and "kernel=autograd was removed" in answer.err and "plain" in answer.err
