"""Packages of own code whose classes a config may name: `--trust mypkg` on every verb, LAS_TRUST, `las.trust`.

Only the person who types the command or writes the program trusts a package. No checkpoint, bundle, run folder or
folder of configs can: loading one that names a class of another package says what to type. The names are kept in the
environment, so that every process that this one starts, of a sweep or a launcher, trusts the same packages.
"""

import importlib.metadata
import os
import sys
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any

from las.runtime.errors import ConfigError

VARIABLE = "LAS_TRUST"
"""Environment variable with the names of trusted packages, separated by commas."""
PLUGINS = "las.plugins"
"""Group of entry points by which an installed package says that it has classes for las; it grants nothing."""


class trust:
    """Trust packages of one's own code, so that a config may name their classes: a call, or a context manager.

    >>> import las
    >>> with las.trust("mypkg"):
    ...     config = las.compose("train", ["++model.listener.cell._target_=mypkg.cells.MyCell"])

    Without `with` they are trusted until the process ends. Raises ConfigError for what is not the name of a package,
    and for parts of Python and las.
    """

    def __init__(self, *packages: str) -> None:
        self._before = os.environ.get(VARIABLE)
        added = split(packages, "trust")
        if added:
            os.environ[VARIABLE] = ",".join(dict.fromkeys([*names(), *added]))

    def __enter__(self) -> "trust":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._before is None:
            os.environ.pop(VARIABLE, None)
        else:
            os.environ[VARIABLE] = self._before


def names() -> list[str]:
    """The trusted packages. Raises ConfigError for a wrong value of LAS_TRUST."""
    return split([os.environ.get(VARIABLE, "")], VARIABLE)


def split(texts: Sequence[str], where: str) -> list[str]:
    """The names in texts, separated by commas. Raises ConfigError for what cannot be a package of one's own code."""
    found = [name.strip() for text in texts for name in text.split(",") if name.strip()]
    for name in found:
        if not all(part.isidentifier() for part in name.split(".")):
            raise ConfigError(f"{where}: {name!r} is not the name of a package, for example mypkg")
        if name.partition(".")[0] in sys.stdlib_module_names | {"las"}:
            raise ConfigError(f"{where}: {name} is a part of Python or las, not a package of one's own code")
    return found


def trusts(module: str) -> bool:
    """Return whether a module belongs to a trusted package."""
    return any(module == name or module.startswith(f"{name}.") for name in names())


def used(config: Any) -> dict[str, str | None]:
    """Trusted packages whose classes a config names, with their versions; None for a version that is not known."""
    packages = {target.partition(".")[0] for target in _targets(config) if trusts(target.rpartition(".")[0])}
    if not packages:
        return {}
    distributions = importlib.metadata.packages_distributions()
    return {
        package: next((importlib.metadata.version(name) for name in distributions.get(package, ())), None)
        for package in sorted(packages)
    }


def available() -> list[str]:
    """Names of the installed packages that say they have classes for las, by their entry points; none is imported."""
    return sorted({point.value.partition(":")[0] for point in importlib.metadata.entry_points(group=PLUGINS)})


def _targets(config: Any) -> Iterator[str]:
    if isinstance(config, dict):
        if isinstance(target := config.get("_target_"), str):
            yield target
        config = list(config.values())
    for inner in config if isinstance(config, list) else ():
        yield from _targets(inner)
