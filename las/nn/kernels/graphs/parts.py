"""What a function reads besides its state: tensors that the next pass has others of, and what a graph of it relies on.

A captured function goes on reading the memory that it was captured with, and nothing else is computed anew. So its
tensors are copied there for another pass, and it serves only passes that all else is the same for.
"""

import copy
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

PLAIN = (bool, int, float, str, type(None), torch.dtype, torch.device, type)


class Replayable:
    """Base class of objects whose results depend on their attributes and arguments alone.

    Attributes are tensors, plain values, `Constant`s, modules and other `Replayable`s, or lists, tuples and
    dictionaries of them. With any other the function that reads it is captured for each pass anew.
    """


class Constant:
    """Base class of objects that, like modules, keep their tensors from pass to pass, such as a language model."""


class Parts:
    """The parts of a function, in nested sequences.

    `key` is the same where a graph of the function serves as well, None if that cannot be known; `tensors` are those to
    be copied for it; `owners` are the modules and constants whose memory it reads, none of which it keeps alive.
    """

    def __init__(self, parts: Any) -> None:
        self.parts = parts
        self.tensors: list[Tensor] = []
        self.owners: list[object] = []
        try:
            self.key: Hashable | None = self._key(parts)
        except TypeError:
            self.key, self.tensors, self.owners = None, [], []

    def read_from(self, tensors: Sequence[Tensor]) -> Any:
        """Return the parts with other tensors in place of `tensors`; these parts themselves without a key."""
        return self.parts if self.key is None else _replaced(self.parts, iter(tensors))

    def _key(self, part: Any) -> Hashable:
        if isinstance(part, PLAIN):
            return part
        if isinstance(part, Tensor):
            self.tensors.append(part)
            return part.shape, part.dtype, part.device
        if isinstance(part, nn.Module | Constant):
            self.owners.append(part)
            return tuple(_contents(part))
        if isinstance(part, Replayable):
            return type(part), self._key(vars(part))
        if isinstance(part, Mapping):
            return tuple((name, self._key(value)) for name, value in part.items())
        if isinstance(part, list | tuple):
            return type(part), *map(self._key, part)
        raise TypeError(f"a graph may depend on a {type(part).__name__}")


def _contents(owner: object) -> Iterator[Hashable]:
    """Yield what a graph depends on: addresses of tensors, and plain attributes such as a module's mode."""
    modules = [*owner.modules()] if isinstance(owner, nn.Module) else [owner]
    for module in modules:
        yield id(module)
        for value in vars(module).values():
            if isinstance(value, PLAIN):
                yield value
            elif isinstance(value, Tensor):
                yield from _addresses([value])
            elif isinstance(value, tuple) and value and isinstance(value[0], Tensor):
                yield from _addresses(value)
    if isinstance(owner, nn.Module):
        yield from _addresses([*owner.parameters(), *owner.buffers()])


def _addresses(parts: Sequence[Tensor]) -> Iterator[Hashable]:
    for each in parts:
        yield each.data_ptr(), each.shape, each.stride(), each.dtype, each.requires_grad


def _replaced(part: Any, tensors: Iterator[Tensor]) -> Any:
    if isinstance(part, Tensor):
        return next(tensors)
    if isinstance(part, Replayable):
        copied = copy.copy(part)
        vars(copied).update(_replaced(vars(part), tensors))
        return copied
    if isinstance(part, Mapping):
        return {name: _replaced(value, tensors) for name, value in part.items()}
    if isinstance(part, list | tuple):
        values = [_replaced(value, tensors) for value in part]
        return type(part)(*values) if hasattr(part, "_fields") else type(part)(values)
    return part
