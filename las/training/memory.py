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

from las.nn.kernels.cpp.tensors import allocator

STATUS = Path("/proc/self/status")
PEAK_RESET = Path("/proc/self/clear_refs")


def allocated(run: Callable[[], object], device: torch.device) -> int:
    """Return the peak of torch's allocated memory while `run` runs, in bytes beyond that before.

    On a GPU torch's allocator records it. On a CPU it is computed from the allocations in torch's profiler, without the
    memory that compiled code allocates itself (oneDNN's buffers, C++ containers, threads); `resident` includes that.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        allocated_before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        run()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - allocated_before
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
    """Return the peak growth of the process's resident memory while `run` runs, in bytes.

    It is measured by Linux for the whole process; None on other systems and for a GPU.
    """
    if device.type != "cpu" or not os.access(PEAK_RESET, os.W_OK):
        return None
    # Memory that was freed but not returned would be used again without any growth.
    allocator.release()
    getattr(ctypes.CDLL(None), "malloc_trim", int)(0)
    PEAK_RESET.write_text("5")
    resident_before = _status("VmRSS")
    run()
    return max(_status("VmHWM") - resident_before, 0)


def _status(name: str) -> int:
    """Return a size of the process in bytes."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
    return 1024 * int(line.split()[1])


@contextmanager
def _without_announcements() -> Iterator[None]:
    """Suppress the lines that the profiler's library writes to stderr when it starts and stops."""
    sys.stderr.flush()
    terminal = os.dup(2)
    with tempfile.TemporaryFile() as captured:
        os.dup2(captured.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)
            captured.seek(0)
            os.write(2, b"".join(line for line in captured if not line.startswith(b"USDT:")))
