"""Do plain values fit the keyword arguments of a constructor? Asked before it runs, so that an error names the key."""

import collections.abc
import inspect
import types
import typing
from collections.abc import Callable, Collection
from typing import Any

from las.errors import ConfigError, suggest

BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
SEQUENCES = (list, tuple, collections.abc.Sequence)
PLACES = {"name": "run_dir=... says where a run lies", "corpus.name": "corpus.root=... says where a corpus lies"}
"""Names that folders are called by, and what a person may have meant who wrote a path."""


def check(cls: type, values: dict[str, Any], where: str, kinds: Collection[Any] = BY_NAME) -> None:
    """Raise ConfigError for an unknown key, with the nearest ones, and for a value of the wrong type.

    `kinds` are the kinds of parameters that may be given by name.
    """
    known = parameters(cls, kinds)
    for key, value in values.items():
        if key not in known:
            raise ConfigError(f"{where}.{key}: {cls.__name__} has no such key.{suggest(key, known)}")
        check_value(f"{where}.{key}", value, known[key].annotation)


def check_value(where: str, value: Any, annotation: Any) -> None:
    """Raise ConfigError unless a value is of the type of an annotation."""
    if not fits(value, annotation):
        name = annotation.__name__ if inspect.isclass(annotation) else str(annotation).replace("typing.", "")
        raise ConfigError(f"{where}={value!r} should be of type {name.replace('collections.abc.', '')}")


def check_names(config: dict[str, Any]) -> None:
    """Raise ConfigError unless the names in a config, by which folders are called, are one part of a path each."""
    for key, section in (("name", config), ("corpus.name", config.get("corpus"))):
        if isinstance(section, dict) and "name" in section:
            check_name(key, section["name"])


def check_name(key: str, value: Any) -> None:
    """Raise ConfigError unless a value can be the name of a folder: `..` or a path would lead out of the one above."""
    text = "" if value is None else str(value)
    if not text.strip() or text in (".", "..") or not text.isprintable() or set(text) & set("/\\"):
        raise ConfigError(f"{key}={text!r}: a name is that of one folder, not empty and without / in it. {PLACES[key]}")


def parameters(cls: type, kinds: Collection[Any] = BY_NAME) -> dict[str, inspect.Parameter]:
    """Parameters of a constructor that may be given by name, following **options into the base classes."""
    found: dict[str, inspect.Parameter] = {}
    for base in cls.__mro__:
        init: Callable[..., None] | None = vars(base).get("__init__")
        if init is None or base is object:
            continue
        own = list(inspect.signature(init).parameters.values())[1:]
        for parameter in own:
            if parameter.kind in kinds:
                found.setdefault(parameter.name, parameter)
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in own):
            break
    return found


def fits(value: Any, annotation: Any) -> bool:
    """Whether a value is of an annotation's type: a whole number fits float, a list fits any sequence.

    What cannot be told (no annotation, type variables, annotations as text) fits.
    """
    if annotation is None:
        return value is None
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, each) for each in inner)
    if origin is collections.abc.Callable:
        return callable(value)
    if origin in SEQUENCES:
        # A text is a sequence of texts as well: an alphabet is written as one.
        listed = isinstance(value, (list, tuple)) or (isinstance(value, str) and inner[0] is str)
        return listed and all(fits(each, inner[0]) for each in value)
    if annotation in (Any, inspect.Parameter.empty) or not inspect.isclass(annotation):
        return True
    if isinstance(value, bool):
        return annotation is bool
    return isinstance(value, (int, float) if annotation is float else annotation)
