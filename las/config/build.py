"""Hydra composition, construction of objects from configs, and type checks of their arguments.

A config is plain data. `build` checks every class that it names (`_target_`) against an allow-list before it imports
anything, because the config inside a checkpoint comes from outside. Names and types of keyword arguments are compared
with the constructor's signature before it runs, so that an error names the key, and the nearest known ones.
"""

import collections.abc
import functools
import inspect
import math
import re
import types
import typing
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from las.config import folders, groups, sizes
from las.config.overrides import explain
from las.config.targets import base_of, items_of, require_kind, resolve
from las.runtime.errors import ArgumentError, ConfigError, MissingValueError, suggest

UNCHECKED = (Any, inspect.Parameter.empty)
BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
PARTS = (*BY_NAME, inspect.Parameter.VAR_KEYWORD)
"""Kinds of parameters that a part may be given to: also as one of any name."""
SEQUENCES = (list, tuple, collections.abc.Sequence)
WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", None: "null", dict: "keys"}
LISTED = {int: "whole numbers", float: "numbers", str: "texts"}
EXAMPLES: dict[Any, Any] = {int: 2, float: 0.1, bool: True, str: "x"}
PART = "a part of its own (keys with a _target_)"
REFERENCE = re.compile(r"\$\{[\w.\[\]-]*\}")
"""An interpolation that is the value of another key."""

Config = dict[str, Any]


def check(cls: type, values: dict[str, Any], where: str, kinds: Collection[Any] = BY_NAME) -> None:
    """Raise ConfigError for an unknown key, with the nearest ones, and for a value of the wrong type.

    `kinds` are the kinds of parameters that may be given by name.
    """
    known = parameters(cls, kinds)
    for key, value in values.items():
        is_plain = isinstance(value, (bool, int, float, str, list))
        annotation = annotation_of(cls, key, where, kinds if is_plain else PARTS)
        check_value(f"{where}.{key}", value, annotation, known[key].default if key in known else None)


def annotation_of(cls: type, key: str, where: str, kinds: Collection[Any]) -> Any:
    """Annotation of a key of a constructor, or of the parts of any other name that it takes (`**scorers: Scorer`).

    Raises ConfigError with the nearest keys if it takes none of this name.
    """
    known = parameters(cls, kinds)
    others = [each for each in known.values() if each.kind is each.VAR_KEYWORD and each.annotation not in UNCHECKED]
    for parameter in ([known[key]] if key in known else others)[:1]:
        return parameter.annotation
    raise ConfigError(f"{where}.{key}: {cls.__name__} has no such key.{suggest(key, parameters(cls))}")


def check_value(where: str, value: Any, annotation: Any, default: Any = None) -> None:
    """Raise ConfigError unless a value has the type of an annotation. The message gives the default as an example."""
    if not fits(value, annotation):
        wanted = " or ".join(dict.fromkeys(map(_in_words, _alternatives(annotation))))
        raise ConfigError(f"{where}={value!r} should be {wanted}{_example(where, annotation, default)}")


def check_values(config: Config, kinds: Mapping[str, Any]) -> None:
    """Raise ConfigError unless the values of some keys of a config have the types of these annotations."""
    for key, kind in kinds.items():
        check_value(key, config[key], kind)


def require(key: str, value: Any, minimum: int | float, maximum: int | float = math.inf) -> None:
    """Raise ArgumentError unless a number, or each number of a list, lies within limits; None is always allowed.

    A bool is no number: True in place of a dropout would be a dropout of 1.
    """
    numbers = value if isinstance(value, (list, tuple)) else [value]
    sizes.check(key, value)
    if any(isinstance(number, bool) for number in numbers):
        raise ArgumentError(f"{key}={shown(value)} should be a number, {minimum:g} for example")
    if not all(number is None or minimum <= number <= maximum for number in numbers):
        limits = f"at least {minimum:g}" if maximum == math.inf else f"from {minimum:g} to {maximum:g}"
        raise ArgumentError(f"{key}={shown(value)} must be {limits}")


def shown(value: Any) -> str:
    """Format a plain value as it is typed after `key=`."""
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(shown, value))}]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)


def parameters(cls: type, kinds: Collection[Any] = BY_NAME) -> dict[str, inspect.Parameter]:
    """Parameters of a constructor that may be given by name, following **options into the base classes."""
    accepted: dict[str, inspect.Parameter] = {}
    for base in cls.__mro__:
        init: Callable[..., None] | None = vars(base).get("__init__")
        if init is None or base is object:
            continue
        own = list(_signature(init).parameters.values())[1:]
        accepted |= {each.name: each for each in own if each.kind in kinds and each.name not in accepted}
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in own):
            break
    return accepted


def _signature(init: Callable[..., None]) -> inspect.Signature:
    try:
        return inspect.signature(init, eval_str=True)  # annotations that are strings, as far as they have a value here
    except (NameError, AttributeError, SyntaxError, TypeError):
        return inspect.signature(init)


def fits(value: Any, annotation: Any) -> bool:
    """Return whether a value has an annotation's type: an int fits float, a list fits any sequence.

    Floats must be finite. Annotations that cannot be checked (none, type variables, strings) accept every value.
    """
    if annotation is None:
        return value is None
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, each) for each in inner)
    if origin is collections.abc.Callable:
        return callable(value)
    if origin in SEQUENCES:
        # A string counts as a sequence of strings: an alphabet is written as one.
        listed = isinstance(value, (list, tuple)) or (isinstance(value, str) and inner[0] is str)
        return listed and all(fits(each, inner[0]) for each in value)
    if annotation in UNCHECKED or not inspect.isclass(annotation):
        return True
    if isinstance(value, bool):
        return annotation is bool
    if annotation is float:
        return isinstance(value, (int, float)) and math.isfinite(value)
    return isinstance(value, annotation)


def _alternatives(annotation: Any) -> list[Any]:
    """Return the types of a union that can be typed in a config: no tensors, and None last."""
    if typing.get_origin(annotation) not in (typing.Union, types.UnionType):
        return [annotation]
    kinds = [each for each in typing.get_args(annotation) if getattr(each, "__name__", "") != "Tensor"]
    return sorted((None if each is types.NoneType else each for each in kinds), key=lambda each: each is None)


def _in_words(kind: Any) -> str:
    """Return `a list of whole numbers` for Sequence[int]."""
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


def config_directory() -> Path:
    """`configs/` of the checkout, or the copy a wheel carries."""
    package = Path(__file__).parents[1]
    checkout = package.parent / "configs"
    return checkout if checkout.is_dir() else package / "configs"


def compose(name: str, overrides: list[str]) -> Config:
    """Return the resolved config `configs/<name>.yaml` with overrides, as plain dictionaries.

    Raises ConfigError for an unknown group, option, key or missing value, with the nearest names.

    >>> import las
    >>> config = las.compose("train", ["corpus=timit", "corpus.root=TIMIT", "model.listener.hidden_size=64"])
    >>> listener = config["model"]["listener"]
    >>> listener["hidden_size"], listener["cell"]["_target_"]
    (64, 'las.PlainLSTMCell')
    """
    from hydra.errors import HydraException
    from omegaconf import OmegaConf, open_dict
    from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

    directory = config_directory()
    overrides = groups.with_parts_of_a_search(overrides)
    groups.check_hydra(directory, name, overrides)
    groups.check_groups(directory, name, overrides)
    try:
        composed = folders.load(directory, name, overrides)
        groups.check_section(directory, name, overrides, composed)
        with open_dict(composed):
            del composed["hydra"]
        groups.check_deleted(directory, overrides)
        _require_plain(composed)
        resolved = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
    except MissingMandatoryValue as error:
        key = getattr(error, "full_key", None) or "a value"
        raise MissingValueError(f"{key} has no value: add {key}=... to the command", key) from error
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(explain(error, name, overrides, directory)) from error
    except RecursionError as error:
        where = _deepest(overrides, directory)
        raise ConfigError(f"{where}: lists and sections inside each other, too deep for a config") from error
    assert isinstance(resolved, dict)
    config = {str(key): value for key, value in resolved.items()}
    known = groups.own_keys(directory, name)
    for key in config.keys() - known:  # one that was added with `+` and that nothing reads
        nearest = suggest(key, {*known, "experiment"})
        raise ConfigError(f"{key}: there is no such key in configs/{name}.yaml.{nearest}")
    for key, value in flatten(config).items():
        sizes.check(key, value)
    groups.check_names(config)
    return config


def option(group: str, name: str) -> Config:
    """`configs/<group>/<name>.yaml` by itself, resolved, with the options of its defaults, and without Hydra.

    Raises ConfigError with the nearest names if there is none, and for defaults other than `name` and
    `/group@key: name`.
    """
    from omegaconf import OmegaConf

    resolved: Any = OmegaConf.to_container(_option(group, name), resolve=True)
    return dict(resolved)


def _option(group: str, name: str) -> Any:
    from omegaconf import OmegaConf

    known = folders.options(config_directory(), group)
    if name not in known:
        raise ConfigError(f"{group}={name!r}: there is no configs/{group}/{name}.yaml.{suggest(name, known)}")
    file: Any = OmegaConf.load(known[name])
    defaults = file.pop("defaults", [])
    layers = []
    for entry in defaults if "_self_" in defaults else [*defaults, "_self_"]:
        if isinstance(entry, str):
            layers.append(file if entry == "_self_" else _option(group, entry))
            continue
        ((mount, base),) = entry.items()
        other, _, key = str(mount).lstrip("/").partition("@")
        if not key:
            raise ConfigError(f"{known[name]}: defaults may be `- name` and `- /group@key: name`, not {mount}: {base}")
        layers.append({key: _option(other, base)})
    return OmegaConf.merge(*layers)


def _deepest(overrides: list[str], directory: Path) -> str:
    """Return the override with the most brackets, shortened; a phrase for config files where no override has many."""
    override = max(overrides, key=lambda each: each.count("[") + each.count("{"), default="")
    return f"{override[:60]}..." if override.count("[") + override.count("{") > 50 else f"an option of {directory}"


def _require_plain(composed: Any) -> None:
    """Raise ConfigError for an interpolation that calls a resolver: `${oc.env:HOME}` would read the environment."""
    from omegaconf import OmegaConf

    for key, value in flatten(OmegaConf.to_container(composed, resolve=False)).items():
        rest, count = str(value), 1
        while count:  # from the inside outwards
            rest, count = REFERENCE.subn("x", rest)
        if "${" in rest:
            raise ConfigError(f"{key}={value}: only other keys may be referred to (${{seed}}): write the value itself")


def flatten(config: Any, prefix: str = "") -> dict[str, Any]:
    """Flatten {"a": {"b": 1}} to {"a.b": 1}; lists count as values."""
    if not isinstance(config, dict) or not config:
        return {prefix: config}
    flat: dict[str, Any] = {}
    for key, value in config.items():
        flat |= flatten(value, f"{prefix}.{key}" if prefix else str(key))
    return flat


def differences(before: Config, after: Config) -> list[str]:
    """Lines `key: old -> new` for every key in which two configs differ."""
    old, new = flatten(before), flatten(after)
    missing = object()
    lines = []
    for key in sorted(old.keys() | new.keys()):
        a, b = old.get(key, missing), new.get(key, missing)
        if a != b:
            lines.append(f"{key}: {'(absent)' if a is missing else a} -> {'(absent)' if b is missing else b}")
    return lines


def build(config: Any, *positional: Any, where: str = "", kind: Any = Any) -> Any:
    """Build objects from plain data: every dictionary with a `_target_` becomes an instance of that class.

    Args:
        config: nested dictionaries, lists and values.
        positional: positional arguments of the outermost class, e.g. sizes that only the caller knows.
        where: the key under which the config lies, for error messages; it decides the `kind` of parts at the top.
        kind: annotation that the class has to fit; nested ones have to fit their parent's constructor.

    Returns the object, or with `_partial_: true` a `Factory` (a `functools.partial`) that the parent calls. Raises
    ConfigError for a class that is not allowed or of another kind, before it is imported or made, and for arguments
    that its constructor does not accept.
    """
    kind = base_of(where) if kind is Any else kind
    if isinstance(config, list):
        return [build(item, where=f"{where}[{index}]", kind=items_of(kind)) for index, item in enumerate(config)]
    if not isinstance(config, dict):
        sizes.check(where, config)
        return config
    cls = resolve(str(config["_target_"])) if "_target_" in config else None
    values = {key: value for key, value in config.items() if key not in ("_target_", "_partial_")}
    if cls is not None:
        require_kind(where or cls.__name__, cls, kind)
    built = {}
    for key, value in values.items():
        is_part = isinstance(value, (dict, list))
        inner = annotation_of(cls, key, where or cls.__name__, PARTS) if cls and is_part else items_of(kind)
        built[key] = build(value, where=f"{where}.{key}" if where else key, kind=inner)
    if cls is None:
        return built
    factory = checked(cls, built, where or cls.__name__, *positional)
    return factory if config.get("_partial_", False) else factory()


class Factory(functools.partial[Any]):
    """Constructor with bound keyword arguments. A call that it does not accept is raised as ConfigError naming `where`.

    An error of the constructor's own code is raised as it is, with a note of the key.
    """

    where = ""
    """Key of the section that the arguments come from."""

    def __call__(self, /, *positional: Any, **options: Any) -> Any:
        try:
            inspect.signature(self.func).bind(*self.args, *positional, **(self.keywords | options))
        except TypeError as error:
            raise ConfigError(f"{self.where}: {error}") from error
        except ValueError:  # a class written in C has no signature
            pass
        try:
            return super().__call__(*positional, **options)
        except ArgumentError as error:
            raise ConfigError(f"{self.where}.{error}") from error
        except (TypeError, ValueError) as error:
            if self.func.__module__.startswith("torch."):  # torch checks its values so
                raise ConfigError(f"{self.where}: {error}") from error
            raise


def checked(cls: type, values: Config, where: str, *positional: Any, kinds: Collection[Any] = BY_NAME) -> Factory:
    """Bind a section of the config to a constructor, after checking the names and types of its keys."""
    check(cls, values, where, kinds)
    factory = Factory(cls, *positional, **values)
    factory.where = where
    return factory
