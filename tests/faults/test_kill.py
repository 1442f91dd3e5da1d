"""`kill -9` at any instant, and the same command again: the same bits as if nothing had happened.

Everything that can be told apart is compared: parameters, optimiser, state, metrics, hypotheses, and which utterances
each update saw with which loss.
"""

import contextlib
import random
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import tiny
import tiny_frames
from faults import SAVE_EVERY, STEPS, Tally, Training, at_phase, die, phases, sizes
from places import REPOSITORY


def again(training: Training, quiet: Training) -> None:
    """The same command again, which comes to the same end and repeats no more than what was not saved."""
    before = [step for step, _ in training.seen()]
    ending = training.train()
    assert ending.code == 0, ending.said
    repeated = max(before, default=0) - (training.seen()[len(before) :] or [(STEPS + 1, "")])[0][0] + 1
    assert repeated <= SAVE_EVERY, f"{repeated} steps were lost"
    training.require_same(quiet)


def killed_at_random_times(count: int, quiet: Training, place: Path, tally: Tally) -> None:
    """As many trainings like the quiet one, each killed at a random time and continued."""
    draw, began = random.Random(1), time.monotonic()
    assert Training(quiet.root, place / "timed", base=quiet.base).train().code == 0
    lasts = time.monotonic() - began
    while tally.tried < count:
        training = Training(quiet.root, place / "run", base=quiet.base)
        process = training.start()
        process.join(draw.uniform(0, lasts))
        process.kill()
        if training.wait(process).code == -9:  # else it had ended before
            with tally.trial(f"after {training.seen()[-1:]}"):
                again(training, quiet)
        training.remove()


@pytest.mark.parametrize("count", sizes(3, 200, first=1))
def test_at_a_random_time(count: int, quiet: Training, tmp_path: Path, tally: Tally) -> None:
    killed_at_random_times(count, quiet, tmp_path, tally)
    tally.close("F1 kill -9 at a random time")


@pytest.mark.slow
@pytest.mark.parametrize("count", sizes(3, 20))
def test_an_acoustic_model_at_a_random_time(count: int, tmp_path: Path, tally: Tally) -> None:
    root = tiny.tree(tmp_path)
    undisturbed = Training(root, root / "quiet", base=tiny_frames.overrides(root))
    assert undisturbed.train().code == 0, undisturbed.last.said
    killed_at_random_times(count, undisturbed, root / "killed", tally)
    tally.close("F1 kill -9 of an acoustic model at a random time")


@pytest.mark.slow
@pytest.mark.parametrize("count", sizes(4, 1000))
def test_in_a_save(count: int, quiet: Training, tmp_path: Path, tally: Tally) -> None:
    total = phases(Training(quiet.root, tmp_path / "counted"))
    chosen = sorted(random.Random(1).sample(range(1, total + 1), min(count, total)))
    for number in chosen:
        training = Training(quiet.root, tmp_path / str(number))
        with tally.trial(f"phase {number}"):
            ending = training.train(partial(at_phase, number, die))
            assert ending.code == -9, ending.said
            again(training, quiet)
        training.remove()
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
