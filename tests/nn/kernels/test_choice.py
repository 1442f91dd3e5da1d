"""The option `kernel`: what computes the LSTMs is chosen, logged, and no part of what a run is."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from console import Answer
from interrupted_trainings import stopped_after
from tiny import overrides, steps

from las.cli import train


def losses(run: Path) -> list[float]:
    return [line["loss"] for line in steps(run) if line["event"] == "train"]


def test_every_kernel_trains_alike_and_is_named_in_the_log(corpus: Path) -> None:
    found = {}
    spellers = {"plain": "plain", "autograd": "replayed" if torch.cuda.is_available() else "autograd"}
    for kernel in ("plain", "autograd", "auto"):
        run = corpus / kernel
        train.train(overrides(corpus, f"run_dir={run}", f"kernel={kernel}", "trainer.tf32=false"))
        log = (run / "log.txt").read_text()
        assert log.count("recurrences: ") == log.count("speller: ") == 1
        assert kernel == "auto" or (f"recurrences: {kernel}" in log and f"speller: {spellers[kernel]}" in log)
        found[kernel] = losses(run)
    assert found["autograd"] == pytest.approx(found["plain"], rel=1e-5)
    assert found["auto"] == pytest.approx(found["plain"], rel=1e-5)


def test_a_run_goes_on_with_another_kernel(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped_after(monkeypatch, corpus, 3, "kernel=plain")
    train.train(overrides(corpus, "kernel=autograd"))
    log = (corpus / "run/log.txt").read_text()
    assert "resuming at step 2" in log
    assert log.index("recurrences: plain (as asked); speller: plain") < log.index("recurrences: autograd (as asked)")


def test_a_kernel_that_does_not_exist_is_an_error(corpus: Path, las: Callable[..., Answer]) -> None:
    answer = las("train", *overrides(corpus, "kernel=autograt"))
    assert answer.code != 0 and "The kernel 'autograt' does not exist. Did you mean autograd" in answer.err
    assert not (corpus / "run").exists()
    answer = las("decode", f"checkpoint={corpus}", "split=test", "kernel=3")
    assert "The kernel '3' does not exist" in answer.err
