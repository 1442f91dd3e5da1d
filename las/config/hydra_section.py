"""Check of the section `hydra` of a composed config, made before Hydra acts on it.

Hydra does what that section says: it sets environment variables, instantiates callbacks, configures logging, starts
sweepers and launchers. A card of an own folder can set its keys, as any card can (`# @package _global_`, a group
`hydra/...`, `hydra: ...` in a card that is mounted there). So the section has to be that of the package's own files and
of the command line, key by key; from the command line a sweep takes the keys of `OF_SWEEPS`.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from las.config import folders
from las.config.groups import HYDRA
from las.runtime.errors import ConfigError

OF_SWEEPS = ("hydra/launcher", "hydra.launcher", "hydra/sweeper", "hydra.sweeper", "hydra.sweep")
"""Prefixes of the keys of Hydra's own that a sweep takes from the command line."""
WRITTEN_BY_HYDRA = ("runtime", "job.override_dirname", "job.config_name")
"""Keys that Hydra fills in when it has composed."""


def check(directory: Path, name: str, overrides: Sequence[str], composed: Any) -> None:
    """Raise ConfigError unless the section `hydra` of a `composed` config is the package's and the command line's."""
    from omegaconf import OmegaConf

    if not any(folders.own()):
        return
    of_hydra = [each for each in overrides if HYDRA.match(each)]
    expected = folders.load(directory, "sweep" if name == "sweep" else None, of_hydra, own=False)
    before, after = (OmegaConf.to_container(each.hydra, resolve=False) for each in (expected, composed))
    assert isinstance(before, dict) and isinstance(after, dict)
    before["overrides"] = {"hydra": of_hydra, "task": [each for each in overrides if each not in of_hydra]}
    for key, value in _changed(before, after):
        if key not in WRITTEN_BY_HYDRA and not key.startswith("runtime."):
            raise ConfigError(
                f"hydra.{key}={value}: a card sets this, and no card may set a key of Hydra's own, which could run "
                f"code: take it out of {_where()}. A sweep takes {', '.join(OF_SWEEPS)} on the command line"
            )


def _changed(before: Any, after: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys in which two sections differ, with the later value; None for one that is gone."""
    if not (isinstance(before, dict) and isinstance(after, dict)):
        if before != after:
            yield place, after
        return
    for key in {**before, **after}:
        yield from _changed(before.get(key), after.get(key), f"{place}.{key}" if place else str(key))


def _where() -> str:
    own = folders.own()
    return " or ".join(str(folder) for folder in (*own.named, *own.found)) or "the package's configs"
