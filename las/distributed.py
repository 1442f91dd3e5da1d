"""Many processes that train one model: which of them this is, and what they decide together.

`torchrun` starts the processes. In a process that was started alone every function is there and does nothing, so that
no caller asks how many there are.
"""

import datetime
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import distributed, nn

PATIENCE = datetime.timedelta(seconds=60)
"""How long a process in training waits for the others before it gives up: one of them is dead or stopped."""
PREPARATION = datetime.timedelta(days=1)
"""The same while one of them reads a corpus."""

_training: Any = None


def rank() -> int:
    """The number of this process, from 0."""
    return distributed.get_rank() if _together() else 0


def world_size() -> int:
    """How many processes train together."""
    return distributed.get_world_size() if _together() else 1


def is_main() -> bool:
    """Whether this process is the one that prints and writes."""
    return rank() == 0


@contextmanager
def together(device: torch.device) -> Iterator[torch.device]:
    """Within it this process belongs to those that `torchrun` started: over NCCL on GPUs, over gloo on CPUs.

    Gives the device of this process: each of a machine's processes has a GPU of its own.
    """
    global _training
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield device
        return
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    distributed.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=PREPARATION)
    _training = distributed.new_group(timeout=PATIENCE)
    try:
        yield device
    finally:
        _training = None
        distributed.destroy_process_group()


@contextmanager
def main_first() -> Iterator[None]:
    """The body runs in the main process, and then in the others, which find what it left on the disk."""
    if _together() and not is_main():
        distributed.barrier()
    yield
    if _together() and is_main():
        distributed.barrier()


def any_of(*facts: bool) -> tuple[bool, ...]:
    """For each fact, whether it holds in any process: the same answer in all of them, for one exchange."""
    return tuple(value > 0 for value in total(*map(float, facts)))


def total(*values: float | int) -> tuple[float, ...]:
    """Each value summed over the processes, in double precision."""
    if not _together():
        return tuple(map(float, values))
    summed = torch.tensor(values, dtype=torch.float64, device=_device())
    distributed.all_reduce(summed, group=_training)
    return tuple(summed.tolist())


def add_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Each gradient summed over the processes, in one exchange; a parameter that this one did not reach adds zero."""
    everyone = [parameter for parameter in parameters if parameter.requires_grad]
    with torch.no_grad():
        gradients = [torch.zeros_like(each) if each.grad is None else each.grad for each in everyone]
        flat = nn.utils.parameters_to_vector(gradients)
        distributed.all_reduce(flat, group=_training)
        nn.utils.vector_to_parameters(flat, gradients)
    for parameter, gradient in zip(everyone, gradients, strict=True):
        parameter.grad = gradient


def gather(value: Any) -> list[Any]:
    """The values of all processes, by rank, in all of them: plain data that the processes themselves made."""
    if not _together():
        return [value]
    found: list[Any] = [None] * world_size()
    distributed.all_gather_object(found, value, group=_training)
    return found


def _together() -> bool:
    return distributed.is_available() and distributed.is_initialized()


def _device() -> str:
    return "cuda" if distributed.get_backend() == "nccl" else "cpu"
