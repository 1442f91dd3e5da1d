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
from gpu_stand_in import WAITING, Operations, recording, tensors_in
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from las.nn.kernels import choice
from las.nn.kernels.graphs import capture, replayed

Call = tuple[Any, tuple[Any, ...], Mapping[str, Any], list[Tensor]]
"""An operation, its arguments, and the tensors that it made."""


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
        self.own: dict[int, Tensor] = {}
        """What operations made, which keeps their addresses from being used for other memory."""
        self.changed: dict[int, tuple[Tensor, Tensor]] = {}
        """Memory of others that operations write to, with what was there before."""
        self.num_replays = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func in WAITING:
            raise RuntimeError("operation not permitted when stream is capturing")
        given = {each.untyped_storage()._cdata for each in tensors_in((args, kwargs))}
        self._keep(func, args, kwargs)
        result = func(*args, **kwargs)
        made = [each for each in tensors_in(result) if each.untyped_storage()._cdata not in given]
        self.own |= {each.untyped_storage()._cdata: each for each in made}
        self.calls.append((func, args, kwargs, made))
        return result

    def _keep(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Keep what an operation is about to overwrite, unless an operation of this graph made it."""
        arguments = {each.name: value for each, value in zip(func._schema.arguments, args, strict=False)} | kwargs
        written = [each.name for each in func._schema.arguments if each.alias_info and each.alias_info.is_write]
        for each in tensors_in([arguments.get(name) for name in written]):
            if each.untyped_storage()._cdata not in self.own:
                self.changed.setdefault(id(each), (each, each.detach().clone()))

    def undo(self) -> None:
        """Undo the run that was recorded: a GPU computes nothing while it captures."""
        with torch.no_grad():
            for each, before in reversed(self.changed.values()):
                each.copy_(before)

    def replay(self) -> None:
        """Repeat all operations, which nothing that watches operations sees."""
        self.num_replays += 1
        with torch.no_grad(), _disable_current_modes():
            for func, args, kwargs, made in self.calls:
                result = func(*args, **kwargs)
                if made:
                    for own, new in zip(made, tensors_in(result), strict=True):
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

    def capture(
        self, function: Callable[[], None], device: torch.device, count: int = 1, compiled: bool = False
    ) -> Graph | None:
        """A graph of a function, which runs once before, as on a GPU; None if it waits for a result."""
        assert count == 1
        if not compiled:
            function()
        graph = Graph()
        try:
            recording.append(graph)
            with graph:
                function()
        except RuntimeError:
            self.refused += 1
            return None
        finally:
            recording.remove(graph)
            graph.undo()
        self.graphs.append(graph)
        return graph


@contextmanager
def graphs() -> Iterator[Graphs]:
    """Let what a GPU would capture be captured here, with its trial."""
    made = Graphs()
    with (
        mock.patch.object(choice, "has_graphs", lambda device: True),
        mock.patch.object(capture, "captured", made.capture),
        mock.patch.object(replayed, "_tried", {}),
        mock.patch.object(replayed, "_met", {}),
        mock.patch.object(capture, "_cache", OrderedDict()),
        made.launches,
    ):
        yield made
