"""Many processes that train one model: which of them this is, and what they decide together.

`torchrun` starts the processes. In a process that was started alone every function is there and does nothing, so that
no caller asks how many there are.
"""

import datetime
import os
from typing import Any

import torch
from torch import distributed

PATIENCE = datetime.timedelta(seconds=60)
"""How long a process waits for the others before it gives up: one of them is dead or stopped."""


def rank() -> int:
    """The number of this process, from 0."""
    return distributed.get_rank() if _together() else 0


def world_size() -> int:
    """How many processes train together."""
    return distributed.get_world_size() if _together() else 1


def is_main() -> bool:
    """Whether this process is the one that prints and writes."""
    return rank() == 0


def start(device: str) -> str:
    """Join the processes that `torchrun` started, over NCCL on GPUs and gloo on CPUs.

    Returns the device of this process: each of a machine's processes has a GPU of its own.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or _together():
        return device
    on_gpu = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
    if on_gpu:
        device = f"cuda:{os.environ['LOCAL_RANK']}"
        torch.cuda.set_device(device)
    distributed.init_process_group("nccl" if on_gpu else "gloo", timeout=PATIENCE)
    return device


def stop() -> None:
    """Leave the other processes."""
    if _together():
        distributed.destroy_process_group()


def barrier() -> None:
    """Wait until all processes are here."""
    if _together():
        distributed.barrier()


def any_of(*facts: bool) -> tuple[bool, ...]:
    """For each fact, whether it holds in any process: the same answer in all of them, for one exchange."""
    return tuple(value > 0 for value in total(*map(float, facts)))


def total(*values: float) -> tuple[float, ...]:
    """Each value summed over the processes, in double precision."""
    if not _together():
        return values
    summed = torch.tensor(values, dtype=torch.float64, device=_device())
    distributed.all_reduce(summed)
    return tuple(summed.tolist())


def gather(value: Any) -> list[Any]:
    """The values of all processes, by rank, in all of them: plain data that the processes themselves made."""
    if not _together():
        return [value]
    found: list[Any] = [None] * world_size()
    distributed.all_gather_object(found, value)
    return found


def _together() -> bool:
    return distributed.is_available() and distributed.is_initialized()


def _device() -> str:
    return "cuda" if distributed.get_backend() == "nccl" else "cpu"
