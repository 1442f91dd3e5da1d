"""From configs to objects.

A config is plain data. Where it names a class (`_target_`), `build` checks the name against an allow-list of its own
before it imports anything, because the config inside a checkpoint comes from outside. Keyword arguments are checked
against the class's signature, so that a misspelt key is an error that names the nearest right ones.
"""

import functools
import importlib
import inspect
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import las
from las import arguments, choices, quoting
from las.errors import ArgumentError, ConfigError, suggest

PACKAGES = (
    "las.attention",
    "las.augment",
    "las.cells",
    "las.corpora",
    "las.ctc",
    "las.features",
    "las.front_end",
    "las.gradients",
    "las.listener",
    "las.lm.neural",
    "las.loss",
    "las.model",
    "las.nadam",
    "las.order",
    "las.ramp",
    "las.schedule",
    "las.scorers",
    "las.search",
    "las.soundness",
    "las.speller",
    "las.tokens",
    "las.weight_noise",
)
"""Modules (and modules below them) whose own classes a config may name."""

TORCH = ("torch.optim", "torch.nn")
"""Namespaces of torch whose optimisers and modules a config may name."""

RESOLVER = re.compile(r"\$\{[^{}]*:")
"""The beginning of an interpolation that calls something."""

Config = dict[str, Any]


def config_directory() -> Path:
    """`configs/` of the checkout, or the copy a wheel carries."""
    package = Path(las.__file__).parent
    checkout = package.parent / "configs"
    return checkout if checkout.is_dir() else package / "configs"


def compose(name: str, overrides: list[str]) -> Config:
    """The resolved config `configs/<name>.yaml` with overrides, as plain dictionaries.

    Raises ConfigError for an unknown group, option, key or missing value, with the nearest names.
    """
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

    directory = config_directory()
    choices.check_hydra(directory, name, overrides)
    choices.check_groups(directory, name, overrides)
    try:
        composed = _compose(directory, name, overrides)
        choices.check_deleted(directory, overrides)
        _require_plain(composed)
        resolved = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
    except MissingMandatoryValue as error:
        key = getattr(error, "full_key", None) or "a value"
        raise ConfigError(f"{key} has no value: add {key}=... to the command") from error
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(_explain(error, name, overrides, directory)) from error
    except RecursionError as error:
        where = _deepest(overrides, directory)
        raise ConfigError(f"{where}: lists and sections inside each other, too deep for a config") from error
    assert isinstance(resolved, dict)
    config = {str(key): value for key, value in resolved.items()}
    _check_keys(config, directory, name)
    arguments.check_names(config)
    return config


def _deepest(overrides: list[str], directory: Path) -> str:
    """The override with the most brackets, shortened; where none has many it is one of the files."""
    override = max(overrides, key=lambda each: each.count("[") + each.count("{"), default="")
    return f"{override[:60]}..." if override.count("[") + override.count("{") > 50 else f"a card of {directory}"


def _compose(directory: Path, name: str, overrides: list[str]) -> Any:
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir

    with initialize_config_dir(str(directory.resolve()), version_base="1.3"):
        return hydra_compose(name, overrides)


def _require_plain(composed: Any) -> None:
    """A config refers to its own keys at most: `${oc.env:HOME}` would read what is none of its business."""
    from omegaconf import OmegaConf

    for key, value in _flatten(OmegaConf.to_container(composed, resolve=False)).items():
        if RESOLVER.search(str(value)):
            raise ConfigError(f"{key}={value}: only other keys may be referred to (${{seed}}): write the value itself")


def _explain(error: Exception, name: str, overrides: list[str], directory: Path) -> str:
    """The nearest keys when one of the overrides names a key that is not there, else Hydra's own message."""
    from hydra.errors import HydraException

    if says := quoting.mistake(overrides) or quoting.ambiguous(overrides):
        return says
    for override in overrides:
        key = override.partition("=")[0]
        if "@" in key and str(error).startswith(f"Could not override '{key}'"):
            return choices.misplaced(directory, name, override, overrides)
    plain = [o for o in overrides if "=" in o and not o.startswith(("+", "~")) and not choices.is_group(o, directory)]
    try:
        composed = _compose(directory, name, [o for o in overrides if o not in plain])
    except HydraException:
        plain = []
    for override in plain:
        key = override.partition("=")[0]
        known = _keys(composed)
        section = key.partition(".")[0]
        if "checkpoint" in known and section not in known and (directory / section).is_dir():
            return f"{override}: {choices.of_checkpoint(name, section)}"
        if key not in known:
            return f"{override}: there is no key {key!r} in configs/{name}.yaml.{suggest(key, known)}"
    return re.split(r"\n\s*full_key", str(error))[0].strip()


def _keys(config: Any, prefix: str = "") -> set[str]:
    """Every key and section of a composed config as a dotted path, interpolations and missing values left alone."""
    from omegaconf import DictConfig, OmegaConf

    found: set[str] = set()
    for key in config:
        path = f"{prefix}{key}"
        found.add(path)
        section = not (OmegaConf.is_missing(config, key) or OmegaConf.is_interpolation(config, key))
        if section and isinstance(config[key], DictConfig):
            found |= _keys(config[key], f"{path}.")
    return found


def _flatten(config: Any, prefix: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} to {"a.b": 1}; lists are values."""
    if not isinstance(config, dict) or not config:
        return {prefix: config}
    flat: dict[str, Any] = {}
    for key, value in config.items():
        flat |= _flatten(value, f"{prefix}.{key}" if prefix else str(key))
    return flat


def differences(before: Config, after: Config) -> list[str]:
    """Lines `key: old -> new` for every key in which two configs differ."""
    old, new = _flatten(before), _flatten(after)
    missing = object()
    lines = []
    for key in sorted(old.keys() | new.keys()):
        a, b = old.get(key, missing), new.get(key, missing)
        if a != b:
            lines.append(f"{key}: {'(absent)' if a is missing else a} -> {'(absent)' if b is missing else b}")
    return lines


def resolve(target: str) -> type:
    """The class a `_target_` names.

    Raises ConfigError for anything that is not a class of this package's own building blocks, a `torch.optim`
    optimiser or a `torch.nn` module. Nothing outside the allow-list is imported.
    """
    module_name, _, class_name = target.rpartition(".")
    own = any(module_name == package or module_name.startswith(package + ".") for package in PACKAGES)
    if not own and module_name not in TORCH:
        raise ConfigError(
            f"_target_: {target} is not allowed: a config may name classes of {', '.join((*PACKAGES, *TORCH))}"
        )
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigError(f"_target_: {target}: there is no module {module_name} ({error})") from error
    found = vars(module).get(class_name)
    if not inspect.isclass(found) or (own and found.__module__ != module_name):
        classes = [
            n for n, v in vars(module).items() if inspect.isclass(v) and (not own or v.__module__ == module_name)
        ]
        raise ConfigError(f"_target_: {target}: {module_name} has no such class.{suggest(class_name, classes)}")
    if not own:
        import torch

        bases = (torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, torch.nn.Module)
        if not issubclass(found, bases):
            raise ConfigError(f"_target_: {target} is neither an optimiser nor a module")
    return found


def build(config: Any, *positional: Any, where: str = "") -> Any:
    """Objects from plain data: every dictionary with a `_target_` becomes an instance of that class.

    Args:
        config: nested dictionaries, lists and values.
        positional: positional arguments of the outermost class, e.g. sizes that only the caller knows.
        where: the key under which the config lies, for error messages.

    `_partial_: true` gives a `Maker` instead, a `functools.partial` that the parent calls.
    """
    if isinstance(config, list):
        return [build(item, where=f"{where}[{index}]") for index, item in enumerate(config)]
    if not isinstance(config, dict):
        return config
    values = {
        key: build(value, where=f"{where}.{key}" if where else key)
        for key, value in config.items()
        if key not in ("_target_", "_partial_")
    }
    if "_target_" not in config:
        return values
    cls = resolve(str(config["_target_"]))
    make = checked(cls, values, where or cls.__name__, *positional)
    return make if config.get("_partial_", False) else make()


class Maker(functools.partial[Any]):
    """A constructor with its keyword arguments; what it does not accept is an error of the config, `where` in it."""

    where = ""

    def __call__(self, /, *positional: Any, **options: Any) -> Any:
        try:
            return super().__call__(*positional, **options)
        except ArgumentError as error:
            raise ConfigError(f"{self.where}.{error}") from error
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{self.where}: {error}") from error


def checked(
    cls: type, values: Config, where: str, *positional: Any, kinds: Collection[Any] = arguments.BY_NAME
) -> Maker:
    """A constructor with a section of the config as its keyword arguments, their names and types checked."""
    arguments.check(cls, values, where, kinds)
    maker = Maker(cls, *positional, **values)
    maker.where = where
    return maker


def _check_keys(config: Config, directory: Path, name: str) -> None:
    """A key beside those of the card was added with `+` and has no reader."""
    known = choices.own_keys(directory, name)
    for key in config.keys() - known:
        nearest = suggest(key, {*known, "experiment"})
        raise ConfigError(f"{key}: there is no such key in configs/{name}.yaml.{nearest}")
