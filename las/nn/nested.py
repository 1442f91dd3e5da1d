"""States of decoders and searches: tensors in nested (named) tuples."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from torch import Tensor

S = TypeVar("S")


def mapped(state: S, change: Callable[[Tensor], Tensor]) -> S:
    """Return the state with `change` applied to every tensor. Raises TypeError for anything but (named) tuples of
    tensors.
    """
    made: Any
    if isinstance(state, Tensor):
        made = change(state)
        return made
    if isinstance(state, tuple):
        parts = [mapped(part, change) for part in state]
        made = type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)
        return made
    raise TypeError(f"a state is made of tensors in (named) tuples, but contains a {type(state).__name__}")


def tensors(state: Any) -> Iterator[Tensor]:
    """Yield the tensors of a state, in order. Raises TypeError as `mapped`."""
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, tuple):
        for part in state:
            yield from tensors(part)
    else:
        raise TypeError(f"a state is made of tensors in (named) tuples, but contains a {type(state).__name__}")


def filled(state: S, values: Iterable[Tensor]) -> S:
    """Return a state of the same form with other tensors, in order."""
    following = iter(values)
    return mapped(state, lambda _: next(following))
