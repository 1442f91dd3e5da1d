"""Parts that a module makes itself, of a class or another callable."""

from collections.abc import Callable
from typing import Any, TypeVar

from torch import nn

from las.runtime.errors import ArgumentError

T = TypeVar("T")


def checked(key: str, factory: Callable[..., T]) -> Callable[..., T]:
    """Return what makes parts. Raises ArgumentError for a name, and for a finished module in its place."""
    if isinstance(factory, str):
        raise ArgumentError(f"{key}={factory!r}: configs and las.LSTM take names, this takes a class or a function")
    if isinstance(factory, nn.Module):
        kind = type(factory).__name__
        raise ArgumentError(f"{key} is one {kind}, but each module makes its own: give the class, {key}={kind}")
    return factory


def made(key: str, factory: Callable[..., T], /, *given: Any, **options: Any) -> T:
    """Return a part for these arguments. Raises ArgumentError as `checked` does."""
    return checked(key, factory)(*given, **options)
