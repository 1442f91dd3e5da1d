"""Functions that are applied to their own result again and again: on a GPU captured in a CUDA graph and replayed.

One token of a speller or a search is dozens of operations, whose launch takes the host longer than the GPU computes. A
replay is one launch.
"""

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

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


class Replayed(Generic[S, R]):
    """A function from a state to the next state and a record, that is applied many times.

    State and record are tensors in nested (named) tuples, and the function depends on nothing else that changes. On a
    GPU the second call with tensors of the same shapes captures it, and the following ones are replays: a state that
    is returned is then overwritten by the next call; a record is not. The first capture of a process is compared with
    the function; where it fails or differs, which is said once, the function is called as it is.

    Args:
        name: of what is computed, for messages.
        function: may change the tensors of its state in place.
        capture: `choice.capture_on` of the device; None for no capture.
    """

    def __init__(self, name: str, function: Callable[[S], tuple[S, R]], capture: Capture | None) -> None:
        self.name, self.function, self.capture = name, function, capture
        self.shapes: list[torch.Size] = []
        self.graph: Graph | None = None

    def __call__(self, state: S) -> tuple[S, R]:
        """Return the next state and the record."""
        if self.capture is None:
            return self.function(state)
        shapes = [tensor.shape for tensor in tensors(state)]
        if shapes != self.shapes:
            self.shapes, self.graph = shapes, None
            return self.function(state)
        if self.graph is None:
            return self._first(state, self.capture)
        _copy(self.state, state)
        self.graph.replay()
        return self.state, mapped(self.record, torch.clone)

    def _first(self, state: S, capture: Capture) -> tuple[S, R]:
        """Capture the function, and apply it."""
        types = {tensor.dtype for tensor in tensors(state)}
        trial = self.name, frozenset(types)
        if _tried.get(trial, True):
            self.state = mapped(state, torch.clone)
            self.graph = capture(self._advance, next(tensors(state)).device)
        if self.graph is not None:
            _copy(self.state, state)  # capturing ran it
            self.graph.replay()
            result = self.state, mapped(self.record, torch.clone)
            if trial in _tried:
                return result
            _tried[trial] = _agree(result, self.function(mapped(state, torch.clone)))
            if _tried[trial]:
                return result
            progress.say(f"{self.name}: a CUDA graph gives other values than its operations, which are used instead")
        _tried[trial] = False
        self.capture = None
        return self.function(state)

    def _advance(self) -> None:
        """One application on the captured tensors."""
        following, self.record = self.function(self.state)
        own = {tensor.untyped_storage().data_ptr() for tensor in tensors(self.state)}

        def apart(tensor: Tensor) -> Tensor:
            """Return the tensor, copied if it shares memory with the state, which is about to be overwritten."""
            return tensor.clone() if tensor.untyped_storage().data_ptr() in own else tensor

        self.record = mapped(self.record, apart)
        pairs = [*zip(tensors(self.state), tensors(following), strict=True)]
        for old, new in [(old, apart(new)) for old, new in pairs if new is not old]:
            old.copy_(new)


def _copy(state: S, given: S) -> None:
    for own, tensor in zip(tensors(state), tensors(given), strict=True):
        if own is not tensor:
            own.copy_(tensor)


def _agree(result: object, expected: object) -> bool:
    """Return True if no tensor differs by more than rounding."""
    return all(
        torch.allclose(ours, right, tolerance, tolerance, equal_nan=True)
        for ours, right in zip(tensors(result), tensors(expected), strict=True)
        for tolerance in [TOLERANCES.get(right.dtype, 0.0)]
    )
