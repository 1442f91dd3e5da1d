"""Do plain values fit the arguments of a constructor? Asked before it runs, so that an error names the key."""

import collections.abc
import inspect
import math
import types
import typing
from collections.abc import Callable, Collection
from typing import Any

from las.errors import ArgumentError, ConfigError, suggest

BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
SEQUENCES = (list, tuple, collections.abc.Sequence)
WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", None: "null", dict: "keys"}
LISTED = {int: "whole numbers", float: "numbers", str: "texts"}
EXAMPLES: dict[Any, Any] = {int: 2, float: 0.1, bool: True, str: "x"}
PART = "a part of its own (keys with a _target_)"
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
        check_value(f"{where}.{key}", value, known[key].annotation, known[key].default)


def check_value(where: str, value: Any, annotation: Any, default: Any = None) -> None:
    """Raise ConfigError unless a value is of the type of an annotation; the example it gives is the default."""
    if not fits(value, annotation):
        wanted = " or ".join(dict.fromkeys(map(_in_words, _alternatives(annotation))))
        raise ConfigError(f"{where}={value!r} should be {wanted}{_example(where, annotation, default)}")


def require(key: str, value: Any, least: int | float, most: int | float = math.inf) -> None:
    """Raise ArgumentError unless a number, or each one of a list, lies within its limits; None does."""
    numbers = value if isinstance(value, (list, tuple)) else [value]
    if not all(number is None or least <= number <= most for number in numbers):
        limits = f"at least {least:g}" if most == math.inf else f"from {least:g} to {most:g}"
        raise ArgumentError(f"{key}={shown(value)} must be {limits}")


def shown(value: Any) -> str:
    """A plain value as it is typed after `key=`."""
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(shown, value))}]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)


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

    A number is finite. What cannot be told (no annotation, type variables, annotations as text) fits.
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
    if annotation is float:
        return isinstance(value, (int, float)) and math.isfinite(value)
    return isinstance(value, annotation)


def _alternatives(annotation: Any) -> list[Any]:
    """The types of a union that a person can type: no tensors, and null at the end."""
    if typing.get_origin(annotation) not in (typing.Union, types.UnionType):
        return [annotation]
    kinds = [each for each in typing.get_args(annotation) if getattr(each, "__name__", "") != "Tensor"]
    return sorted((None if each is types.NoneType else each for each in kinds), key=lambda each: each is None)


def _in_words(kind: Any) -> str:
    """`a list of whole numbers` for Sequence[int]."""
    if typing.get_origin(kind) in SEQUENCES:
        inner = typing.get_args(kind)[0]
        return f"a list of {LISTED.get(inner, 'lists' if typing.get_origin(inner) in SEQUENCES else 'values')}"
    return WORDS.get(kind, PART)


def _example(where: str, annotation: Any, default: Any) -> str:
    """`, for example optim.lr=0.001`: the default, or any value of the type; nothing for parts."""
    value = default
    if value is inspect.Parameter.empty or value is None or not isinstance(value, (int, float, str, list, tuple)):
        kind = _alternatives(annotation)[0]
        listed = typing.get_origin(kind) in SEQUENCES
        inner = typing.get_args(kind)[0] if listed else kind
        value = EXAMPLES.get(inner)
        value = [value] if listed and value is not None else value
    return "" if value is None else f", for example {where}={shown(value)}"
