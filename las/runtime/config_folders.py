"""Own folders of cards beside the package's `configs/`: `--config-dir=DIR`, `hydra.searchpath=[DIR]`, `configs/` here.

An own folder has the same sub-folders (`DIR/cell/mine.yaml` is `cell@model.listener.cell=mine`). Its cards come before
the package's; a card of the same name takes the place of the package's, which `announcement` says. The configs of verbs
(`configs/train.yaml`) stay the package's.
"""

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from las.runtime.errors import ConfigError, nearest

SHOWN = 5
"""Names of cards that the announcement lists before it counts the others."""

_own: list[Path] = []


@contextmanager
def used(folders: Sequence[Path]) -> Iterator[None]:
    """Compose with own folders in the body; where two have the same card, that of the earlier folder counts."""
    before = own()
    _own[:] = folders
    try:
        yield
    finally:
        _own[:] = before


def own() -> tuple[Path, ...]:
    """The own folders in use, absolute."""
    return tuple(_own)


def cards(directory: Path, group: str) -> dict[str, Path]:
    """Files of the cards of a group by name, sorted: those of own folders and of the package's `directory`."""
    return _cards([*_own, directory], group)


def groups(directory: Path) -> list[str]:
    """Names of the config groups of the package's `directory` and of own folders, sorted."""
    return sorted({path.parent.name for folder in (*_own, directory) for path in folder.glob("*/*.yaml")})


def find(directory: Path, given: Sequence[str], working: Path) -> list[Path]:
    """The folders given, and `configs/` of the working directory, if that is not the package's and holds cards.

    Raises ConfigError for a folder that does not exist, holds no cards, or has a config with the name of a verb's.
    """
    folders = [_known(directory, Path(text.removeprefix("file://")), working) for text in given]
    beside = (working / "configs").absolute()
    if beside.is_dir() and not beside.samefile(directory) and beside not in folders:
        shared = any(_cards([beside], group) for group in groups(directory))
        if shared and not _of_verbs(directory, beside):
            folders.append(beside)
    return folders


def announcement(directory: Path, folders: Sequence[Path]) -> str:
    """One line about own folders: their cards, and which of the package's they hide."""
    added: list[str] = []
    hiding: list[str] = []
    for path in sorted(path for folder in folders for path in folder.glob("*/*.yaml")):
        name = f"{path.parent.name}/{path.stem}"
        (hiding if (directory / f"{name}.yaml").exists() else added).append(name)
    listed = f"own configs of {', '.join(map(str, folders))}: {_shortened(added) or 'no card of another name'}"
    return listed + (f"; in place of the package's own: {_shortened(hiding)}" if hiding else "")


@contextmanager
def hydra(directory: Path) -> Iterator[Any]:
    """Hydra, set up to compose files of the package's `directory` and of own folders."""
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.plugins import Plugins

    Plugins.instance().register(_search_path_plugin())
    with initialize_config_dir(str(directory.resolve()), job_name="las", version_base="1.3"):
        yield GlobalHydra.instance().hydra


@functools.cache
def _search_path_plugin() -> Any:
    """The plugin that puts own folders before the package's, for whatever starts Hydra in this process."""
    from hydra.core.config_search_path import ConfigSearchPath
    from hydra.plugins.search_path_plugin import SearchPathPlugin

    class OwnConfigFolders(SearchPathPlugin):
        """Own folders in Hydra's search path."""

        def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
            for folder in _own:
                search_path.prepend("own", f"file://{folder}", anchor="main")

    return OwnConfigFolders


def _cards(folders: Sequence[Path], group: str) -> dict[str, Path]:
    found = {path.stem: path for folder in reversed(folders) for path in (folder / group).glob("*.yaml")}
    return dict(sorted(found.items()))


def _known(directory: Path, folder: Path, working: Path) -> Path:
    folder = (working / folder).absolute()
    if not folder.is_dir():
        beside = [path.name for path in folder.parent.glob("*/")] if folder.parent.is_dir() else []
        near = f". Beside it are {', '.join(nearest(folder.name, beside))}" if beside else ""
        raise ConfigError(f"{folder}: there is no such folder of configs{near}")
    if taken := _of_verbs(directory, folder):
        raise ConfigError(
            f"{folder}: {', '.join(taken)} would hide the package's configs of verbs. What you change in one stands in "
            f"a card, for example {folder}/experiment/mine.yaml, chosen by +experiment=mine"
        )
    if not any(folder.glob("*/*.yaml")):
        raise ConfigError(
            f"{folder}: no cards in it: {folder}/cell/mine.yaml would be cell@model.listener.cell=mine. "
            "`las list` shows the groups"
        )
    return folder


def _of_verbs(directory: Path, folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.yaml") if (directory / path.name).exists())


def _shortened(names: Sequence[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")
