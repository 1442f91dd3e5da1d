"""Stopped again and again, by signals and kills, with other workers each time, or started twice: the same bits."""

import itertools
import json
import os
import random
import signal
import time
from functools import partial
from pathlib import Path

import pytest
from faults import STEPS, Fault, Tally, Training, at_phase, at_step, die, send, sizes

from las.data.sampler import BucketSampler
from las.training.tasks.base import Validator
from las.training.trainer import Trainer

UPDATE = (Trainer, "_update")
ENDS: dict[str, list[Fault]] = {
    "five times in the second epoch": [partial(at_step, *UPDATE, step, die) for step in (5, 6, 6, 7, 8)],
    "at the ends of epochs": [partial(at_step, *UPDATE, step, die) for step in (4, 8, 12)],
    "at the beginnings of epochs": [partial(at_step, BucketSampler, "plan", step, die) for step in (0, 4, 8)],
    "in validations": [partial(at_step, Validator, "__call__", step, die) for step in (3, 6, 9, 12)],
    "before the first save": [partial(at_step, *UPDATE, step, die) for step in (1, 2, 3, 2, 1)],
}


def require_end(training: Training, quiet: Training, *more: str) -> None:
    ending = training.train(None, *more)
    assert ending.code == 0, ending.said
    training.require_same(quiet)


@pytest.mark.slow
@pytest.mark.parametrize("count", sizes(2, 30))
def test_resumed_again_and_again(count: int, quiet: Training, tmp_path: Path, tally: Tally) -> None:
    draw = random.Random(2)
    many = [[partial(at_step, *UPDATE, draw.randint(1, STEPS), die) for _ in range(5)] for _ in range(count)]
    for index, faults in enumerate([*ENDS.values(), *many][:count]):
        training = Training(quiet.root, tmp_path / str(index))
        with tally.trial(index):
            for fault in faults:
                ending = training.train(fault)
                assert ending.code in ((-9,) if index < len(ENDS) else (-9, 0)), ending.said
            require_end(training, quiet)
        training.remove()
    tally.close("F2 resumed three to five times, also at the ends of epochs and in validations")


@pytest.mark.slow
@pytest.mark.parametrize("count", sizes(1, 24))
def test_other_workers_at_each_resume(count: int, quiet: Training, tmp_path: Path, tally: Tally) -> None:
    orders = list(itertools.permutations((0, 1, 2, 4)))
    for order in random.Random(3).sample(orders, count):
        training = Training(quiet.root, tmp_path / "run")
        with tally.trial(order):
            for workers, step in zip(order, (2, 5, 10), strict=False):
                ending = training.train(partial(at_step, *UPDATE, step, die), f"trainer.num_workers={workers}")
                assert ending.code == -9, ending.said
            require_end(training, quiet, f"trainer.num_workers={order[-1]}")
        training.remove()
    tally.close("F3 0, 1, 2 and 4 workers in turn")


def stopped(training: Training, number: signal.Signals, delay_s: float) -> int:
    """The exit code of a training that gets a signal some time after its first update of this process."""
    before = len(training.seen())
    process = training.start()
    while process.is_alive() and len(training.seen()) == before:
        time.sleep(0.005)
    time.sleep(delay_s)
    if process.is_alive():
        os.kill(process.pid, number)
    return training.wait(process).code


def newest_step(training: Training) -> int:
    return max(int(path.name[5:]) for path in (training.run / "checkpoints").glob("step-*"))


@pytest.mark.parametrize("count", sizes(3, 100, first=1))
def test_signals(count: int, quiet: Training, tmp_path: Path, tally: Tally) -> None:
    draw = random.Random(4)
    kinds = itertools.cycle((signal.SIGTERM, signal.SIGUSR1, signal.SIGINT))
    while tally.tried < count:
        training, number = Training(quiet.root, tmp_path / "run"), next(kinds)
        code = stopped(training, number, draw.uniform(0, 0.5))
        last = training.seen()[-1][0]
        if last < STEPS:  # else it may have ended
            with tally.trial((number, last)):
                assert code == (130 if number == signal.SIGINT else 75), (code, training.output.read_text())
                assert newest_step(training) == last, "saved at the step at which it was stopped"
                ending = training.train()
                assert ending.code == 0, ending.said
                assert len(training.seen()) == STEPS, "no step was repeated"
                training.require_same(quiet)
        training.remove()
    tally.close("F13 SIGTERM, SIGUSR1, SIGINT at a random time of training")


def signalled_twice(phase: int, first: signal.Signals, second: signal.Signals) -> None:
    at_phase(phase, partial(send, second))
    at_step(*UPDATE, 2, partial(send, first))


@pytest.mark.slow
@pytest.mark.parametrize("count", sizes(2, 1000))
def test_a_second_signal_during_the_save(count: int, quiet: Training, tmp_path: Path, tally: Tally) -> None:
    """At every change of the disk in the save that the first one asked for."""
    counted = Training(quiet.root, tmp_path / "counted").train(partial(signalled_twice, 0, *[signal.SIGTERM] * 2))
    total = counted.said.count(" phase ")
    pairs = list(itertools.product((signal.SIGINT, signal.SIGTERM), repeat=2))
    cases = list(itertools.product(range(1, total + 1), pairs))
    for phase, (first, second) in random.Random(5).sample(cases, min(count, len(cases))):
        training = Training(quiet.root, tmp_path / f"{phase}{first}{second}")
        with tally.trial((phase, first, second)):
            code = training.train(partial(signalled_twice, phase, first, second)).code
            assert code == (130 if first == signal.SIGINT else 75), code
            ending = training.train()
            assert ending.code == 0, ending.said
            training.require_same(quiet)
        training.remove()
    tally.close("F13 a second signal at each change of the disk in the save")


def slurm_job(folder: Path) -> None:
    os.environ |= {"PATH": f"{folder}:{os.environ['PATH']}", "SLURM_JOB_ID": "7"}
    at_step(*UPDATE, 1, partial(send, signal.SIGUSR1))


@pytest.mark.slow
@pytest.mark.parametrize("count", sizes(2, 20))
def test_preempted_by_slurm(count: int, quiet: Training, tmp_path: Path, tally: Tally) -> None:
    """A step and a half at a time: queued again after each, once."""
    length = f"trainer.max_steps={count + 2}"
    straight = Training(quiet.root, tmp_path / "straight", length)
    assert straight.train().code == 0
    asked, scontrol = tmp_path / "asked", tmp_path / "scontrol"
    scontrol.write_text(f"#!/bin/sh\necho $@ >> {asked}\n")
    scontrol.chmod(0o755)
    training = Training(quiet.root, tmp_path / "run", length)
    for index in range(1, count + 1):
        with tally.trial(index):
            ending = training.train(partial(slurm_job, tmp_path))
            assert ending.code == 75 and "SLURM queued job 7 again" in ending.said, ending.said
            assert asked.read_text() == "requeue 7\n" * index
            assert newest_step(training) == index
    assert training.train().code == 0
    training.require_same(straight)
    tally.close("F14 preempted by SLURM (its scontrol a stand-in)")


@pytest.mark.slow
@pytest.mark.parametrize("count", sizes(1, 20))
def test_started_twice(count: int, quiet: Training, tmp_path: Path, tally: Tally) -> None:
    for index in range(count):
        training = Training(quiet.root, tmp_path / str(index))
        with tally.trial(index):
            both = [training.start(), training.start()]
            pids = [process.pid for process in both]
            codes = [training.wait(process).code for process in both]
            assert sorted(codes) == [0, 5], training.output.read_text()
            said = training.output.read_text()
            assert f"in use by process {pids[codes.index(0)]} on {os.uname().nodename}, for 0:" in said, said
            training.require_same(quiet)
            assert json.loads((training.run / "result.json").read_text())["steps"] == STEPS
        training.remove()
    tally.close("F20 two processes in one run folder")
