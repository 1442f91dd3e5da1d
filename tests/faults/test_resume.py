"""Killed at any instant, stopped again and again, between stages, with other workers, started twice: the same bits.

Everything that can be told apart is compared: parameters, optimiser, state, metrics, hypotheses, and which utterances
each update saw with which loss. A run that has changed meanwhile is refused, unless the change is allowed by name.
"""

import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import tiny
import tiny_frames
from faults import SAVE_EVERY, STEPS, Fault, Tally, Training, at_phase, at_step, die, phases, send, sizes, undisturbed
from places import REPOSITORY
from pretraining_stages import PLACES, Stage, between, in_the_first_update

from las.data import manifest
from las.data.loader import BucketSampler
from las.storage import run_directory
from las.training.tasks.base import Validator
from las.training.trainer import Trainer

UPDATE = (Trainer, "_start_update")
ENDS: dict[str, list[Fault]] = {
    "five times in the second epoch": [partial(at_step, *UPDATE, step, die) for step in (5, 6, 6, 7, 8)],
    "at the ends of epochs": [partial(at_step, *UPDATE, step, die) for step in (4, 8, 12)],
    "at the beginnings of epochs": [partial(at_step, BucketSampler, "plan", step, die) for step in (0, 4, 8)],
    "in validations": [partial(at_step, Validator, "__call__", step, die) for step in (3, 6, 9, 12)],
    "before the first save": [partial(at_step, *UPDATE, step, die) for step in (1, 2, 3, 2, 1)],
}


@pytest.mark.slow
@pytest.mark.parametrize("count", sizes(2, 30))
def test_resumed_again_and_again(count: int, quiet: Training, tmp_path: Path, tally: Tally) -> None:
    draw = random.Random(2)
    many = [[partial(at_step, *UPDATE, draw.randint(1, STEPS), die) for _ in range(5)] for _ in range(count)]
    for index, faults in enumerate([*ENDS.values(), *many][:count]):
        with tally.training(quiet, tmp_path, index) as training:
            for fault in faults:
                ending = training.wait(training.start(fault))
                assert ending.code in ((-9,) if index < len(ENDS) else (-9, 0)), ending
            training.ends(0)
            training.require_same(quiet)
    tally.close("F2 resumed three to five times, also at the ends of epochs and in validations")


@pytest.mark.slow
@pytest.mark.parametrize("count", sizes(1, 24))
def test_other_workers_at_each_resume(count: int, quiet: Training, tmp_path: Path, tally: Tally) -> None:
    orders = list(itertools.permutations((0, 1, 2, 4)))
    for order in random.Random(3).sample(orders, count):
        with tally.training(quiet, tmp_path, order) as training:
            for workers, step in zip(order, (2, 5, 10), strict=False):
                training.ends(-9, partial(at_step, *UPDATE, step, die), f"trainer.num_workers={workers}")
            training.ends(0, None, f"trainer.num_workers={order[-1]}")
            training.require_same(quiet)
    tally.close("F3 0, 1, 2 and 4 workers in turn")


@pytest.mark.parametrize("count", sizes(3, 100, first=1))
def test_signals(count: int, quiet: Training, tmp_path: Path, tally: Tally) -> None:
    """Some time after the first update."""
    draw = random.Random(4)
    kinds = itertools.cycle((signal.SIGTERM, signal.SIGUSR1, signal.SIGINT))
    while tally.tried < count:
        number = next(kinds)
        with tally.training(quiet, tmp_path, (number, tally.tried)) as training:
            process = training.start()
            while process.is_alive() and not training.seen():
                time.sleep(0.005)
            time.sleep(draw.uniform(0, 0.5))
            if process.is_alive():
                os.kill(process.pid, number)
            ending, last = training.wait(process), training.seen()[-1][0]
            if last == STEPS:  # it may have ended
                tally.tried -= 1
                continue
            assert ending.code == (130 if number == signal.SIGINT else 75), ending
            assert training.newest == last, "saved at the step at which it was stopped"
            training.ends(0)
            assert len(training.seen()) == STEPS, "no step was repeated"
            training.require_same(quiet)
    tally.close("F13 SIGTERM, SIGUSR1, SIGINT at a random time of training")


def signalled_twice(phase: int, first: signal.Signals, second: signal.Signals) -> None:
    at_phase(phase, partial(send, second))
    at_step(*UPDATE, 2, partial(send, first))


@pytest.mark.slow
@pytest.mark.parametrize("count", sizes(2, 1000))
def test_a_second_signal_during_the_save(count: int, quiet: Training, tmp_path: Path, tally: Tally) -> None:
    """At every change of the disk in the save that the first one asked for."""
    counted = Training(quiet.root, tmp_path / "counted")
    total = counted.ends(75, partial(signalled_twice, 0, *[signal.SIGTERM] * 2)).count(" phase ")
    pairs = list(itertools.product((signal.SIGINT, signal.SIGTERM), repeat=2))
    cases = list(itertools.product(range(1, total + 1), pairs))
    for phase, (first, second) in random.Random(5).sample(cases, min(count, len(cases))):
        with tally.training(quiet, tmp_path, (phase, first, second)) as training:
            training.ends(130 if first == signal.SIGINT else 75, partial(signalled_twice, phase, first, second))
            training.ends(0)
            training.require_same(quiet)
    tally.close("F13 a second signal at each change of the disk in the save")


def slurm_job(folder: Path) -> None:
    os.environ |= {"PATH": f"{folder}:{os.environ['PATH']}", "SLURM_JOB_ID": "7"}
    at_step(*UPDATE, 1, partial(send, signal.SIGUSR1))


@pytest.mark.slow
@pytest.mark.parametrize("count", sizes(2, 20))
def test_preempted_by_slurm(count: int, quiet: Training, tmp_path: Path, tally: Tally) -> None:
    """A step and a half at a time: queued again after each, once."""
    length = f"trainer.max_steps={count + 2}"
    straight, training = (Training(quiet.root, tmp_path / name, length) for name in ("straight", "run"))
    straight.ends(0)
    asked, scontrol = tmp_path / "asked", tmp_path / "scontrol"
    scontrol.write_text(f"#!/bin/sh\necho $@ >> {asked}\n")
    scontrol.chmod(0o755)
    for index in range(1, count + 1):
        with tally.trial(index):
            assert "SLURM queued job 7" in training.ends(75, partial(slurm_job, tmp_path))
            assert asked.read_text() == "requeue 7\n" * index
            assert training.newest == index
    training.ends(0)
    training.require_same(straight)
    tally.close("F14 preempted by SLURM (its scontrol a stand-in)")


@pytest.mark.slow
@pytest.mark.parametrize("count", sizes(1, 20))
def test_started_twice(count: int, quiet: Training, tmp_path: Path, tally: Tally) -> None:
    for index in range(count):
        with tally.training(quiet, tmp_path, index) as training:
            both = [training.start(), training.start()]
            pids = [process.pid for process in both]
            codes = [training.wait(process).code for process in both]
            said = training.output.read_text()
            assert sorted(codes) == [0, 5], said
            assert f"process {pids[codes.index(0)]} on {os.uname().nodename}" in said, said
            training.require_same(quiet)
            assert json.loads((training.run / "result.json").read_text())["steps"] == STEPS
    tally.close("F20 two processes in one run folder")


def again(training: Training, quiet: Training) -> None:
    """The same command again, which comes to the same end and repeats no more than what was not saved."""
    before = [step for step, _ in training.seen()]
    training.ends(0)
    repeated = max(before, default=0) - (training.seen()[len(before) :] or [(STEPS + 1, "")])[0][0] + 1
    assert repeated <= SAVE_EVERY, f"{repeated} steps were lost"
    training.require_same(quiet)


def killed_at_random_times(count: int, quiet: Training, place: Path, tally: Tally) -> None:
    """As many trainings like the quiet one, each killed at a random time and continued."""
    draw = random.Random(1)
    while tally.tried < count:
        with tally.training(quiet, place, f"kill {tally.tried}") as training:
            process = training.start()
            process.join(draw.uniform(0, quiet.seconds))
            process.kill()
            if training.wait(process).code == -9:
                again(training, quiet)
            else:  # it had ended before
                tally.tried -= 1


@pytest.mark.parametrize("count", sizes(3, 200, first=1))
def test_at_a_random_time(count: int, quiet: Training, tmp_path: Path, tally: Tally) -> None:
    killed_at_random_times(count, quiet, tmp_path, tally)
    tally.close("F1 kill -9 at a random time")


@pytest.mark.slow
@pytest.mark.parametrize("count", sizes(3, 20))
def test_an_acoustic_model_at_a_random_time(count: int, tmp_path: Path, tally: Tally) -> None:
    root = tiny.tree(tmp_path)
    killed_at_random_times(count, undisturbed(root, base=tiny_frames.overrides(root)), root, tally)
    tally.close("F1 kill -9 of an acoustic model at a random time")


@pytest.mark.slow
@pytest.mark.parametrize("count", sizes(4, 1000))
def test_in_a_save(count: int, quiet: Training, tmp_path: Path, tally: Tally) -> None:
    total = phases(Training(quiet.root, tmp_path / "counted"))
    for number in sorted(random.Random(1).sample(range(1, total + 1), min(count, total))):
        with tally.training(quiet, tmp_path, f"phase {number}") as training:
            training.ends(-9, partial(at_phase, number, die))
            again(training, quiet)
    tally.close("F1 kill -9 before each change that saves make to the disk")


@pytest.mark.faults
def test_the_command_of_the_page(tmp_path: Path, tally: Tally) -> None:
    """`trainer=smoke` of the real command line, killed again and again; the corpus is made on first use."""
    command = [sys.executable, str(REPOSITORY / "scripts" / "train.py"), "+experiment=ln_encoder_only"]
    command += ["trainer=smoke", "seed=7", f"data_dir={tmp_path / 'data'}"]
    models = []
    for name, kills in (("quiet", 0), ("x", 12)):
        draw, killed, code = random.Random(13), 0, -9
        while code == -9:
            with subprocess.Popen([*command, f"name={name}"], stdout=subprocess.DEVNULL, cwd=tmp_path) as process:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(draw.uniform(5, 30) if killed < kills else None)
                process.kill()
                code, killed = process.wait(), killed + 1
        assert code == 0
        with tally.trial(f"{name} after {killed} processes"):
            assert killed > kills // 4
            (model,) = tmp_path.glob(f"runs/{name}/synthetic/seed7/checkpoints/step-00000100/model.safetensors")
            models.append(model.read_bytes())
            assert models[0] == models[-1]
    tally.close("F1 the command with trainer=smoke, killed 12 times: byte for byte")


STAGE_ENDS = (3, 6)
"""Steps with which the first two stages of GROWS end."""
GROWS = [
    *("model.listener.num_layers=3", "model.listener.time_reduction=[2,1,1]", "model.listener.reduction=max_pool"),
    "pretraining.stages=[{sub_epochs:1,width:0.5,model:{listener:{num_layers:1,time_reduction:[2]}}},"
    "{sub_epochs:1,model:{listener:{num_layers:2,time_reduction:[2,1]}}}]",
]
SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGKILL)
CODES = {signal.SIGINT: 130, signal.SIGKILL: -9}
PLACED = list(itertools.product(PLACES, SIGNALS, STAGE_ENDS))
PLACED_SAMPLE = [(between, signal.SIGTERM, STAGE_ENDS[0]), (between, signal.SIGKILL, STAGE_ENDS[1])]


@pytest.mark.slow
@pytest.mark.parametrize("count", sizes(len(PLACED_SAMPLE), len(PLACED)))
def test_between_two_stages(count: int, quiet: Training, tmp_path: Path, tally: Tally) -> None:
    grown = Training(quiet.root, tmp_path / "quiet", *GROWS)
    assert grown.ends(0).count(" takes over from ") == 2
    for place, number, step in PLACED_SAMPLE if count == len(PLACED_SAMPLE) else PLACED:
        with tally.training(grown, tmp_path, (place.__name__, number, step)) as training:
            said = training.ends(CODES.get(number, 75), partial(place, Stage(step, partial(send, number))))
            assert "Traceback" not in said, said
            saved = step + (place is in_the_first_update and number != signal.SIGKILL)
            assert training.newest == saved
            assert f"resuming at step {saved} " in training.ends(0)
            assert len(training.seen()) == STEPS + (number == signal.SIGKILL and place is in_the_first_update)
            training.require_same(grown)
    tally.close("F1, F13 kill -9 and signals between two stages of pretraining")


ORIGINS = {
    "torch": ("the version of torch: ", "allow_drift=[torch]"),
    "code": ("the version of las (or its commit): ", "allow_drift=[code]"),
    "vocabulary": ("the output symbols: ", "name=..."),
}
CONFIGS = {
    "optim.lr=0.5": "optim.lr: 0.004 -> 0.5",
    "seed=9": "seed: 1 -> 9",
    "trainer.batch_size=3": "trainer.batch_size: 2 -> 3",
    "model.speller.hidden_size=9": "model.speller.hidden_size: 8 -> 9",
    "corpus.phone_set=39": "corpus.phone_set: 48 -> 39",
}


def other_origin(kind: str) -> None:
    """A process with another version of torch, of the code, or other symbols."""
    origin = run_directory.origin
    run_directory.origin = lambda vocabulary_hash: origin(vocabulary_hash) | {kind: "another"}


def other_manifest() -> None:
    """A process that finds other training utterances."""
    manifest.content_hash = lambda utterances: "another"


@pytest.mark.slow
@pytest.mark.parametrize("count", sizes(1, 3))
def test_drift(count: int, quiet: Training, tmp_path: Path, tally: Tally) -> None:
    """Of a run that was killed after its first checkpoint."""
    killed = partial(at_step, *UPDATE, SAVE_EVERY + 1, die)
    training = Training(quiet.root, tmp_path / "refused")
    training.ends(-9, killed)
    before = {path: path.read_bytes() for path in (training.run / "checkpoints").rglob("*") if path.is_file()}
    another = ("another", "changed since this")
    attempts = [(kind, 5, partial(other_origin, kind), [], (*words, *another)) for kind, words in ORIGINS.items()]
    attempts += [("manifest", 5, other_manifest, [], ("the training utterances: ", "name=...", *another))]
    attempts += [(key, 5, None, [key], (words, "another configuration", "name=")) for key, words in CONFIGS.items()]
    for kind in ("vocabulary", "manifest_hash", "seed", "nonsense"):
        fault, words = partial(other_origin, "torch"), (f"allow_drift: '{kind}'", "torch, code")
        attempts += [(f"allow {kind}", 2, fault, [f"trainer.allow_drift=[{kind}]"], words)]
    for _ in range(count):
        for what, code, fault, more, words in attempts:
            with tally.trial(what):
                said = training.ends(code, fault, *more)
                assert all(word in said for word in words), said
                assert before == {path: path.read_bytes() for path in before}
    tally.close("F21 other torch, code, symbols, utterances or configuration: refused")
    for kind in ("torch", "code"):
        with tally.training(quiet, tmp_path, kind) as allowed:
            allowed.ends(-9, killed)
            said = allowed.ends(0, partial(other_origin, kind), f"trainer.allow_drift=[{kind}]")
            assert f"run began: {run_directory.KINDS[kind]}" in said
            state = json.loads((max((allowed.run / "checkpoints").glob("step-*")) / "state.json").read_text())
            assert state["origin"][kind] == "another"
    tally.close("F21 allowed by name: continued, and said")
