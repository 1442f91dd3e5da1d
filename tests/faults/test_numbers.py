"""Losses and gradients that are not finite, and memory that runs out: at any update, in any place of the gradient."""

import hashlib
import math
import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from faults import STEPS, Tally, Training, sizes
from tiny import steps
from update_cases import batch, limited, updates

from las.data.loader import Batch
from las.storage import checkpoint
from las.training.step import TrainingStep

BAD = (float("nan"), float("inf"), -float("inf"))
STILL = [
    "model.listener.dropout=0.0",
    "model.listener.input_noise=0.0",
    "++model.features.normalisation=utterance",
    "model.speller.dropout=0.0",
]


def spoil(of: TrainingStep, place: random.Random, value: float) -> None:
    """One entry of the gradient, or the loss, is this value when a part of a batch is done."""
    part = of._part

    def faulty(given: Batch, divisor: float) -> float:
        found = part(given, divisor)
        reached = [each for each in of.model.parameters() if each.grad is not None]
        at = place.randrange(len(reached) + 1)
        if at == len(reached):
            return value
        gradient = reached[at].grad
        assert gradient is not None
        gradient.view(-1)[place.randrange(gradient.numel())] = value
        return found

    of._part = faulty


def fingerprint(of: TrainingStep) -> str:
    """The bytes of parameters and optimiser."""
    tensors = [*of.model.state_dict().values()]
    tensors += [value for state in of.optimiser.state.values() for value in state.values()]
    return hashlib.sha256(b"".join(tensor.numpy().tobytes() for tensor in tensors)).hexdigest()


@pytest.mark.parametrize("count", sizes(12, 1000))
def test_an_update_that_is_not_finite_changes_nothing(count: int, tally: Tally) -> None:
    draw = random.Random(10)
    both = [updates("fp32"), updates("bf16")]
    for of in both:
        of.optimiser = torch.optim.Adam(of.model.parameters())
        assert of([batch(slice(0, 2))], 1).finite
    originals = [of._part for of in both]
    for index in range(count):
        of, value = both[index % 2], draw.choice(BAD)
        before = fingerprint(of)
        with tally.trial((index, value)):
            of._part = originals[index % 2]
            spoil(of, draw, value)
            assert not of([batch(slice(0, 2))], index + 2).finite
            assert fingerprint(of) == before
    for of, original in zip(both, originals, strict=True):
        of._part = original
        before = fingerprint(of)
        assert of([batch(slice(0, 2))], 1).finite and fingerprint(of) != before
    tally.close("F10 a loss or an entry of a gradient that is not finite (fp32, bf16)")


def spoilt_at(bad: Sequence[int], value: float) -> None:
    """In these of the updates that the process makes, counted from 1."""
    start, made = TrainingStep.start, 0

    def counted(self: TrainingStep, batches: Sequence[Batch], step: int) -> Any:
        nonlocal made
        made += 1
        part = self._part
        if made in bad:
            spoil(self, random.Random(step), value)
        try:
            return start(self, batches, step)
        finally:
            self._part = part

    TrainingStep.start = counted


def require_finite(training: Training) -> None:
    """Everything in every checkpoint."""
    directories = list((training.run / "checkpoints").glob("step-*"))
    assert directories
    for found in map(checkpoint.load, directories):
        for tensor in (*found.model.values(), *found.optim.values()):
            assert bool(torch.isfinite(tensor).all())


@pytest.mark.parametrize("count", sizes(1, 36))
def test_nothing_that_is_not_finite_is_saved(count: int, quiet: Training, tmp_path: Path, tally: Tally) -> None:
    for index in range(count):
        step, value = index % STEPS + 1, BAD[index // STEPS]
        with tally.training(quiet, tmp_path, (step, value)) as training:
            said = training.ends(0, partial(spoilt_at, [step], value))
            require_finite(training)
            (line,) = (line for line in steps(training.run) if line["event"] == "left out")
            ids = dict(training.seen())[step].split(" ")[0]
            assert line["step"] == step and ",".join(line["utterances"]) == ids
            assert f"step {step}: the loss is" in said and "left out" in said
    tally.close("F10 one update of a training: left out, named, nothing of it saved")


@pytest.mark.slow
@pytest.mark.parametrize("count", sizes(1, 10))
def test_ten_bad_updates_go_back_once_and_ten_more_end_it(
    count: int, quiet: Training, tmp_path: Path, tally: Tally
) -> None:
    draw = random.Random(11)
    for index in range(count):
        bad = [*draw.sample(range(5, 15), 10), *draw.sample(range(20, 40), 10)]
        with tally.training(quiet, tmp_path, bad, "trainer.max_steps=60", "trainer.patience=60") as training:
            said = training.ends(4, partial(spoilt_at, bad, BAD[index % 3]))
            assert said.count("half the learning") == 1, said
            rates = [line["learning_rate"] for line in steps(training.run) if line["event"] == "train"]
            assert rates[-1] == 0.5 * rates[0]
            require_finite(training)
            training.ends(0)  # a broken training is a result
    tally.close("F10 ten of a hundred updates: back once, then code 4")


@pytest.mark.parametrize("count", sizes(6, 200, first=2))
def test_memory_that_runs_out(count: int, tally: Tally) -> None:
    draw = random.Random(12)
    for _ in range(count):
        reduction, most = draw.choice(("mean", "sum")), draw.randint(1, 5)
        rows = slice(draw.randint(0, 2), draw.randint(4, 6))
        with pytest.MonkeyPatch.context() as patched, tally.trial((rows, most, reduction)):
            whole, small = updates(reduction=reduction), updates(reduction=reduction)
            limited(small, patched, most)
            one, other = whole([batch(rows)], 1), small([batch(rows)], 1)
            assert math.isclose(one.loss, other.loss, rel_tol=1e-6)
            both = ([each.grad for each in of.model.parameters() if each.grad is not None] for of in (small, whole))
            for mine, others in zip(*both, strict=True):
                assert float((mine - others).abs().max()) <= 1e-6 * max(1.0, one.norm)
            assert small.micro_batch_size is None or small.micro_batch_size <= most
    tally.close("F11 memory runs out: the gradient of the parts is that of the batch")


def memory_for(most: int) -> None:
    """No more utterances at once than so many."""
    part = TrainingStep._part

    def faulty(self: TrainingStep, given: Batch, divisor: float) -> float:
        found = part(self, given, divisor)
        if len(given.ids) > most:
            raise torch.OutOfMemoryError("a test's")
        return found

    TrainingStep._part = faulty


@pytest.mark.slow
@pytest.mark.parametrize("count", sizes(1, 3))
def test_what_fits_is_remembered(count: int, quiet: Training, tmp_path: Path, tally: Tally) -> None:
    more = [*STILL, "trainer.batch_size=4"]
    whole = Training(quiet.root, tmp_path / "whole", *more)
    whole.ends(0)
    for most in range(1, count + 1):
        with tally.training(whole, tmp_path, most) as training:
            training.ends(0, partial(memory_for, most))
            for (step, mine), (same, other) in zip(training.seen(), whole.seen(), strict=True):
                (ids, loss, _), (others, expected, _) = mine.split(), other.split()
                assert (step, ids) == (same, others), "no utterance is lost"
                assert math.isclose(float.fromhex(loss), float.fromhex(expected), rel_tol=1e-5)
            found, _ = checkpoint.newest(training.run / "checkpoints")
            assert found is not None and found.state["most"] == min(most, 2)
    tally.close("F11 a training with less memory: every utterance once, the cap in the checkpoint")
