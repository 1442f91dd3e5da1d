"""Classes that a `_target_` names, by an allow-list: nothing else is imported."""

import importlib
import inspect

from las.runtime import public
from las.runtime.errors import ConfigError, suggest

TORCH = ("torch.optim", "torch.nn")
"""Namespaces of torch whose optimisers and modules a config may name."""


def resolve(target: str) -> type:
    """The class that a `_target_` names.

    Allowed are the classes of `las.runtime.public.COMPONENTS` (`las.Listener`), classes that the modules of
    `OPEN_PACKAGES` define (`las.nn.cells.mine.MyLSTMCell`), optimisers of `torch.optim` and modules of `torch.nn`.
    Raises ConfigError for everything else, without importing it.
    """
    module_name, _, class_name = target.rpartition(".")
    if module_name == "las":
        if class_name not in public.COMPONENTS:
            raise ConfigError(
                f"_target_: {target} is not allowed: las has no such component.{suggest(class_name, public.COMPONENTS)}"
            )
        component: type = getattr(importlib.import_module(public.COMPONENTS[class_name]), class_name)
        return component
    if any(module_name == package or module_name.startswith(package + ".") for package in public.OPEN_PACKAGES):
        return _own_class(target, module_name, class_name)
    if module_name in TORCH:
        return _torch_class(target, module_name, class_name)
    raise ConfigError(
        f"_target_: {target} is not allowed: a config may name components of las (las.Listener), your own classes in "
        f"{', '.join(public.OPEN_PACKAGES)}, and {', '.join(TORCH)}.{suggest(class_name, public.COMPONENTS)}"
    )


def _own_class(target: str, module_name: str, class_name: str) -> type:
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigError(f"_target_: {target}: there is no module {module_name} ({error})") from error
    classes = {name: value for name, value in vars(module).items() if inspect.isclass(value)}
    own = {name: value for name, value in classes.items() if value.__module__ == module_name}
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
