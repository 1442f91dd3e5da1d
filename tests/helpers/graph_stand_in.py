"""A stand-in for CUDA graphs: the operations of one run, repeated on the same tensors without any Python of theirs.

As with a graph, numbers and shapes that Python computed stay as they were, and what was read from other tensors is read
there again.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from gpu_stand_in import WAITING, Operations
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_flatten

from las.nn.kernels import choice
from las.nn.kernels.graphs import capture, replayed

Call = tuple[Any, tuple[Any, ...], Mapping[str, Any], list[Tensor]]
"""An operation, its arguments, and the tensors that it made."""


def _tensors(tree: Any) -> list[Tensor]:
    return [each for each in tree_flatten(tree)[0] if isinstance(each, Tensor)]


class Launches(Operations):
    """Counts the operations that are started one by one, outside replays."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


class Graph(Operations):
    """A captured function."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self.num_replays = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func in WAITING:
            raise RuntimeError("operation not permitted when stream is capturing")
        given = {each.untyped_storage()._cdata for each in _tensors((args, kwargs))}
        result = func(*args, **kwargs)
        made = [each for each in _tensors(result) if each.untyped_storage()._cdata not in given]
        self.calls.append((func, args, kwargs, made))
        return result

    def replay(self) -> None:
        """Repeat all operations, which nothing that watches operations sees."""
        self.num_replays += 1
        with torch.no_grad(), _disable_current_modes():
            for func, args, kwargs, made in self.calls:
                result = func(*args, **kwargs)
                if made:
                    for own, new in zip(made, _tensors(result), strict=True):
                        own.copy_(new)


class Graphs(Sequence[Graph]):
    """All graphs that were captured, and the operations outside of them."""

    def __init__(self) -> None:
        self.graphs: list[Graph] = []
        self.launches = Launches()
        self.refused = 0

    def __getitem__(self, index: Any) -> Any:
        return self.graphs[index]

    def __len__(self) -> int:
        return len(self.graphs)

    def capture(self, function: Callable[[], None], device: torch.device) -> Graph | None:
        """A graph of a function, which runs once before, as on a GPU; None if it waits for a result."""
        function()
        graph = Graph()
        try:
            with graph:
                function()
        except RuntimeError:
            self.refused += 1
            return None
        self.graphs.append(graph)
        return graph


@contextmanager
def graphs() -> Iterator[Graphs]:
    """Let what a GPU would capture be captured here, with its trial."""
    made = Graphs()
    with (
        mock.patch.object(choice, "capture_on", lambda device: made.capture),
        mock.patch.object(replayed, "_tried", {}),
        mock.patch.object(replayed, "_met", {}),
        mock.patch.object(capture, "_cache", OrderedDict()),
        made.launches,
    ):
        yield made
