"""Processes that train one model, with a fault in one of them.

They find each other through a store that the test holds, on a port that the system chose, as they do through that of
`torchrun`. What a fault changes in its process it changes there: the product has no hooks for it.
"""

import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.distributed import TCPStore

from las.cli import main
from las.data.loader import Batch
from las.runtime import distributed
from las.runtime.errors import DataError
from las.training.step import TrainingStep

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(
    ["las.cli.train", "torch._dynamo", "torch.utils.tensorboard", "hydra", "matplotlib.pyplot", "pytest"]
)

Body = Callable[[], Any]


class Ending(NamedTuple):
    """How the processes ended: their exit codes by number, and what they printed together."""

    codes: list[int]
    said: str


def together(place: Path, world_size: int, body: Body, limit_s: float = 60.0) -> Ending:
    """Run the body in so many processes that train together; those that stand still are killed: the main one after
    `limit_s`, the others five seconds after its end."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    output = place / "output.txt"
    output.write_text("")
    places = [(rank, world_size, store.port, output, body) for rank in range(world_size)]
    processes = [SERVER.Process(target=_process, args=place) for place in places]
    for process in processes:
        process.start()
    end = time.monotonic() + limit_s
    codes = [_code(processes[0], end)]
    codes += [_code(process, time.monotonic() + 5.0) for process in processes[1:]]
    return Ending(codes, output.read_text())


def _code(process: BaseProcess, end: float) -> int:
    process.join(max(0.0, end - time.monotonic()))
    if process.exitcode is None:
        process.kill()
        process.join()
    code = process.exitcode
    assert code is not None
    return code


def _process(rank: int, world_size: int, port: int, output: Path, body: Body) -> None:
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world_size, "MASTER_PORT": port}
    os.environ |= {key: str(value) for key, value in place.items()} | {
        "MASTER_ADDR": "127.0.0.1",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
    descriptor = os.open(output, os.O_WRONLY | os.O_APPEND)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    sys.exit(body())


class Training(NamedTuple):
    """A body: `las train`, with a fault in one of the processes before the update of a step."""

    arguments: Sequence[str]
    seen: Path
    fault: Callable[[TrainingStep], None] | None = None
    at: tuple[int, int] = (1, 3)
    """Process and step."""

    def __call__(self) -> int:
        start, number = TrainingStep.start, int(os.environ["RANK"])

        def faulty(updates: TrainingStep, batches: Sequence[Batch], step: int) -> Any:
            if self.fault is not None and (number, step) == self.at:
                distributed.announce_step(step, [name for batch in batches for name in batch.ids])
                self.fault(updates)
            read = start(updates, batches, step)
            ids = [name for batch in batches for name in batch.ids]
            with self.seen.open("a") as file:
                file.write(json.dumps([step, number, ids, read().loss]) + "\n")
            return read

        TrainingStep.start = faulty
        return main.main(["train", *self.arguments])


def terminate(_: TrainingStep) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def kill(_: TrainingStep) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def stop(_: TrainingStep) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def fail(_: TrainingStep) -> None:
    raise DataError("utterance x: its file is gone")


def spoil(updates: TrainingStep) -> None:
    """The loss of this process's share is not a number, once."""
    part = updates._part

    def spoilt(batch: Batch, divisor: float) -> torch.Tensor:
        updates._part = part
        return part(batch, divisor * float("nan"))

    updates._part = spoilt


def starve(updates: TrainingStep) -> None:
    """This process has memory for one utterance at a time."""
    part = updates._part

    def limited(batch: Batch, divisor: float) -> torch.Tensor:
        if len(batch.ids) > 1:
            raise torch.OutOfMemoryError("a test's")
        return part(batch, divisor)

    updates._part = limited


class Impatient(NamedTuple):
    """A body whose processes wait two seconds for a sign of life."""

    body: Training

    def __call__(self) -> int:
        distributed.TIMEOUT_S = 2.0
        return self.body()
