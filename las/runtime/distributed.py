"""Distributed training over `torch.distributed`: ranks, sums, gathers, broadcasts.

`torchrun` starts the processes. In a process that was started alone every function works trivially, so that no caller
asks how many there are.

A collective operation waits for a process as long as that one is alive, also while it reads a corpus or writes a
checkpoint. Each process writes its heartbeat and its current step into the store that `torchrun` keeps, every second
and with every update; a slow process keeps writing them, a dead or stopped one does not.
"""

import datetime
import hashlib
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.distributed.rendezvous import rendezvous

from las.runtime import progress
from las.runtime.errors import LasError, StorageError

TORCH_TIMEOUT = datetime.timedelta(days=30)
"""torch's own timeout, in effect switched off: it does not tell slow processes from dead ones."""
POLL_S = 0.0002
"""Seconds between two checks of a running operation."""
TIMEOUT_S = 45.0
"""Seconds without a heartbeat after which a process counts as lost."""
BROKEN_CONNECTION_TIMEOUT_S = 4.0
"""Shorter timeout after a broken connection, which only a dead process leaves."""
INTERVAL_S = 1.0
"""Seconds between two heartbeats."""

T = TypeVar("T")


class PeerLost(LasError):
    """Loss of another process of this training, which is dead or stopped, or has ended with an error."""


class Peers:
    """Heartbeats of this process, and the check of those of its peers.

    Args:
        store: key-value store shared by all processes.
        rank, world_size: number of this process, from 0, and number of processes.
    """

    def __init__(self, store: distributed.Store, rank: int, world_size: int) -> None:
        self.store, self.rank, self.world_size = store, rank, world_size
        self._heartbeat: dict[str, Any] = {"pid": os.getpid(), "host": socket.gethostname(), "beat": 0}
        self._last_change: dict[int, tuple[bytes, float]] = {}
        self._lock, self._stopped = threading.Lock(), threading.Event()
        self._write()
        threading.Thread(target=self._beat, name="las-heartbeat", daemon=True).start()

    def announce_step(self, step: int, utterances: Sequence[str]) -> None:
        """Write the step that this process computes, and the first of its utterances."""
        self._write(step=step, utterances=list(utterances[:5]))

    def stop(self, error: BaseException | None) -> None:
        """Stop the heartbeats. An error is written for the processes that wait."""
        self._stopped.set()
        if error is not None:
            self._write(ended=str(error) or type(error).__name__, code=getattr(error, "exit_code", 1))

    def require_alive(self, timeout_s: float) -> None:
        """Raise PeerLost naming the processes that have ended, or whose heartbeat has not changed for `timeout_s`.

        Only time between calls of this process counts.
        """
        now, lost, code = time.monotonic(), [], 1
        for rank in range(self.world_size):
            if rank == self.rank:
                continue
            content = self.store.get(_key(rank))
            before, since = self._last_change.get(rank, (b"", now))
            self._last_change[rank] = (content, since if content == before else now)
            heartbeat = json.loads(content)
            peer = f"process {rank} (pid {heartbeat['pid']} on {heartbeat['host']})"
            if "ended" in heartbeat:
                lost.append(f"{peer} ended{_last_step(heartbeat)}: {heartbeat['ended']}")
                code = heartbeat["code"]
            elif now - self._last_change[rank][1] >= timeout_s:
                lost.append(f"{peer} gives no sign of life{_last_step(heartbeat)}")
        if lost:
            raise PeerLost(f"{'; '.join(lost)}. The same command continues from the last checkpoint", code)

    def explain(self, failure: Exception) -> PeerLost:
        """Error for a collective operation that failed, naming the lost processes as far as heartbeats show them."""
        end = time.monotonic() + BROKEN_CONNECTION_TIMEOUT_S + 3 * INTERVAL_S
        try:
            while time.monotonic() < end:
                self.require_alive(BROKEN_CONNECTION_TIMEOUT_S)
                time.sleep(INTERVAL_S / 4)
        except PeerLost as lost:
            return lost
        except RuntimeError:
            return PeerLost("the store of the processes is gone, and with it torchrun on the machine of process 0")
        return PeerLost(f"a collective operation failed although every process is alive: {failure}")

    def _write(self, **changes: Any) -> None:
        with self._lock:
            self._heartbeat |= changes
            self.store.set(_key(self.rank), json.dumps(self._heartbeat))

    def _beat(self) -> None:
        while not self._stopped.wait(INTERVAL_S):
            try:
                self._write(beat=self._heartbeat["beat"] + 1)
            except RuntimeError:
                return  # the store is gone: the next collective operation reports it


def _key(rank: int) -> str:
    return f"heartbeat/{rank}"


def _last_step(heartbeat: dict[str, Any]) -> str:
    """Step and utterances of a heartbeat, as they follow the process in a message."""
    if "step" not in heartbeat:
        return " before its first update"
    return f" at step {heartbeat['step']}, with {', '.join(heartbeat['utterances']) or 'no utterance'}"


_peers: Peers | None = None


class ReportedElsewhere(LasError):
    """Error that another process has raised and printed as well: without a message of its own."""


def rank() -> int:
    """Return the number of this process, from 0."""
    return 0 if _peers is None else _peers.rank


def world_size() -> int:
    """Return the number of processes of this training."""
    return 1 if _peers is None else _peers.world_size


def is_main() -> bool:
    """Return whether this is the main process, which prints and writes."""
    return rank() == 0


@contextmanager
def process_group(device: torch.device) -> Iterator[torch.device]:
    """Join the processes that `torchrun` started while the body runs: over NCCL on GPUs, over gloo on CPUs.

    Yields the device of this process: each process of a machine has its own GPU. An error that several processes raise
    becomes ReportedElsewhere in all but one. PeerLost ends the process here, because torch would wait for an operation
    that the lost process never joins.
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
    distributed.init_process_group(backend, store=store, rank=number, world_size=size, timeout=TORCH_TIMEOUT)
    error: BaseException | None = None
    try:
        yield device
    except BaseException as raised:
        error = raised
        raise _once(raised, _peers) from raised
    finally:
        _peers.stop(error)
        _peers = None
        distributed.destroy_process_group()


def _once(error: BaseException, peers: Peers) -> BaseException:
    """Return the error itself, or ReportedElsewhere if another process has reported the same."""
    if not isinstance(error, LasError):
        return error
    main = json.loads(peers.store.get(_key(0)))["pid"]  # torchrun keeps the store when it starts processes again
    key = f"said/{main}/{hashlib.sha256(str(error).encode('utf-8', 'surrogatepass')).hexdigest()}"
    first = peers.store.compare_set(key, "", str(peers.rank)) == str(peers.rank).encode()
    if isinstance(error, PeerLost):
        if first:
            print(f"las: {error}", file=sys.stderr)
        peers.stop(error)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(error.exit_code)
    return error if first else ReportedElsewhere(exit_code=error.exit_code)


def only_main_prints() -> AbstractContextManager[None]:
    """Silence all processes but the main one while the body runs."""
    return nullcontext() if is_main() else progress.silent()


def share(items: list[T]) -> list[T]:
    """Every n-th of the items that all processes know: those of this process."""
    return items[rank() :: world_size()]


def announce_step(step: int, utterances: Sequence[str]) -> None:
    """Tell the other processes which step this one computes and on which utterances; they name both if it dies."""
    if _peers is not None:
        _peers.announce_step(step, utterances)


@contextmanager
def main_first() -> Iterator[None]:
    """Run the body in the main process first, then in the others, which read what it has written to the disk."""
    if not is_main():
        wait()
    yield
    if is_main():
        wait()


def wait() -> None:
    """Wait until all processes have called this (a barrier)."""
    total(0)


def any_of(*flags: bool) -> tuple[bool, ...]:
    """Logical or of each flag over all processes, in one all-reduce."""
    return tuple(value > 0 for value in total(*map(float, flags)))


def total(*values: float | int) -> tuple[float, ...]:
    """Sum each value over the processes, in double precision."""
    if _peers is None:
        return tuple(map(float, values))
    return tuple(_sum(torch.tensor(values, dtype=torch.float64, device=_device())).tolist())


def start_sum(tensor: Tensor) -> Callable[[], None]:
    """Start to sum a tensor over the processes, in place, while the caller goes on; both raise PeerLost.

    The function that is returned waits for the sum, however long it takes while all processes are alive.
    """
    return partial(_finish_collective, _start_collective(partial(distributed.all_reduce, tensor, async_op=True)))


def gather(value: Any) -> list[Any]:
    """Gather JSON values of all processes, by rank, in every process; tuples come back as lists."""
    if _peers is None:
        return [value]
    content = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
    sizes = [int(size) for size in total(*(len(content) * (each == rank()) for each in range(world_size())))]
    parts = torch.zeros(sum(sizes), dtype=torch.uint8).split(sizes)
    parts[rank()].copy_(content)
    everything = _sum(torch.cat(parts).to(_device())).cpu()
    return [json.loads(bytes(part.tolist())) for part in everything.split(sizes)]


def broadcast_parameters(module: nn.Module) -> None:
    """Copy parameters and buffers of the main process to all others."""
    if _peers is not None:
        for tensor in module.state_dict().values():
            _finish_collective(_start_collective(partial(distributed.broadcast, tensor, 0, async_op=True)))


def require_same(name: str, value: Any) -> None:
    """Raise StorageError, in all processes, unless the value is the same in all of them."""
    values = gather(value)
    if any(each != values[0] for each in values):
        raise StorageError(
            f"the processes do not find the same {name}: {', '.join(map(str, values))}, by process. All machines must "
            "see the same run folder and data"
        )


def _sum(tensor: Tensor) -> Tensor:
    start_sum(tensor)()
    return tensor


def _start_collective(start: Callable[[], Any]) -> Any:
    assert _peers is not None
    try:
        return start()
    except RuntimeError as error:
        raise _peers.explain(error) from error


def _finish_collective(work: distributed.Work) -> None:
    assert _peers is not None
    try:
        checked = time.monotonic()
        while not work.is_completed():
            time.sleep(POLL_S)
            if time.monotonic() - checked > INTERVAL_S:
                checked = time.monotonic()
                _peers.require_alive(TIMEOUT_S)
        work.wait()
    except RuntimeError as error:
        raise _peers.explain(error) from error


def _device() -> str:
    return "cuda" if distributed.get_backend() == "nccl" else "cpu"
