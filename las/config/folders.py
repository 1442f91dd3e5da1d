"""User config folders, besides the package's `configs/`: `--config-dir=DIR`, `hydra.searchpath=[DIR]`, `configs/` here.

A user folder has the same sub-folders (`DIR/cell/mine.yaml` is `cell@model.listener.cell=mine`). One that the command
names is searched before the package's `configs/`, so that its options replace those of the same name. `configs/` in the
working directory, which nobody named, is searched after it and cannot hide an option of the package; `announcement`
says which options there are, and which are hidden. The configs of verbs (`configs/train.yaml`) stay the package's.

Hydra composes here without its global state: a program with a Hydra of its own finds it unchanged.
"""

import functools
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from las.runtime.errors import ConfigError, first_of, nearest

SHOWN = 5
"""Names of options that the announcement lists before it counts the others."""


class Folders(NamedTuple):
    """User folders, absolute: those that the command names, and those found in the working directory."""

    named: tuple[Path, ...] = ()
    found: tuple[Path, ...] = ()

    def around(self, directory: Path) -> list[Path]:
        """All folders of options in the order in which they count, with the package's `directory`."""
        return [*self.named, directory, *self.found]


_own = Folders()
_composing = threading.RLock()
"""Held while Hydra composes: the version that it behaves like is global."""


@contextmanager
def used(folders: Folders) -> Iterator[None]:
    """Compose with user folders in the body; where two have the same option, that of the earlier folder counts."""
    global _own
    before, _own = _own, folders
    try:
        yield
    finally:
        _own = before


def own() -> Folders:
    """Return the user folders in use."""
    return _own


def options(directory: Path, group: str) -> dict[str, Path]:
    """Files of the options of a group by name, sorted: those of user folders and of the package's `directory`."""
    return _cards(_own.around(directory), group)


def groups(directory: Path) -> list[str]:
    """Names of the config groups of the package's `directory` and of user folders, sorted."""
    return sorted({path.parent.name for folder in _own.around(directory) for path in folder.glob("*/*.yaml")})


def find(directory: Path, given: Sequence[str], working: Path) -> Folders:
    """Return the folders given, and `configs/` of the working directory, if that is not the package's and holds
    options.

    Raises ConfigError for a given folder that does not exist, holds no options, has a config with the name of a verb's
    or groups of Hydra's own. Such a `configs/` is another program's, and left alone.
    """
    named = tuple(_known(directory, Path(text.removeprefix("file://")), working) for text in given)
    beside = (working / "configs").absolute()
    if not beside.is_dir() or any(beside.samefile(folder) for folder in (directory, *named)):
        return Folders(named)
    shared = any(_cards([beside], group) for group in groups(directory))
    of_another = _of_verbs(directory, beside) or (beside / "hydra").exists()
    return Folders(named, (beside,) if shared and not of_another else ())


def announcement(directory: Path, folders: Folders) -> str:
    """One line about user folders: their options, which of the package's they hide, and which the package's hide."""
    hiding = _twice(directory, folders.named)
    hidden = _twice(directory, folders.found)
    every = [*folders.named, *folders.found]
    added = sorted({_name(path) for folder in every for path in folder.glob("*/*.yaml")} - {*hiding, *hidden})
    line = f"own configs of {', '.join(map(str, every))}: {first_of(added, SHOWN) or 'no option of another name'}"
    if hiding:
        line += f"; in place of the package's own: {first_of(hiding, SHOWN)}"
    if hidden:
        line += (
            f"; left out, because the package has options of these names: {first_of(hidden, SHOWN)} "
            f"(--config-dir={folders.found[0].name} puts yours in their place)"
        )
    return line


def load(
    directory: Path, name: str | None, overrides: Sequence[str], *, own: bool = True, multirun: bool = False
) -> Any:
    """Compose a config of the package's `directory`, Hydra's own section included.

    Args:
        directory: `configs/` of the package.
        name: the config; None composes Hydra's own section alone.
        overrides: as they were typed.
        own: with the user folders in use.
        multirun: as Hydra does for a whole sweep, without the keys that have several values.

    Raises the errors of Hydra and omegaconf, and ConfigError for files that they do not expect.
    """
    from hydra.errors import HydraException
    from hydra.types import RunMode
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    mode = RunMode.MULTIRUN if multirun else RunMode.RUN
    folders = _own if own else Folders()
    try:
        with _composing, _like_hydra_1_3():
            return _loader(directory, folders).load_configuration(name, list(overrides), mode, from_shell=False)
    except (HydraException, OmegaConfBaseException):
        raise
    except (YAMLError, LookupError, ValueError, TypeError, AttributeError) as error:
        where = " or ".join(map(str, folders.around(directory)))
        raise ConfigError(f"an option in {where} cannot be used: {' '.join(str(error).split())}") from error


@contextmanager
def hydra(directory: Path) -> Iterator[Any]:
    """Return a Hydra of files of the package's `directory` and of user folders, for sweeps and Hydra's own flags."""
    from hydra._internal.hydra import Hydra

    with _like_hydra_1_3():
        yield Hydra("las", _loader(directory, _own))


@contextmanager
def plain_errors() -> Iterator[None]:
    """Raise Hydra's and omegaconf's errors as ConfigError."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    try:
        yield
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(str(error).partition("\n")[0]) from error


@contextmanager
def _like_hydra_1_3() -> Iterator[None]:
    """Behave as Hydra 1.3 does in the body, whatever version a Hydra of the caller's asked for."""
    from hydra import version

    base = version.VersionBase.instance()
    before = base.version_base
    version.setbase("1.3")
    try:
        yield
    finally:
        base.version_base = before


def _loader(directory: Path, folders: Folders) -> Any:
    """Return a loader for the files as they are now."""
    around = [(path, path.stat()) for folder in folders.around(directory) for path in sorted(folder.rglob("*.yaml"))]
    state = tuple((str(path), status.st_mtime_ns, status.st_size) for path, status in around)
    return _loader_of(directory, folders, state)


@functools.lru_cache(maxsize=4)
def _loader_of(directory: Path, folders: Folders, state: tuple[tuple[str, int, int], ...]) -> Any:
    from hydra._internal.config_search_path_impl import ConfigSearchPathImpl
    from hydra.core.plugins import Plugins

    from las.config.loading import Loader

    Plugins.instance()  # registers the kinds of sources and the launchers
    path = ConfigSearchPathImpl()
    path.append("hydra", "pkg://hydra.conf")
    for folder in folders.named:
        path.append("own", f"file://{folder}")
    path.append("main", f"file://{directory.resolve()}")
    for folder in folders.found:
        path.append("own", f"file://{folder}")
    path.append("schema", "structured://")
    return Loader(path)


def _cards(folders: Sequence[Path], group: str) -> dict[str, Path]:
    found = {path.stem: path for folder in reversed(folders) for path in (folder / group).glob("*.yaml")}
    return dict(sorted(found.items()))


def _name(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def _twice(directory: Path, folders: Sequence[Path]) -> list[str]:
    """Options in folders that have the name of one of the package's."""
    names = {_name(path) for folder in folders for path in folder.glob("*/*.yaml")}
    return sorted(name for name in names if (directory / f"{name}.yaml").exists())


def _known(directory: Path, folder: Path, working: Path) -> Path:
    folder = (working / folder).absolute()
    if not folder.is_dir():
        beside = [path.name for path in folder.parent.glob("*/")] if folder.parent.is_dir() else []
        near = f". Beside it are {', '.join(nearest(folder.name, beside))}" if beside else ""
        raise ConfigError(f"{folder}: there is no such folder of configs{near}")
    if taken := _of_verbs(directory, folder):
        raise ConfigError(
            f"{folder}: {', '.join(taken)} would hide the package's configs of verbs. What you change in one stands in "
            f"an option, for example {folder}/experiment/mine.yaml, chosen by +experiment=mine"
        )
    if (folder / "hydra").exists():
        raise ConfigError(
            f"{folder}/hydra: no option may set a key of Hydra's own, which could run code: take this folder out. A "
            "sweep takes hydra/launcher=... and hydra.launcher.KEY=... on the command line"
        )
    if not any(folder.glob("*/*.yaml")):
        raise ConfigError(
            f"{folder}: no options in it: {folder}/cell/mine.yaml would be cell@model.listener.cell=mine. "
            "`las list` shows the groups"
        )
    return folder


def _of_verbs(directory: Path, folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.yaml") if (directory / path.name).exists())
