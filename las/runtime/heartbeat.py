"""Heartbeats of the processes of a distributed training, which tell slow processes from dead ones.

Each process writes its heartbeat and its current step into the store that `torchrun` keeps, every second and with every
update. The heartbeats of the others are read only while a collective operation waits for them: a slow process keeps
writing them, a dead or stopped one does not.
"""

import hashlib
import json
import os
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any

from torch.distributed import Store

from las.runtime.errors import LasError

TIMEOUT_S = 45.0
"""Seconds without a heartbeat after which a process counts as lost."""
BROKEN_CONNECTION_TIMEOUT_S = 4.0
"""Shorter timeout after a broken connection, which only a dead process leaves."""
INTERVAL_S = 1.0
"""Seconds between two heartbeats."""


class PeerLost(LasError):
    """Loss of another process of this training, which is dead or stopped, or has ended with an error."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Peers:
    """Heartbeats of this process, and the check of those of its peers.

    Args:
        store: key-value store shared by all processes.
        rank, world_size: number of this process, from 0, and number of processes.
    """

    def __init__(self, store: Store, rank: int, world_size: int) -> None:
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

    def is_first_to_report(self, text: str) -> bool:
        """Return whether no other process has reported this text: what all processes find, one of them prints."""
        main = json.loads(self.store.get(_key(0)))["pid"]  # torchrun keeps the store when it starts processes again
        key = f"said/{main}/{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"
        return self.store.compare_set(key, "", str(self.rank)) == str(self.rank).encode()

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
                lost.append(f"{peer} ended{_progress(heartbeat)}: {heartbeat['ended']}")
                code = heartbeat["code"]
            elif now - self._last_change[rank][1] >= timeout_s:
                lost.append(f"{peer} gives no sign of life{_progress(heartbeat)}")
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


def _progress(heartbeat: dict[str, Any]) -> str:
    """Step and utterances of a heartbeat, as they follow the process in a message."""
    if "step" not in heartbeat:
        return " before its first update"
    return f" at step {heartbeat['step']}, with {', '.join(heartbeat['utterances']) or 'no utterance'}"
