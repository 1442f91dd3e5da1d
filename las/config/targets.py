"""Classes that a `_target_` names, by an allow-list: nothing else is imported, and no class of another kind is made.

Packages of one's own code join the list by `--trust mypkg` on every verb, LAS_TRUST or `las.trust`. Only the person who
types the command or writes the program trusts a package. No checkpoint, bundle, run folder or folder of configs can:
loading one that names a class of another package says what to type. The names are kept in the environment, so that
every process that this one starts, of a sweep or a launcher, trusts the same packages.
"""

import collections.abc
import contextlib
import importlib
import importlib.metadata
import inspect
import os
import sys
import types
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from las.config import folders, public
from las.runtime.errors import ConfigError, suggest

TORCH = ("torch.optim", "torch.nn")
"""Namespaces of torch whose optimisers and modules a config may name."""
TRUST_VARIABLE = "LAS_TRUST"
"""Environment variable with the names of trusted packages, separated by commas."""
PLUGINS = "las.plugins"
"""Group of entry points by which an installed package says that it has classes for las; it grants nothing."""


def resolve(target: str) -> type:
    """Return the class that a `_target_` names.

    Allowed are the classes of `las.config.public.COMPONENTS` (`las.Listener`), classes that the modules of
    `PACKAGES` define (`las.nn.cells.mine.MyLSTMCell`), optimisers of `torch.optim`, modules of `torch.nn`, and classes
    of trusted packages (`trust`). Raises ConfigError for everything else, without importing it.
    """
    module_name, _, class_name = target.rpartition(".")
    if module_name == "las":
        if class_name not in public.COMPONENTS:
            raise ConfigError(
                f"_target_: {target} is not allowed: las has no such component.{suggest(class_name, public.COMPONENTS)}"
            )
        return _component(class_name)
    if any(module_name.startswith(package + ".") for package in public.PACKAGES) or is_trusted(module_name):
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
            f'{TRUST_VARIABLE}={package}, or call las.trust("{package}")'
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
    """Return the base class of the part at the top of a config with this key; Any for other keys."""
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
    """Return the class of a module; a public one of las is found where it lies now."""
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
        if value.__module__ == module_name or is_trusted(value.__module__)
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


class trust:
    """Trust packages of one's own code, so that a config may name their classes: a call, or a context manager.

    >>> import las
    >>> with las.trust("mypkg"):
    ...     config = las.compose("train", ["++model.listener.cell._target_=mypkg.cells.MyCell"])

    Without `with` they are trusted until the process ends. Raises ConfigError for what is not the name of a package,
    and for parts of Python and las.
    """

    def __init__(self, *packages: str) -> None:
        self._before = os.environ.get(TRUST_VARIABLE)
        added = package_names(packages, "trust")
        if added:
            os.environ[TRUST_VARIABLE] = ",".join(dict.fromkeys([*trusted(), *added]))

    def __enter__(self) -> "trust":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._before is None:
            os.environ.pop(TRUST_VARIABLE, None)
        else:
            os.environ[TRUST_VARIABLE] = self._before


class Surroundings(NamedTuple):
    """Working directory, user config folders and trusted packages of this process, for one that it starts or borrows.

    A pool keeps its processes between two sweeps, with the surroundings of the first.
    """

    directory: Path
    folders: folders.Folders
    trusted: tuple[str, ...]

    @classmethod
    def here(cls) -> "Surroundings":
        """Surroundings of this process."""
        return cls(Path.cwd(), folders.own(), tuple(trusted()))

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Work in these surroundings within the block."""
        with contextlib.chdir(self.directory), folders.used(self.folders), trust(*self.trusted):
            yield


def trusted() -> list[str]:
    """Return the trusted packages. Raises ConfigError for a wrong value of LAS_TRUST."""
    return package_names([os.environ.get(TRUST_VARIABLE, "")], TRUST_VARIABLE)


def package_names(texts: Sequence[str], where: str) -> list[str]:
    """Return the names in texts, separated by commas. Raises ConfigError for what cannot be a package of own code."""
    found = [name.strip() for text in texts for name in text.split(",") if name.strip()]
    for name in found:
        if not all(part.isidentifier() for part in name.split(".")):
            raise ConfigError(f"{where}: {name!r} is not the name of a package, for example mypkg")
        if name.partition(".")[0] in sys.stdlib_module_names | {"las"}:
            raise ConfigError(f"{where}: {name} is a part of Python or las, not a package of one's own code")
    return found


def is_trusted(module: str) -> bool:
    """Return whether a module belongs to a trusted package."""
    return any(module == name or module.startswith(f"{name}.") for name in trusted())


def trusted_in(config: Any) -> dict[str, str | None]:
    """Trusted packages whose classes a config names, with their versions; None for a version that is not known."""
    packages = {target.partition(".")[0] for target in _targets(config) if is_trusted(target.rpartition(".")[0])}
    if not packages:
        return {}
    distributions = importlib.metadata.packages_distributions()
    return {
        package: next((importlib.metadata.version(name) for name in distributions.get(package, ())), None)
        for package in sorted(packages)
    }


def installed() -> list[str]:
    """Names of the installed packages that say they have classes for las, by their entry points; none is imported."""
    return sorted({point.value.partition(":")[0] for point in importlib.metadata.entry_points(group=PLUGINS)})


def _targets(config: Any) -> Iterator[str]:
    if isinstance(config, dict):
        if isinstance(target := config.get("_target_"), str):
            yield target
        config = list(config.values())
    for inner in config if isinstance(config, list) else ():
        yield from _targets(inner)
