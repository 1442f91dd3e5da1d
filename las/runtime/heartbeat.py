"""Do the other processes of a training still live?

Each process writes a sign of life into the store that `torchrun` keeps, every second and with every update, and with it
where it stands. Nobody reads these signs before it has to wait for the others: a process that is slow keeps giving
them, one that is dead or stopped does not.
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

PATIENCE_S = 45.0
"""How long a process that others wait for may give no sign of life before they stop."""
SILENCE_S = 4.0
"""The same when a connection has broken, which only the death of a process does."""
BEAT_S = 1.0
"""Between two signs of life."""


class PeerLost(LasError):
    """Another process of this training is dead, stopped, or has ended with an error."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Peers:
    """The signs of life of this process, and those of the others.

    Args:
        store: which all processes reach.
        rank, world_size: the number of this process, and how many there are.
    """

    def __init__(self, store: Store, rank: int, world_size: int) -> None:
        self.store, self.rank, self.world_size = store, rank, world_size
        self._sign: dict[str, Any] = {"pid": os.getpid(), "host": socket.gethostname(), "beat": 0}
        self._seen: dict[int, tuple[bytes, float]] = {}
        self._lock, self._left = threading.Lock(), threading.Event()
        self._write()
        threading.Thread(target=self._beat, name="las-signs-of-life", daemon=True).start()

    def note(self, step: int, utterances: Sequence[str]) -> None:
        """Tell the others where this process stands."""
        self._write(step=step, utterances=list(utterances[:5]))

    def leave(self, error: BaseException | None) -> None:
        """No sign of life from here on; an error is left for those that wait."""
        self._left.set()
        if error is not None:
            self._write(ended=str(error) or type(error).__name__, code=getattr(error, "exit_code", 1))

    def says_first(self, text: str) -> bool:
        """Whether this process is the first to come with these words: what all processes find, one of them prints."""
        main = json.loads(self.store.get(_key(0)))["pid"]  # torchrun keeps the store when it starts processes again
        key = f"said/{main}/{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"
        return self.store.compare_set(key, "", str(self.rank)) == str(self.rank).encode()

    def require(self, patience_s: float) -> None:
        """Raise PeerLost naming those that have ended, or have given no sign for so long while this process looked."""
        now, gone, code = time.monotonic(), [], 1
        for rank in range(self.world_size):
            if rank == self.rank:
                continue
            sign = self.store.get(_key(rank))
            before, since = self._seen.get(rank, (b"", now))
            self._seen[rank] = (sign, since if sign == before else now)
            last = json.loads(sign)
            who = f"process {rank} (pid {last['pid']} on {last['host']})"
            if "ended" in last:
                gone.append(f"{who} ended{_place(last)}: {last['ended']}")
                code = last["code"]
            elif now - self._seen[rank][1] >= patience_s:
                gone.append(f"{who} gives no sign of life{_place(last)}")
        if gone:
            raise PeerLost(f"{'; '.join(gone)}. The same command continues from the last checkpoint", code)

    def explain(self, failure: Exception) -> PeerLost:
        """Why an exchange failed: who is gone, as far as it can be known."""
        end = time.monotonic() + SILENCE_S + 3 * BEAT_S
        try:
            while time.monotonic() < end:
                self.require(SILENCE_S)
                time.sleep(BEAT_S / 4)
        except PeerLost as lost:
            return lost
        except RuntimeError:
            return PeerLost("the store of the processes is gone, and with it torchrun on the machine of process 0")
        return PeerLost(f"an exchange between the processes failed although all of them live: {failure}")

    def _write(self, **news: Any) -> None:
        with self._lock:
            self._sign |= news
            self.store.set(_key(self.rank), json.dumps(self._sign))

    def _beat(self) -> None:
        while not self._left.wait(BEAT_S):
            try:
                self._write(beat=self._sign["beat"] + 1)
            except RuntimeError:
                return  # the store is gone: whoever waits for the others finds out


def _key(rank: int) -> str:
    return f"sign/{rank}"


def _place(sign: dict[str, Any]) -> str:
    if "step" not in sign:
        return " before its first update"
    return f" at step {sign['step']}, with {', '.join(sign['utterances']) or 'no utterance'}"
