"""Many processes that train one model: which of them this is, and what they decide together.

`torchrun` starts the processes. In a process that was started alone every function is there and does nothing, so that
no caller asks how many there are. An exchange waits for a process as long as that one lives (`las.runtime.heartbeat`), be it that
it reads a corpus or writes a checkpoint.
"""

import datetime
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed.rendezvous import rendezvous

from las.runtime import heartbeat
from las.runtime.errors import LasError, StorageError
from las.runtime.heartbeat import PeerLost, Peers

FOREVER = datetime.timedelta(days=30)
"""The limit of torch's own clock, which does not tell slow processes from dead ones."""
NAP_S = 0.0002
"""Between two looks whether an exchange is done."""

_peers: Peers | None = None


class SaidElsewhere(LasError):
    """An error that another process found as well and has printed: without words."""

    def __init__(self, exit_code: int) -> None:
        super().__init__()
        self.exit_code = exit_code


def rank() -> int:
    """The number of this process, from 0."""
    return 0 if _peers is None else _peers.rank


def world_size() -> int:
    """How many processes train together."""
    return 1 if _peers is None else _peers.world_size


def is_main() -> bool:
    """Whether this process is the one that prints and writes."""
    return rank() == 0


@contextmanager
def together(device: torch.device) -> Iterator[torch.device]:
    """Within it this process belongs to those that `torchrun` started: over NCCL on GPUs, over gloo on CPUs.

    Gives the device of this process: each of a machine's processes has a GPU of its own. An error that several
    processes raise is raised as SaidElsewhere in all but one. With PeerLost the process ends here, because torch would
    wait for the exchange that nobody will answer.
    """
    global _peers
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield device
        return
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    store, number, size = next(rendezvous("env://"))
    _peers = Peers(store, number, size)
    backend = "nccl" if device.type == "cuda" else "gloo"
    distributed.init_process_group(backend, store=store, rank=number, world_size=size, timeout=FOREVER)
    error: BaseException | None = None
    try:
        yield device
    except BaseException as raised:
        error = raised
        raise _once(raised, _peers) from raised
    finally:
        _peers.leave(error)
        _peers = None
        distributed.destroy_process_group()


def _once(error: BaseException, others: Peers) -> BaseException:
    """The error as it is, or without words if another process says the same."""
    if not isinstance(error, LasError):
        return error
    first = others.says_first(str(error))
    if isinstance(error, PeerLost):
        if first:
            print(f"las: {error}", file=sys.stderr)
        others.leave(error)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(error.exit_code)
    return error if first else SaidElsewhere(error.exit_code)


def note(step: int, utterances: Sequence[str]) -> None:
    """Tell the others which update this process computes, of what: they name it if this process dies."""
    if _peers is not None:
        _peers.note(step, utterances)


@contextmanager
def main_first() -> Iterator[None]:
    """The body runs in the main process, and then in the others, which find what it left on the disk."""
    if not is_main():
        wait()
    yield
    if is_main():
        wait()


def wait() -> None:
    """Until all processes are here."""
    total(0)


def any_of(*facts: bool) -> tuple[bool, ...]:
    """For each fact, whether it holds in any process: the same answer in all of them, for one exchange."""
    return tuple(value > 0 for value in total(*map(float, facts)))


def total(*values: float | int) -> tuple[float, ...]:
    """Each value summed over the processes, in double precision."""
    if _peers is None:
        return tuple(map(float, values))
    return tuple(_sum(torch.tensor(values, dtype=torch.float64, device=_device())).tolist())


def add_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Each gradient summed over the processes, in one exchange; a parameter that this one did not reach adds zero."""
    everyone = [parameter for parameter in parameters if parameter.requires_grad]
    with torch.no_grad():
        gradients = [torch.zeros_like(each) if each.grad is None else each.grad for each in everyone]
        nn.utils.vector_to_parameters(_sum(nn.utils.parameters_to_vector(gradients)), gradients)
    for parameter, gradient in zip(everyone, gradients, strict=True):
        parameter.grad = gradient


def gather(value: Any) -> list[Any]:
    """The values of all processes, by rank, in all of them: what JSON can hold (tuples come back as lists)."""
    if _peers is None:
        return [value]
    mine = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
    sizes = [int(size) for size in total(*(len(mine) * (each == rank()) for each in range(world_size())))]
    parts = torch.zeros(sum(sizes), dtype=torch.uint8).split(sizes)
    parts[rank()].copy_(mine)
    everything = _sum(torch.cat(parts).to(_device())).cpu()
    return [json.loads(bytes(part.tolist())) for part in everything.split(sizes)]


def share(module: nn.Module) -> None:
    """Parameters and buffers of the main process, in all of them."""
    if _peers is not None:
        for tensor in module.state_dict().values():
            _exchange(partial(distributed.broadcast, tensor, 0, async_op=True))


def require_same(what: str, value: Any) -> None:
    """Raise StorageError, in all processes, unless the value is the same in all of them."""
    found = gather(value)
    if any(each != found[0] for each in found):
        raise StorageError(
            f"the processes do not find the same {what}: {', '.join(map(str, found))}, by process. All machines must "
            "see the same run folder and data"
        )


def _sum(tensor: Tensor) -> Tensor:
    """The tensor summed over the processes, in place."""
    _exchange(partial(distributed.all_reduce, tensor, async_op=True))
    return tensor


def _exchange(start: Callable[[], Any]) -> None:
    """Until an exchange is done, however long it takes while the others live. Raises PeerLost."""
    assert _peers is not None
    try:
        work, looked = start(), time.monotonic()
        while not work.is_completed():
            time.sleep(NAP_S)
            if time.monotonic() - looked > heartbeat.BEAT_S:
                looked = time.monotonic()
                _peers.require(heartbeat.PATIENCE_S)
        work.wait()
    except RuntimeError as error:
        raise _peers.explain(error) from error


def _device() -> str:
    return "cuda" if distributed.get_backend() == "nccl" else "cpu"
