"""The dry run: which sizes are tried, what they say of others, and that no size is tried which would not fit."""

from pathlib import Path

import pytest
import tiny
import torch

from las.cli import dry_run
from las.cli.dry_run import Forecast, Trial
from las.config import build
from las.data import loader
from las.data.corpora.base import Corpus
from las.data.manifest import Utterance
from las.runtime import machine
from las.runtime.machine import GB, NOTE, OK, PROBLEM
from las.training import memory, setup

CPU = torch.device("cpu")


class Prepared:
    """A tiny training whose updates take what the test says."""

    def __init__(self, root: Path) -> None:
        self.config = build.compose("train", tiny.overrides(tiny.tree(root), "kernel=plain"))
        self.corpus: Corpus = build.build(self.config["corpus"], where="corpus")
        self.parts = setup.build_parts(self.config, self.corpus)
        self.train: list[Utterance] = self.corpus.prepare(root / "manifests")["train"]
        self.longest = [self.train[at] for at in loader.by_length(self.train)[::-1]]

    def forecast(self) -> Forecast:
        return dry_run.forecast(self.parts, self.longest, self.corpus)


@pytest.fixture
def prepared(tmp_path: Path) -> Prepared:
    return Prepared(tmp_path)


def takes(monkeypatch: pytest.MonkeyPatch, fixed: int, each: int, free: int) -> list[int]:
    """Updates take `fixed` bytes and `each` an utterance, of `free`; returns the sizes that are tried, as they come."""
    tried: list[int] = []
    real = dry_run.TrainingStep.__call__

    def update(self: dry_run.TrainingStep, given: list, step: int) -> object:
        tried.append(len(given[0].ids))
        return real(self, given, step)

    def resident(run: object, device: torch.device) -> int:
        run()
        return fixed + each * tried[-1]

    monkeypatch.setattr(dry_run.TrainingStep, "__call__", update)
    monkeypatch.setattr(memory, "resident", resident)
    monkeypatch.setattr(machine, "available_memory", lambda: free)
    return tried


def test_sizes_double_up_to_the_batch_and_tell_how_many_seconds_fit(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = takes(monkeypatch, 1000, 100, 10_000)
    found = prepared.forecast()
    longest_s = prepared.longest[0].duration_s
    assert tried == [1, 1, 2, 4, 8] and found.failed is None
    assert found.longest_batch_s == pytest.approx((9000 - 1000) / 100 * longest_s)
    assert [trial.seconds for trial in found.trials] == pytest.approx([n * longest_s for n in (1, 2, 4, 8)])


def test_what_would_not_fit_is_not_tried(prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = takes(monkeypatch, 0, 1000, 3500)
    found = prepared.forecast()
    assert tried == [1, 1, 2] and found.failed is None
    assert found.longest_batch_s == pytest.approx(3.15 * prepared.longest[0].duration_s)


def test_memory_that_runs_out_is_no_error(prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    takes(monkeypatch, 0, 1, 1_000_000)
    real = dry_run.TrainingStep._part

    def part(self: dry_run.TrainingStep, batch: object, divisor: float) -> float:
        if len(batch.ids) > 2:
            raise torch.OutOfMemoryError
        return real(self, batch, divisor)

    monkeypatch.setattr(dry_run.TrainingStep, "_part", part)
    found = prepared.forecast()
    assert found.failed == 4 and found.longest_batch_s == pytest.approx(2 * prepared.longest[0].duration_s)
    monkeypatch.setattr(dry_run.TrainingStep, "_part", lambda *given: part(given[0], Whole, given[2]))
    assert prepared.forecast() == Forecast([], 1_000_000, 1, None)


class Whole:
    """A batch that is always too large."""

    ids = ("a", "b", "c")


def test_verdicts() -> None:
    trials = [Trial(1, 10.0, int(GB), 0.5), Trial(2, 20.0, int(2 * GB), 1.0)]
    fits = dry_run.verdict(Forecast(trials, int(10 * GB), None, 90.0), "2 of 10 s", 20.0, 20.0)
    assert fits.verdict == OK and "2.00 of 10.0" in fits.found and "trainer.max_batch_s=90" in fits.found
    small = dry_run.verdict(Forecast(trials, int(10 * GB), None, 90.0), "16 of 10 s", 160.0, 200.0)
    assert small.verdict == PROBLEM and small.command == "trainer.max_batch_s=72"
    unknown = dry_run.verdict(Forecast(trials, 0, None, None), "2 of 10 s", 20.0, 20.0)
    assert unknown.verdict == NOTE
    none = dry_run.verdict(Forecast([], 0, 1, None), "2 of 10 s", 20.0, 20.0)
    assert none.verdict == PROBLEM and "limits.longest_s" in none.command


def test_only_utterances_that_are_trained_on_count(prepared: Prepared) -> None:
    limits = prepared.parts.limits
    built = prepared.parts._replace(limits=type(limits)(longest_s=0.1, clipped=limits.clipped, unknown=limits.unknown))
    (found,) = dry_run.checks(prepared.config, built, prepared.corpus, prepared.train)
    assert found.verdict == PROBLEM and found.found.endswith("limits.longest_s=0.1")
