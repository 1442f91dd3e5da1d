"""CUDA graphs: a step that is launched many times on the same tensors is captured once and replayed.

Launching two kernels per frame takes the host longer than the kernels run; a replayed graph is one call per `CHUNK`
steps. A step must therefore launch the same kernels every time, and surplus steps must have no effect.

All graphs of a GPU are captured on one stream, and their steps allocate from one pool of memory.
"""

import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from threading import RLock
from typing import Any, NamedTuple, TypeVar

import torch

from las.runtime import progress
from las.runtime.devices import garbage_paused

T = TypeVar("T")

CHUNK = 32
"""Steps in a graph: enough to hide its start (about one step), few enough to waste little after the last frame."""

LIMIT = 64
"""Number of cached shapes, each with its graph and small buffers; the least recently used is dropped first."""


class _Kept(NamedTuple):
    """Something cached, and what drops it once one of its owners is gone."""

    value: Any
    finalizers: "list[weakref.finalize[..., Any]]"


_lock = RLock()
_cache: OrderedDict[Hashable, _Kept] = OrderedDict()
_shared: dict[torch.device, "_Shared"] = {}
_announced: set[str] = set()
_whole: ContextVar[bool] = ContextVar("whole", default=False)


class _Shared:
    """What all graphs of a device share.

    A pool of memory may not be used again after its last graph has gone, so one is kept. A new graph takes over the
    memory of one that is gone; temporary tensors of several graphs may share memory, as passes take turns.
    """

    def __init__(self, device: torch.device) -> None:
        self.device, self.turn = device, RLock()
        self.last: torch.cuda.Stream | None = None
        """The stream of the last pass."""
        self.stream = torch.cuda.Stream(device) if is_real(device) else None
        self.graph: torch.cuda.CUDAGraph | None = None

    def pool(self) -> Any:
        """Return the pool of memory of all graphs."""
        if self.graph is None:
            graph, touched = torch.cuda.CUDAGraph(), torch.zeros(1, device=self.device)
            with torch.cuda.device(self.device), torch.cuda.stream(self.stream):
                graph.capture_begin(capture_error_mode="thread_local")
                touched.zero_()
                graph.capture_end()
            self.graph = graph
        return self.graph.pool()


def is_real(device: torch.device) -> bool:
    """Return True for a GPU that is there, which has CUDA graphs."""
    return device.type == "cuda" and torch.cuda.is_available()


@contextmanager
def whole() -> Iterator[None]:
    """Context of a function that is captured as a whole, or run as it will be: no part of it has a graph of its own."""
    token = _whole.set(True)
    try:
        yield
    finally:
        _whole.reset(token)


def captures_parts() -> bool:
    """Return True outside `whole`."""
    return not _whole.get()


def is_recording(device: torch.device) -> bool:
    """Return True while what is started on a device is captured, in the threads of backward passes too."""
    return is_real(device) and torch.cuda.is_current_stream_capturing()


def _shared_on(device: torch.device) -> _Shared:
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    with _lock:
        if device not in _shared:
            _shared[device] = _Shared(device)
        return _shared[device]


@contextmanager
def turn(device: torch.device, replays: bool) -> Iterator[None]:
    """Context of a pass that replays graphs, whose tensors are those of passes of other threads and streams too."""
    if not replays:
        yield
        return
    shared = _shared_on(device)
    with shared.turn:
        if is_real(device):
            current = torch.cuda.current_stream(device)
            if shared.last not in (None, current):
                current.wait_stream(shared.last)
            shared.last = current
        yield


class RepeatedStep:
    """A step run a number of times: on a GPU by graph replay, rounded up to whole chunks; otherwise one by one.

    Within a graph it is one by one as well.
    """

    def __init__(self, step: Callable[[], None], device: torch.device) -> None:
        """Capture the step. It must have no effect now: on a GPU it runs once to compile."""
        self.step = step
        self.graph = captured(step, device) if device.type == "cuda" and not is_recording(device) else None

    def __call__(self, times: int) -> None:
        if self.graph is None:
            for _ in range(times):
                self.step()
        else:
            for _ in range(0, times, CHUNK):
                self.graph.replay()


def captured(
    step: Callable[[], None], device: torch.device, count: int = CHUNK, compiled: bool = False
) -> torch.cuda.CUDAGraph | None:
    """Return a graph of `count` steps, after one step outside it unless all that it starts is `compiled`; None if
    capturing fails, which is announced once.

    Raises torch.OutOfMemoryError.
    """
    with _lock:  # two captures on one stream would be one
        return _captured(step, _shared_on(device), count, compiled)


def _captured(step: Callable[[], None], shared: _Shared, count: int, compiled: bool) -> torch.cuda.CUDAGraph | None:
    stream: Any = shared.stream
    current, graph = torch.cuda.current_stream(shared.device), torch.cuda.CUDAGraph()
    stream.wait_stream(current)
    try:
        pool = shared.pool()
        # Garbage may be a graph, which is not to be destroyed during a capture.
        with torch.cuda.stream(stream), garbage_paused():
            if not compiled:
                step()
            try:
                # Other threads, such as one that pins batches, may go on calling CUDA.
                graph.capture_begin(pool=pool, capture_error_mode="thread_local")
                for _ in range(count):
                    step()
                graph.capture_end()
            except Exception:
                _abandon(graph, shared, pool)
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


def _abandon(graph: torch.cuda.CUDAGraph, shared: _Shared, pool: Any) -> None:
    """End a capture that an operation broke off, so that allocations and random numbers work again.

    `capture_end` raises what the capture died of before it has told the allocator and the generator of the end. The
    next capture has other memory, since this one's may still count as recorded to.
    """
    with suppress(RuntimeError):
        graph.capture_end()
    index = shared.device.index
    with suppress(RuntimeError):  # it has been told
        torch._C._cuda_endAllocateToPool(index, pool)
    generator = torch.cuda.default_generators[index]
    generator.graphsafe_set_state(generator.clone_state())  # only the generator's own state knows of a capture
    shared.graph = None


def cached(key: Hashable, make: Callable[[], T], owners: Sequence[object] = ()) -> T:
    """Return the cached result of `make` for this key, which may be None and is not kept then.

    It is dropped once one of its owners is gone.
    """
    with _lock:
        kept = _cache.pop(key, None)
        if kept is None:
            while len(_cache) >= LIMIT:
                _release(_cache.popitem(last=False)[1])
            made = make()
            if made is None:
                return made
            kept = _Kept(made, [weakref.finalize(owner, _forget, key) for owner in owners])
            for finalizer in kept.finalizers:
                finalizer.atexit = False
        _cache[key] = kept
        found: T = kept.value
        return found


def _forget(key: Hashable) -> None:
    if (kept := _cache.pop(key, None)) is not None:
        _release(kept)


def _release(kept: _Kept) -> None:
    """Wait for what is no longer cached, as it may still be running."""
    for finalizer in kept.finalizers:
        finalizer.detach()
    for device in [*_shared]:
        if is_real(device) and not torch.cuda.is_current_stream_capturing():
            torch.cuda.synchronize(device)
