"""Functions that are applied to their own result again and again: on a GPU captured in a CUDA graph and replayed.

One token of a speller or a search is dozens of operations, whose launch takes the host longer than the GPU computes. A
replay is one launch. A graph is kept for later passes of the same shapes (`las.nn.kernels.graphs.capture`).
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from las.nn.kernels.graphs import capture as graphs
from las.nn.kernels.graphs.parts import Parts
from las.nn.nested import mapped, tensors
from las.runtime import progress

S = TypeVar("S")
R = TypeVar("R")

TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""Largest difference of a replay from the function, by type, relative and absolute: sums may have another order."""


@runtime_checkable
class Graph(Protocol):
    """A captured function, which is run again on the same tensors."""

    def replay(self) -> None: ...


Capture = Callable[[Callable[[], None], torch.device], Graph | None]
"""Captures a function, which it runs once at least; None if that fails."""

_tried: dict[tuple[str, frozenset[torch.dtype]], bool] = {}
"""True for what passed its trial, by name and types."""

_met: dict[Hashable, None] = {}
MOST_MET = 1024
"""Functions with shapes that were called once; graphs of so many are not kept."""


def bucket(size: int) -> int:
    """Return the size, at least this one, that tensors are padded to: of four between one power of two and the next.

    >>> from las.nn.kernels.graphs.replayed import bucket
    >>> [bucket(size) for size in (1, 7, 9, 16, 17, 33, 250)]
    [1, 7, 10, 16, 20, 40, 256]
    """
    step = 1 << max(0, (size - 1).bit_length() - 3)
    return -(-size // step) * step


class Replayed(Generic[S, R]):
    """A function from its parts and a state to the next state and a record, that is applied many times in a pass.

    State and record are tensors in nested (named) tuples, and the function depends on nothing else that changes. On a
    GPU the second call with tensors of the same shapes captures it, in one pass or in two with the same parts but for
    their tensors, and the following ones are replays. A state that is returned is overwritten by the next call; a
    record is not. Passes on a GPU take turns, `capture.turn`. The first capture of a process is compared with the
    function; where it fails or differs, which is said once, the function is called as it is.

    Args:
        name: of what is computed, for messages and among the graphs: one for each function.
        function: may change the tensors of its state in place.
        parts: what it reads besides, see `Parts`.
        capture: `choice.capture_on` of the device; None for no capture.
    """

    def __init__(
        self, name: str, function: Callable[[Any, S], tuple[S, R]], parts: object, capture: Capture | None
    ) -> None:
        self.name, self.function, self.capture = name, function, capture
        self.parts = Parts(None if capture is None else parts)
        self.given = parts
        self.shapes: list[tuple[torch.Size, torch.dtype]] = []
        self.captured: _Captured[S, R] | None = None

    def __call__(self, state: S) -> tuple[S, R]:
        """Return the next state and the record."""
        if self.capture is None:
            return self.function(self.given, state)
        given = [*tensors(state)]
        if self.captured is None or not self.captured.holds(given):
            shapes = [(tensor.shape, tensor.dtype) for tensor in given]
            if shapes != self.shapes or self.captured is None:
                again, self.shapes = shapes == self.shapes, shapes
                self.captured = self._captured(state, self.capture if again else None)
        if self.captured is None:
            return self.function(self.given, state)
        return self.captured(given)

    def _captured(self, state: S, capture: Capture | None) -> "_Captured[S, R] | None":
        """Return the graph for a state, a kept one or with `capture` a new one, with the tensors of the parts."""

        def make() -> _Captured[S, R] | None:
            return None if capture is None else self._tested(state, capture)

        if self.parts.key is None:
            return make()
        key = self.name, self.parts.key, *self.shapes, _settings(next(tensors(state)).device)
        if capture is None and key in _met:
            capture = self.capture
        _met[key] = None
        while len(_met) > MOST_MET:
            del _met[next(iter(_met))]
        found = graphs.cached(key, make, self.parts.owners)
        if found is not None:
            _copy(found.read, self.parts.tensors)
        return found

    def _tested(self, state: S, capture: Capture) -> "_Captured[S, R] | None":
        """Capture the function; None, also in this pass from now on, where that fails or a trial does."""
        trial = self.name, frozenset(dtype for _, dtype in self.shapes)
        made = _Captured(self.function, self.parts, state, capture) if _tried.get(trial, True) else None
        if made is not None and made.graph is not None:
            if trial not in _tried:
                expected = self.function(self.given, mapped(state, torch.clone))
                _tried[trial] = _agree(made([*tensors(state)]), expected)
                if not _tried[trial]:
                    remark = "a CUDA graph gives other values than its operations, which are used instead"
                    progress.say(f"{self.name}: {remark}")
            if _tried[trial]:
                return made
        _tried[trial] = False
        self.capture = None
        return None


class _Captured(Generic[S, R]):
    """A captured function, and the tensors that it reads and writes: `state`, `record`, and those of its parts."""

    def __init__(self, function: Callable[[Any, S], tuple[S, R]], parts: Parts, state: S, capture: Capture) -> None:
        with torch.inference_mode(False):  # these tensors outlive it
            self.state = mapped(state, torch.clone)
            self.read = [torch.clone(tensor) for tensor in parts.tensors]
        self.held = [*tensors(self.state)]
        own = parts.read_from(self.read)
        self.graph = capture(lambda: self._advance(function, own), self.held[0].device)

    def holds(self, given: Sequence[Tensor]) -> bool:
        """Return True for the state that was returned last."""
        return len(given) == len(self.held) and all(map(_is, self.held, given))

    def __call__(self, given: Sequence[Tensor]) -> tuple[S, R]:
        """Apply the function to the tensors of a state."""
        assert self.graph is not None
        _copy(self.held, given)
        self.graph.replay()
        return self.state, mapped(self.record, torch.clone)

    def _advance(self, function: Callable[[Any, S], tuple[S, R]], parts: Any) -> None:
        """One application on the captured tensors."""
        following, self.record = function(parts, self.state)
        own = {tensor.untyped_storage().data_ptr() for tensor in (*self.held, *self.read)}

        def apart(tensor: Tensor) -> Tensor:
            """Return the tensor, copied if it shares memory with the state, which is about to be overwritten."""
            return tensor.clone() if tensor.untyped_storage().data_ptr() in own else tensor

        self.record = mapped(self.record, apart)
        pairs = [*zip(self.held, tensors(following), strict=True)]
        for old, new in [(old, apart(new)) for old, new in pairs if new is not old]:
            old.copy_(new)


def _is(one: Tensor, other: Tensor) -> bool:
    return one is other


def _settings(device: torch.device) -> tuple[object, ...]:
    """Return what the operations of a graph depend on besides tensors."""
    kind, matmul = device.type, torch.backends.cuda.matmul
    return (
        device,
        torch.is_grad_enabled(),
        torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind),
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
        # TF32, whose setting had another name before torch 2.9.
        getattr(matmul, "fp32_precision", None) or matmul.allow_tf32,
    )


def _copy(own: Sequence[Tensor], given: Sequence[Tensor]) -> None:
    """Copy tensors, those of a type by one start of a GPU's kernel."""
    by_type: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = {}
    for old, new in zip(own, given, strict=True):
        if old is not new:
            for tensors_of, tensor in zip(by_type.setdefault(old.dtype, ([], [])), (old, new), strict=True):
                tensors_of.append(tensor)
    for olds, news in by_type.values():
        torch._foreach_copy_(olds, news)


def _agree(result: object, expected: object) -> bool:
    """Return True if no tensor differs by more than rounding."""
    return all(
        torch.allclose(ours, right, tolerance, tolerance, equal_nan=True)
        for ours, right in zip(tensors(result), tensors(expected), strict=True)
        for tolerance in [TOLERANCES.get(right.dtype, 0.0)]
    )
