"""Steps that are launched many times on the same tensors, replayed from a graph that was captured once.

Launching two kernels per frame costs the host more than the kernels take; a replayed graph costs it one call per
`CHUNK` steps. A step must therefore be the same launches every time, and one step too many must do nothing.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import torch

from las.runtime import progress

T = TypeVar("T")

CHUNK = 32
"""Steps in a graph: enough to hide its start (about one step), few enough to waste little behind the last frame."""

LIMIT = 16
"""How many shapes are kept, each with its graph and small buffers; the one unused for longest goes first."""

_cache: OrderedDict[Hashable, Any] = OrderedDict()
_announced: set[str] = set()


class RepeatedStep:
    """Runs a step a number of times; on a GPU rounded up to whole chunks, unless nothing can be captured there."""

    def __init__(self, step: Callable[[], None], device: torch.device) -> None:
        """`step` must be harmless now: on a GPU it runs once to compile, then is captured."""
        self.step = step
        self.graph = captured(step, device) if device.type == "cuda" else None

    def __call__(self, times: int) -> None:
        if self.graph is None:
            for _ in range(times):
                self.step()
        else:
            for _ in range(0, times, CHUNK):
                self.graph.replay()


def captured(step: Callable[[], None], device: torch.device) -> torch.cuda.CUDAGraph | None:
    """A graph of `CHUNK` steps; without one, said once, the same kernels are launched one by one."""
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        step()
        stream.synchronize()
        try:
            # Other threads, such as one that pins batches, may go on calling CUDA.
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                for _ in range(CHUNK):
                    step()
            finally:
                graph.capture_end()
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            if reason not in _announced:
                _announced.add(reason)
                progress.say(f"recurrences: launched frame by frame, for no CUDA graph could be captured: {reason}")
            return None
    torch.cuda.current_stream(device).wait_stream(stream)
    return graph


def cached(key: Hashable, make: Callable[[], T]) -> T:
    """What `make` gave for this key the last time, or gives now."""
    if key in _cache:
        _cache.move_to_end(key)
    else:
        if len(_cache) >= LIMIT:
            if torch.cuda.is_available():  # it may still be running there
                torch.cuda.synchronize()
            _cache.popitem(last=False)
        _cache[key] = make()
    return _cache[key]
