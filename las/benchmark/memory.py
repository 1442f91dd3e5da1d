"""Peak memory of a function beyond the memory in use before."""

import ctypes
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from las.nn.kernels.allocator import allocator

STATUS = Path("/proc/self/status")
PEAK_RESET = Path("/proc/self/clear_refs")


def allocated(run: Callable[[], object], device: torch.device) -> int:
    """The largest number of bytes that torch's allocator had handed out while `run` ran.

    On a GPU the allocator counts. On a CPU its calls are summed up in order, as the profiler saw them; memory that
    compiled code gets elsewhere (oneDNN's own buffers, C++ containers) and in threads of its own is not among them:
    it is in `resident`.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        run()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    allocator.release()
    with _without_announcements(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    results = profiler.profiler.kineto_results if profiler.profiler is not None else None
    events = [] if results is None else [event for event in results.events() if event.name() == "[memory]"]
    now = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        now += event.nbytes()
        peak = max(peak, now)
    return peak


def resident(run: Callable[[], object], device: torch.device) -> int | None:
    """The largest growth of the process's resident memory in bytes while `run` ran.

    Linux counts it, for everything in the process; None where it does not, and for a GPU.
    """
    if device.type != "cpu" or not os.access(PEAK_RESET, os.W_OK):
        return None
    # Free memory that the kernels or the C library keep would hide what is taken from it again.
    allocator.release()
    getattr(ctypes.CDLL(None), "malloc_trim", int)(0)
    PEAK_RESET.write_text("5")
    before = _status("VmRSS")
    run()
    return max(_status("VmHWM") - before, 0)


def _status(name: str) -> int:
    """A size of the process in bytes."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
    return 1024 * int(line.split()[1])


@contextmanager
def _without_announcements() -> Iterator[None]:
    """The profiler's library writes to the terminal when it starts and when it stops; other lines pass."""
    sys.stderr.flush()
    terminal = os.dup(2)
    with tempfile.TemporaryFile() as written:
        os.dup2(written.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)
            written.seek(0)
            os.write(2, b"".join(line for line in written if not line.startswith(b"USDT:")))
