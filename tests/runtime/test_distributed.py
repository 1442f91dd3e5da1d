"""Training with many processes: the same numbers as with one, and an end for all of them when one of them fails."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from processes import Ending, Impatient, Training, fail, kill, spoil, starve, stop, terminate, together

from las.runtime import distributed
from las.runtime.distributed import ReportedElsewhere
from las.runtime.errors import StorageError
from las.storage import checkpoint

STILL = ["model.listener.dropout=0", "model.listener.input_noise=0", "model.speller.dropout=0"]
"""Without what a step draws, which belongs to (seed, step, process)."""
STEPS, SHORT = 7, "trainer.max_steps=4"
LENGTH = [
    f"trainer.max_steps={STEPS}",
    "trainer.validate_every=4",
    "trainer.batch_size=3",
    "trainer.allow_drift=[code]",
    "trainer.broken_after_epochs=1000",
]
"""Three batches an epoch, of an odd number of utterances; somebody may commit to the checkout while tests run. Writing
its one sentence without hearing is hard to beat."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.tree(tmp_path_factory.mktemp("many"))


def arguments(root: Path, name: str, *more: str) -> list[str]:
    return [*tiny.overrides(root, *STILL, *LENGTH, *more), f"run_dir={root / name}"]


def training(root: Path, name: str, *more: str, **faults: Any) -> Training:
    (root / name).mkdir(exist_ok=True)
    return Training(arguments(root, name, *more), root / f"{name}.seen", **faults)


@pytest.fixture(scope="module")
def alone(root: Path) -> Path:
    """The run of one process that nobody disturbed."""
    assert together(root, 1, training(root, "alone")).codes == [0]
    return root / "alone"


def losses(run: Path) -> dict[int, float]:
    return {line["step"]: line["loss"] for line in tiny.steps(run) if line["event"] == "train"}


def beginning(run: Path, last_step: int) -> dict[int, float]:
    return {step: loss for step, loss in losses(run).items() if step <= last_step}


def dev(run: Path) -> list[tuple[int, float]]:
    return [(line["step"], line["dev_error"]) for line in tiny.steps(run) if line["event"] == "validation"]


def batches(run: Path) -> dict[int, list[str]]:
    """The utterances of each step, of all processes together."""
    found: dict[int, list[str]] = {}
    for line in run.with_suffix(".seen").read_text().splitlines():
        step, _, ids, _ = json.loads(line)
        found[step] = sorted([*found.get(step, []), *ids])
    return found


@pytest.mark.slow
def test_one_two_one_processes_train_as_one_does(root: Path, alone: Path) -> None:
    first = together(root, 1, training(root, "changed", fault=terminate, at=(0, 2)))
    second = together(root, 2, training(root, "changed", fault=terminate, at=(1, 5)))
    third = together(root, 1, training(root, "changed"))
    assert (first.codes, second.codes, third.codes) == ([75], [75, 75], [0]), second.said
    assert second.said.count("resuming at step 2") == second.said.count("signal at step 5") == 1
    assert "resuming at step 5 (epoch 2, batch 2)" in third.said
    run = root / "changed"
    assert batches(run) == batches(alone)
    for first_step in (1, 4):
        epoch = [name for step in range(first_step, first_step + 3) for name in batches(run)[step]]
        assert sorted(epoch) == [f"ftr0_sx{index}" for index in range(8)]
    assert losses(run) == pytest.approx(losses(alone), abs=1e-6) and len(losses(run)) == STEPS
    assert dev(run) == dev(alone)
    assert [path for path in run.rglob("*") if path.name.startswith((".", "lock"))] == []
    assert len(list((run / "tensorboard").iterdir())) == 3, "one file of each main process"
    lines = (run / "log.txt").read_text().splitlines()
    assert sum("dev loss" in line for line in lines) == len(dev(run))


@pytest.mark.slow
def test_a_loss_or_memory_that_fails_in_one_process_is_answered_by_all(root: Path, alone: Path) -> None:
    ending = together(root, 2, training(root, "starved", SHORT, fault=starve, at=(0, 1)))
    assert ending.codes == [0, 0], ending.said
    assert losses(root / "starved") == pytest.approx(beginning(alone, 4), abs=1e-6)
    last = checkpoint.load(checkpoint.directory(root / "starved/checkpoints", 4))
    assert last.state["most"] == 1 and "memory" not in ending.said

    ending = together(root, 2, training(root, "spoilt", SHORT, fault=spoil, at=(1, 3)))
    assert ending.codes == [0, 0], ending.said
    assert ending.said.count("step 3: ") == ending.said.count("left out") == 1
    found = losses(root / "spoilt")
    assert sorted(found) == [1, 2, 4]
    assert {step: found[step] for step in (1, 2)} == pytest.approx(beginning(alone, 2), abs=1e-6)


GROWS = "pretraining.stages=[{sub_epochs:1,width:0.5,model:{listener:{num_layers:1,time_reduction:[2]}}}]"


@pytest.mark.slow
def test_a_model_grows_in_all_processes_alike(root: Path) -> None:
    ends = [together(root, number, training(root, f"grown{number}", GROWS)) for number in (1, 2)]
    assert [end.codes for end in ends] == [[0], [0, 0]], ends[1].said
    assert ends[1].said.count("over from stage 1") == 1
    assert losses(root / "grown2") == pytest.approx(losses(root / "grown1"), abs=1e-6)
    assert sorted(losses(root / "grown2")) == list(range(1, STEPS + 1))


WHERE = r"process 1 \(pid \d+ on \S+\)"


@pytest.mark.slow
def test_a_process_that_is_killed_ends_the_others_and_training_goes_on_later(root: Path, alone: Path) -> None:
    started = time.monotonic()
    ending = together(root, 2, training(root, "killed", SHORT, fault=kill))
    assert ending.codes == [1, -signal.SIGKILL] and time.monotonic() - started < distributed.TIMEOUT_S
    named = re.search(rf"las: {WHERE} .* at step 3, with (\S+)\. ", ending.said)
    assert named and named[1] in batches(alone)[3], ending.said
    assert not (root / "killed/lock.json").exists()
    assert together(root, 2, training(root, "killed", SHORT)).codes == [0, 0]
    assert losses(root / "killed") == pytest.approx(beginning(alone, 4), abs=1e-6)


@pytest.mark.slow
def test_a_process_that_stands_still_ends_the_others(root: Path) -> None:
    ending = together(root, 2, Impatient(training(root, "stopped", fault=stop)), limit_s=40)
    assert ending.codes == [1, -signal.SIGKILL], ending.said
    assert re.search(rf"las: {WHERE} .* at step 3, with ftr0_sx\d", ending.said), ending.said


@pytest.mark.slow
def test_an_error_in_one_process_is_said_and_ends_the_others_with_its_code(root: Path) -> None:
    ending = together(root, 2, training(root, "failed", fault=fail))
    assert ending.codes == [3, 3], ending.said
    assert ending.said.count("las train: utterance x: ") == 1
    assert re.search(rf"las: {WHERE} ended at step 3, with \S+: utterance x: ", ending.said)


def exchanges() -> int:
    """A body: every exchange with values that tell the processes apart."""
    with distributed.process_group(torch.device("cpu")) as device:
        assert device.type == "cpu" and distributed.world_size() == 2
        number = distributed.rank()
        assert distributed.is_main() == (number == 0)
        assert distributed.total(number + 1, 0.1) == (3.0, 0.2)
        assert distributed.any_of(number == 1, False, True) == (True, False, True)
        assert distributed.gather({"ä": [number] * number * 300}) == [{"ä": []}, {"ä": [1] * 300}]
        model = torch.nn.Linear(2, 1)
        with torch.no_grad():
            model.weight.fill_(float(number))
        distributed.broadcast_parameters(model)
        assert model.weight.tolist() == [[0.0, 0.0]]
        assert distributed.share([*range(5)]) == [[0, 2, 4], [1, 3]][number]
        values = torch.tensor([[1.0, 2.0]]) * number
        distributed.start_sum(values)()
        assert values.tolist() == [[1.0, 2.0]]
        distributed.require_same("answer", 42)
        try:
            distributed.require_same("checkpoint", number)
        except StorageError as error:
            assert "checkpoint: 0, 1" in str(error)
        else:
            return 9
    return 0


def slow_main() -> int:
    """A body: the main process takes longer than the patience of the others, and lives."""
    distributed.TIMEOUT_S = 1.5
    with distributed.process_group(torch.device("cpu")), distributed.main_first():
        time.sleep(3.0 * distributed.is_main())
    return 0


def same_error() -> int:
    """A body: both processes find the same."""
    try:
        with distributed.process_group(torch.device("cpu")):
            raise StorageError("found by both")
    except ReportedElsewhere as error:
        assert not str(error)
        return error.exit_code
    except StorageError:
        print("SAID")
        return 6


def test_exchanges(tmp_path: Path) -> None:
    assert together(tmp_path, 2, exchanges) == Ending([0, 0], "")
    assert together(tmp_path, 2, slow_main) == Ending([0, 0], "")
    ending = together(tmp_path, 2, same_error)
    assert sorted(ending.codes) == [5, 6] and ending.said.count("SAID") == 1


PATIENCE_S = 600.0
"""With a machine that is busy: three processes that import torch."""


def torchrun(number: int, body: Sequence[str]) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(number)]
    script = Path(__file__).parents[2] / "scripts" / "train.py"
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*command, str(script), *body], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )


def reaches(process: "subprocess.Popen[str]", run: Path, step: int) -> None:
    """Wait until the run has recorded a step; its process ends with the test if it never does."""
    path, end = run / "metrics.jsonl", time.monotonic() + PATIENCE_S
    while not (path.exists() and f'"step": {step},' in path.read_text()):
        if process.poll() is not None or time.monotonic() > end:
            process.kill()
            raise AssertionError(f"{run} did not come to step {step}: {process.communicate()[0]}")
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_torchrun_saves_and_another_number_of_processes_goes_on(root: Path, number: signal.Signals) -> None:
    run, length = root / number.name, ["trainer.max_steps=60", "trainer.validate_every=60"]
    first = torchrun(2, arguments(root, number.name, *length))
    reaches(first, run, 5)
    first.send_signal(number)
    said, _ = first.communicate(timeout=PATIENCE_S)
    assert first.returncode != 0
    stopped = re.search(r"las train: .* signal at step (\d+), ", said)
    assert stopped, said
    assert said.count("is saved") == 1
    second = torchrun(1, arguments(root, number.name, *length))
    said, _ = second.communicate(timeout=PATIENCE_S)
    assert second.returncode == 0 and f"resuming at step {stopped[1]} " in said, said
    assert sorted(losses(run)) == list(range(1, 61))
