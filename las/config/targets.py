"""Classes that a `_target_` names, by an allow-list: nothing else is imported, and no class of another kind is made."""

import collections.abc
import importlib
import inspect
import sys
import types
import typing
from typing import Any

from las.config import public, trust
from las.runtime.errors import ConfigError, suggest

TORCH = ("torch.optim", "torch.nn")
"""Namespaces of torch whose optimisers and modules a config may name."""


def resolve(target: str) -> type:
    """The class that a `_target_` names.

    Allowed are the classes of `las.config.public.COMPONENTS` (`las.Listener`), classes that the modules of
    `PACKAGES` define (`las.nn.cells.mine.MyLSTMCell`), optimisers of `torch.optim`, modules of `torch.nn`, and classes
    of trusted packages (`las.config.trust`). Raises ConfigError for everything else, without importing it.
    """
    module_name, _, class_name = target.rpartition(".")
    if module_name == "las":
        if class_name not in public.COMPONENTS:
            raise ConfigError(
                f"_target_: {target} is not allowed: las has no such component.{suggest(class_name, public.COMPONENTS)}"
            )
        return _component(class_name)
    if any(module_name.startswith(package + ".") for package in public.PACKAGES) or trust.trusts(module_name):
        return _own_class(target, module_name, class_name)
    if module_name in TORCH:
        return _torch_class(target, module_name, class_name)
    message = (
        f"_target_: {target} is not allowed: a config may name components of las (las.Listener), classes of your own "
        f"in a package that you trust, and {', '.join(TORCH)}.{suggest(class_name, public.COMPONENTS)}"
    )
    package = module_name.partition(".")[0]
    if package.isidentifier() and package not in sys.stdlib_module_names | {"las", "torch", "hydra"}:
        message += (
            f" If you trust the code of {package}: add --trust {package} to the command, set "
            f'{trust.VARIABLE}={package}, or call las.trust("{package}")'
        )
    raise ConfigError(message)


def require_kind(where: str, cls: type, annotation: Any) -> None:
    """Raise ConfigError unless a class is a subclass of what an annotation says, itself or as what a call returns.

    Annotations that cannot be checked (none, type variables, strings) accept every class.
    """
    if not _accepts(cls, annotation):
        wanted = " or ".join(dict.fromkeys(_kinds(annotation)))
        name = f"{cls.__module__}.{cls.__qualname__}"
        raise ConfigError(
            f"{where}: {name} is no {wanted}: this part has to be a subclass of it"
            if wanted
            else f"{where}: {name} stands where a plain value belongs"
        )


def items_of(annotation: Any) -> Any:
    """Annotation of the items of a sequence or the values of a mapping; Any for other annotations."""
    for each in _alternatives(annotation):
        if isinstance(origin := typing.get_origin(each), type) and issubclass(origin, collections.abc.Collection):
            return typing.get_args(each)[-1]
    return Any


def base_of(key: str) -> Any:
    """The base class of the part at the top of a config with this key; Any for other keys."""
    if key not in public.PARTS:
        return Any
    module, _, name = public.PARTS[key].rpartition(".")
    return getattr(importlib.import_module(module), name)


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    return typing.get_args(annotation) if is_union else (annotation,)


def _accepts(cls: type, annotation: Any) -> bool:
    return any(_is_a(cls, each) for each in _alternatives(annotation))


def _is_a(cls: type, annotation: Any) -> bool:
    if typing.get_origin(annotation) is collections.abc.Callable:
        return _accepts(cls, typing.get_args(annotation)[-1])
    if annotation in (Any, inspect.Parameter.empty) or not inspect.isclass(annotation):
        return True
    if getattr(annotation, "_is_protocol", False):
        methods = [name for name, value in vars(annotation).items() if inspect.isfunction(value)]
        own = {name for base in cls.__mro__ for name in vars(base)}
        return all(name in own for name in methods if name == "__call__" or not name.startswith("_"))
    return issubclass(cls, annotation)


def _kinds(annotation: Any) -> list[str]:
    found = []
    for each in _alternatives(annotation):
        if typing.get_origin(each) is collections.abc.Callable:
            found += _kinds(typing.get_args(each)[-1])
        elif inspect.isclass(each) and each.__module__ != "builtins":
            found.append(f"{each.__module__}.{each.__qualname__}")
    return found


def _component(class_name: str) -> type:
    component: type = getattr(importlib.import_module(public.COMPONENTS[class_name]), class_name)
    return component


def _own_class(target: str, module_name: str, class_name: str) -> type:
    """The class of a module; a public one of las is found where it lies now."""
    has_moved = module_name.startswith("las.") and class_name in public.COMPONENTS
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if has_moved:
            return _component(class_name)
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # a module that this one imports
        raise ConfigError(
            f"_target_: {target}: there is no module {module_name} ({error}): install its package, or name the folder "
            "that it lies in in PYTHONPATH"
        ) from error
    classes = {name: value for name, value in vars(module).items() if inspect.isclass(value)}
    own = {
        name: value
        for name, value in classes.items()
        if value.__module__ == module_name or trust.trusts(value.__module__)
    }
    if class_name not in own and has_moved:
        return _component(class_name)
    if class_name not in own:
        raise ConfigError(f"_target_: {target}: {module_name} has no such class.{suggest(class_name, own)}")
    return own[class_name]


def _torch_class(target: str, module_name: str, class_name: str) -> type:
    import torch

    torch_class = vars(importlib.import_module(module_name)).get(class_name)
    if not inspect.isclass(torch_class):
        raise ConfigError(f"_target_: {target}: {module_name} has no such class")
    bases = (torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, torch.nn.Module)
    if not issubclass(torch_class, bases):
        raise ConfigError(f"_target_: {target} is neither an optimiser nor a module")
    return torch_class
