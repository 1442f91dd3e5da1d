"""Trainings in processes of their own, to be killed, stopped and starved; and the count of those that survived.

Processes are forked from one that has imported everything, so that each costs no start of torch. What a fault changes
in its process it changes there: the product has no hooks for it.
"""

import contextlib
import itertools
import json
import os
import pkgutil
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest
import safetensors.torch
import tiny
from processes import SERVER

from las.cli import main, train
from las.config import build as runtime_config
from las.storage import run_directory
from las.training import plots
from las.training.checkpointing import Checkpointer
from las.training.step import TrainingStep
from las.training.trainer import Trainer

STEPS, SAVE_EVERY = 12, 3
LENGTH = [f"trainer.max_steps={STEPS}", f"trainer.validate_every={SAVE_EVERY}", "trainer.batch_size=2"]
"""Three epochs of four batches; a checkpoint before the end of each epoch, the last at the end of one."""

Fault = Callable[[], None]


def sizes(few: int, full: int, first: int | None = None) -> list[Any]:
    """The numbers of trials: `first` in `make test`, a sample in `make slow`, all of them in `make faults`.

    Without `first`, `make test` runs the sample.
    """
    sample = pytest.param(few, id="sample", marks=[] if first is None else [pytest.mark.slow])
    full_size = pytest.param(full, id="full", marks=pytest.mark.faults)
    return [*([] if first is None else [pytest.param(first, id="first")]), sample, full_size]


class Tally:
    """How many trials of a fault were survived; a trial that was not says why at the end."""

    def __init__(self, record: Callable[[str, object], None]) -> None:
        self.record, self.tried, self.complaints = record, 0, list[str]()

    @contextmanager
    def trial(self, what: object) -> Iterator[None]:
        self.tried += 1
        try:
            yield
        except Exception as error:
            self.complaints.append(f"{what}: {type(error).__name__}: {error}")

    @contextmanager
    def training(self, like: "Training", place: Path, what: object, *more: str) -> Iterator["Training"]:
        """A trial of a training of its own, like another one with further overrides, whose folder is removed after."""
        training = Training(like.root, place / f"trial{self.tried}", *like.more, *more, base=like.base)
        with self.trial(what):
            yield training
        shutil.rmtree(training.run.parent)

    def close(self, fault: str) -> None:
        """Report the trials so far under the fault's name; all must have been survived."""
        survived = self.tried - len(self.complaints)
        self.record("fault", (fault, self.tried, survived))
        assert self.tried and not self.complaints, "\n".join([f"{fault}: {survived} of {self.tried}", *self.complaints])
        self.tried = 0


class Ending(NamedTuple):
    """How a training ended: its exit code (negative: the signal that killed it) and all it printed, in one line."""

    code: int
    said: str


class Training:
    """One run folder `place/run` of the tiny corpus in `root`, and the processes that train in it in turn.

    `base` are the overrides of another model than `tiny`'s.
    """

    def __init__(self, root: Path, place: Path, *more: str, base: Sequence[str] | None = None) -> None:
        self.root, self.run, self.output = root, place / "run", place / "output.txt"
        self.seen_path, self.printed = place / "seen.txt", 0
        places = [f"run_dir={self.run}", f"data_dir={place / 'data'}"]
        self.base, self.more = tiny.overrides(root) if base is None else list(base), more
        self.arguments = [*self.base, *LENGTH, *places, *more]
        place.mkdir(parents=True)

    def start(self, fault: Fault | None = None, *more: str) -> BaseProcess:
        config = runtime_config.compose("train", [*self.arguments, *more])
        process = SERVER.Process(target=_train, args=(config, self.seen_path, self.output, fault))
        process.start()
        self.began = time.monotonic()
        return process

    def ends(self, code: int, fault: Fault | None = None, *more: str) -> str:
        """Train until the process ends, with this exit code; returns what it printed."""
        ending = self.wait(self.start(fault, *more))
        assert ending.code == code, ending
        return ending.said

    def wait(self, process: BaseProcess) -> Ending:
        process.join(120)
        assert process.exitcode is not None, "the training hangs"
        output = self.output.read_text() if self.output.exists() else ""
        said, self.printed = " ".join(output[self.printed :].split()), len(output)
        ending, self.seconds = Ending(process.exitcode, said), time.monotonic() - self.began
        process.close()
        return ending

    def seen(self) -> list[tuple[int, str]]:
        """(step, its utterances and loss) of every update of every process, repeated ones too."""
        lines = self.seen_path.read_text().splitlines() if self.seen_path.exists() else []
        return [(int(step), rest) for step, _, rest in (line.partition(" ") for line in lines)]

    def files(self) -> dict[str, bytes]:
        """What a training leaves and what must not depend on its history."""
        last = max((self.run / "checkpoints").glob("step-*"))
        paths = [last / name for name in ("model.safetensors", "optim.safetensors", "state.json")]
        paths += sorted(self.run.glob("hypotheses.*.jsonl"))
        found = {path.name: path.read_bytes() for path in paths}
        metrics = "".join(json.dumps(line) + "\n" for line in tiny.steps(self.run))
        pointers = {name: (last.parent / name).read_bytes() for name in ("best", "latest")}
        return found | pointers | {"metrics": metrics.encode()}

    def require_same(self, quiet: "Training", *but: str) -> None:
        """The same bytes as in the run that nobody disturbed, from the same utterances at every step."""
        mine, others = self.files(), quiet.files()
        assert mine.keys() == others.keys()
        different = [name for name in mine if mine[name] != others[name] and name not in but]
        assert not different, different
        assert set(self.seen()) == set(quiet.seen()), "other utterances or losses"
        left = [path.name for path in self.run.rglob("*") if path.name.startswith((".", "lock.json"))]
        assert not left, left

    @property
    def newest(self) -> int:
        """The step of the newest checkpoint."""
        return max(int(path.name[5:]) for path in (self.run / "checkpoints").glob("step-*"))


def _train(config: runtime_config.Config, seen: Path, output: Path, fault: Fault | None) -> None:
    """The body of a process. It finds its config composed, its commit known and draws no curves: that takes time."""
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    train.compose = lambda name, overrides: config
    run_directory.commit = lambda: "that of the test"
    plots.available = lambda: False
    start = TrainingStep.start

    def noting(self: TrainingStep, batches: Sequence[Any], step: int) -> Any:
        read = start(self, batches, step)
        ids = ",".join(name for batch in batches for name in batch.ids)
        with seen.open("a") as file:
            file.write(f"{step} {ids} {read().loss.hex()} {read().norm.hex()}\n")
        return read

    TrainingStep.start = noting
    if fault is not None:
        fault()
    sys.exit(main.main(["train"]))


WRITES = ("os.mkdir", "safetensors.torch.save_file", "os.fsync", "os.rename", "os.replace")
CHANGES = (*WRITES, "os.unlink", "os.rmdir")
"""What a save does to the disk: it writes, and it removes older checkpoints."""


def at_phase(number: int, happens: Callable[[], None], calls: Sequence[str] = CHANGES) -> None:
    """Something happens before a save's call number so-and-so (over all saves) of those that change the disk.

    Before a file of tensors is written it happens when half of it is there.
    """
    count, save = itertools.count(1), Checkpointer.save

    def wrap(call: str) -> Callable[..., Any]:
        original = pkgutil.resolve_name(call)

        def counted(*args: Any, **options: Any) -> Any:
            at = next(count)
            print(f" phase {at} {call}", flush=True)
            if at == number:
                if original is safetensors.torch.save_file:
                    original(*args, **options)
                    os.truncate(args[1], args[1].stat().st_size // 2)
                happens()
            return original(*args, **options)

        return counted

    wrapped = {call: wrap(call) for call in calls}

    def saving(self: Checkpointer, *args: Any) -> None:
        with contextlib.ExitStack() as stack:
            for call, counted in wrapped.items():
                stack.enter_context(mock.patch(call, counted))
            save(self, *args)

    Checkpointer.save = saving


def phases(training: Training, calls: Sequence[str] = CHANGES) -> int:
    """How many there are in a whole training, which is run for that."""
    return training.ends(0, partial(at_phase, 0, die, calls)).count(" phase ")


def at_step(owner: type, name: str, step: int, happens: Callable[[], None]) -> None:
    """Something happens when a method of the training is done for the first time at a step or past it."""
    original, update = getattr(owner, name), Trainer._start_update
    where = {"step": 0}

    def noting(self: Trainer, *args: Any) -> Any:
        found = update(self, *args)
        where["step"] = self.state.step
        return found

    def called(self: Any, *args: Any) -> Any:
        found = original(self, *args)
        if where["step"] >= step:
            happens()
        return found

    if (owner, name) == (Trainer, "_start_update"):
        original = noting
    else:
        Trainer._start_update = noting
    setattr(owner, name, called)


def undisturbed(root: Path, base: Sequence[str] | None = None) -> Training:
    """A training that nobody disturbs; its `seconds` leave out the start of the server of processes."""
    SERVER.Process(target=int).start()
    training = Training(root, root / "quiet", base=base)
    training.ends(0)
    return training


def send(number: signal.Signals) -> None:
    """A signal to the process itself."""
    os.kill(os.getpid(), number)


def die() -> None:
    """As if by `kill -9`."""
    send(signal.SIGKILL)
