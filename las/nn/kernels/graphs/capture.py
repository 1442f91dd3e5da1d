"""CUDA graphs: a step that is launched many times on the same tensors is captured once and replayed.

Launching two kernels per frame takes the host longer than the kernels run; a replayed graph is one call per `CHUNK`
steps. A step must therefore launch the same kernels every time, and surplus steps must have no effect.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import cache
from typing import Any, TypeVar

import torch

from las.runtime import progress

T = TypeVar("T")

CHUNK = 32
"""Steps in a graph: enough to hide its start (about one step), few enough to waste little after the last frame."""

LIMIT = 16
"""Number of cached shapes, each with its graph and small buffers; the least recently used is dropped first."""

_cache: OrderedDict[Hashable, Any] = OrderedDict()
_announced: set[str] = set()


class RepeatedStep:
    """A step run a number of times: on a GPU by graph replay, rounded up to whole chunks; otherwise one by one."""

    def __init__(self, step: Callable[[], None], device: torch.device) -> None:
        """Capture the step. It must have no effect now: on a GPU it runs once to compile."""
        self.step = step
        self.graph = captured(step, device) if device.type == "cuda" else None

    def __call__(self, times: int) -> None:
        if self.graph is None:
            for _ in range(times):
                self.step()
        else:
            for _ in range(0, times, CHUNK):
                self.graph.replay()


def captured(step: Callable[[], None], device: torch.device, count: int = CHUNK) -> torch.cuda.CUDAGraph | None:
    """Return a graph of `count` steps, after one step outside it; None if capturing fails, which is announced once.

    Raises torch.OutOfMemoryError.
    """
    stream, current = torch.cuda.Stream(device), torch.cuda.current_stream(device)
    stream.wait_stream(current)
    graph = torch.cuda.CUDAGraph()
    try:
        pool: Any = _first(device).pool()
        with torch.cuda.stream(stream):
            step()
            try:
                # Other threads, such as one that pins batches, may go on calling CUDA.
                graph.capture_begin(pool=pool, capture_error_mode="thread_local")
                for _ in range(count):
                    step()
                graph.capture_end()
            except Exception:
                _abandon(graph, device, pool)
                raise
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        if reason not in _announced:
            _announced.add(reason)
            progress.say(f"no CUDA graph could be captured, so kernels start one by one: {reason}")
        return None
    finally:
        current.wait_stream(stream)  # the first step wrote to tensors that may be freed now
    return graph


def _abandon(graph: torch.cuda.CUDAGraph, device: torch.device, pool: Any) -> None:
    """End a capture that an operation broke off, so that allocations and random numbers work again.

    `capture_end` raises what the capture died of before it has told the allocator and the generator of the end. The
    next capture has other memory, since this one's may still count as recorded to.
    """
    with suppress(RuntimeError):
        graph.capture_end()
    index = torch.cuda.current_device() if device.index is None else device.index
    with suppress(RuntimeError):  # it has been told
        torch._C._cuda_endAllocateToPool(index, pool)
    generator = torch.cuda.default_generators[index]
    generator.graphsafe_set_state(generator.clone_state())  # only the generator's own state knows of a capture
    _first.cache_clear()


@cache
def _first(device: torch.device) -> torch.cuda.CUDAGraph:
    """Return a graph that is kept, since a pool of memory may not be used again after its last graph has gone.

    The steps of all graphs allocate from its pool. A new graph takes over the memory of one that is gone; graphs that
    overwrite each other's are no matter, as whoever replays one copies its results before another runs.
    """
    graph, touched = torch.cuda.CUDAGraph(), torch.zeros(1, device=device)
    with torch.cuda.device(device), torch.cuda.stream(torch.cuda.Stream(device)):
        graph.capture_begin(capture_error_mode="thread_local")
        touched.zero_()
        graph.capture_end()
    return graph


def cached(key: Hashable, make: Callable[[], T]) -> T:
    """Return the cached result of `make` for this key."""
    if key in _cache:
        _cache.move_to_end(key)
    else:
        if len(_cache) >= LIMIT:
            if torch.cuda.is_available():  # it may still be running there
                torch.cuda.synchronize()
            _cache.popitem(last=False)
        _cache[key] = make()
    return _cache[key]
