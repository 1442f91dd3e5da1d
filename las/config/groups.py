"""Checks of the config groups and keys of a command, made before Hydra's: its messages do not say what to type.

Overrides that Hydra would accept without any effect, and deletions of keys that are read, are refused as well.
"""

import functools
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from las.config import folders
from las.runtime.errors import ConfigError, nearest, suggest

HYDRA = re.compile(r"[+~]*hydra\b")
"""The beginning of a key of Hydra's own."""
OF_SWEEPS = ("hydra/launcher", "hydra.launcher", "hydra/sweeper", "hydra.sweeper", "hydra.sweep")
"""Prefixes of the keys of Hydra's own that a sweep takes from the command line."""
WRITTEN_BY_HYDRA = ("runtime", "job.override_dirname", "job.config_name")
"""Keys that Hydra fills in when it has composed."""
GLOBAL = "# @package _global_"
"""The first line of an option that sets keys anywhere in a config."""
OPTIONAL = re.compile(r"(scorer|front_end|layer)@.*|(validation_)?search\.[a-z]\w*|model\.listener\.(front_end|layer)")
"""Keys that `~key` may remove from a config."""
PLAIN = ("true", "false", "null")
"""Values that are no names."""
PARTS_OF_A_SEARCH = {"lexicon": ("lexicon", "path"), "hot_words": ("hot_words", "words")}
"""Parts of a search that one value describes, with option and key: `search.lexicon=words.txt` adds the option."""
PATH_HINTS = {"name": "run_dir=... says where a run lies", "corpus.name": "corpus.root=... says where a corpus lies"}
"""Keys whose values name folders, with a hint for users who meant a path."""


def check_hydra(directory: Path, name: str, overrides: list[str]) -> None:
    """Raise ConfigError for Hydra's own keys, which only sweeps (`las.cli.sweep`) use."""
    for override in overrides:
        key, _, value = override.partition("=")
        if not HYDRA.match(key):
            continue
        message = f"{override}: Hydra's own keys do nothing here: they are for sweeps (las train -m)"
        if key.endswith(".dir") and "run_dir" in own_keys(directory, name):
            message += f". A run lies where run_dir={value} says"
        raise ConfigError(message)


def check_section(directory: Path, name: str, overrides: Sequence[str], composed: Any) -> None:
    """Raise ConfigError unless the section `hydra` of a `composed` config is the package's and the command line's.

    Hydra does what that section says: it sets environment variables, instantiates callbacks, configures logging, starts
    sweepers and launchers. An option of one's own can set its keys, as any option can (`# @package _global_`, a group
    `hydra/...`), so it is compared key by key before Hydra acts on it.
    """
    from omegaconf import OmegaConf

    if not any(own := folders.own()):
        return
    of_hydra = [each for each in overrides if HYDRA.match(each)]
    expected = folders.load(directory, "sweep" if name == "sweep" else None, of_hydra, own=False)
    before, after = (OmegaConf.to_container(each.hydra, resolve=False) for each in (expected, composed))
    assert isinstance(before, dict) and isinstance(after, dict)
    before["overrides"] = {"hydra": of_hydra, "task": [each for each in overrides if each not in of_hydra]}
    for key, value in _changed(before, after):
        if key not in WRITTEN_BY_HYDRA and not key.startswith("runtime."):
            raise ConfigError(
                f"hydra.{key}={value}: an option sets this, and none may set a key of Hydra's own, which could run "
                f"code: take it out of {' or '.join(map(str, own.named + own.found))}. A sweep takes "
                f"{', '.join(OF_SWEEPS)} on the command line"
            )


def _changed(before: Any, after: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys in which two sections differ, with the later value; None for one that is gone."""
    if not (isinstance(before, dict) and isinstance(after, dict)):
        if before != after:
            yield place, after
        return
    for key in {**before, **after}:
        yield from _changed(before.get(key), after.get(key), f"{place}.{key}" if place else str(key))


def check_deleted(directory: Path, overrides: list[str]) -> None:
    """Raise ConfigError for a `~key` that is not optional, with the override that replaces it instead."""
    for override in overrides:
        key = override.removeprefix("~").partition("=")[0]
        if not override.startswith("~") or OPTIONAL.fullmatch(key):
            continue
        group, instead = key.partition("@")[0], f"write {key}=... for another value"
        if names := folders.options(directory, group):
            instead = f"choose {key}={'none' if 'none' in names else '...'} (all: {', '.join(names)})"
        raise ConfigError(f"{override}: only scorers, front ends and layers can be left out: {instead}")


def check_unknown_group(directory: Path, override: str) -> None:
    """Raise ConfigError for a place with a group that does not exist, `sell@model.listener.cell=lstm`, with the group
    that has such an option."""
    key, _, value = override.partition("=")
    group, at, place = key.lstrip("+/").partition("@")
    if not at or group in (groups := folders.groups(directory)):
        return
    sign, near = "+" if key.startswith("+") else "", nearest(group, holders(directory, value))
    works = f" Type {sign}{near[0]}@{place}={value}." if near else ""
    said = suggest(group, near or groups)
    raise ConfigError(f"{override}: there is no group {group!r}.{said}{works} `las list` shows the groups")


def holders(directory: Path, name: str) -> list[str]:
    """Return the groups that have an option of this name."""
    return [group for group in folders.groups(directory) if name in folders.options(directory, group)]


def check_groups(directory: Path, name: str, overrides: list[str]) -> None:
    """Raise ConfigError for group choices that do not exist or stand in the wrong place, with what to type instead."""
    groups = folders.groups(directory)
    for override in overrides:
        key, separator, value = override.partition("=")
        if key.startswith("~"):
            continue
        if not separator or not key:
            raise ConfigError(f"{override!r} is not an override: write key=value, for example name=trial")
        if "@" not in key and (group := group_of_part(directory, key, value)):
            raise ConfigError(f"{override}: this part is chosen from configs/{group}: write {group}@{override}")
        bare = key.lstrip("+")
        group = bare.partition("@")[0].lstrip("/")
        check_unknown_group(directory, override)
        if group not in groups or value.startswith(("{", "[")):
            continue
        everywhere = _is_global(directory, group)
        if everywhere and not key.startswith("+"):
            raise ConfigError(f"{override}: this is added, it replaces nothing: write +{override}")
        names = folders.options(directory, group)
        if value not in names:
            raise ConfigError(
                f"{override}: there is no configs/{group}/{value}.yaml.{suggest(value, names)}"
                f" (all: {', '.join(names)})"
            )
        if bare == group and not everywhere and group not in own_keys(directory, name):
            raise ConfigError(misplaced(directory, name, override, overrides))


def group_of_part(directory: Path, key: str, value: str) -> str:
    """Return the group of the part that a key names, `cell` of model.listener.cell and `search` of validation_search,
    if the value is one of its options; else nothing."""
    section, _, last = key.rpartition(".")
    groups = holders(directory, value) if value.isidentifier() and value not in PLAIN else []
    if last in groups or not groups:
        return last if section and last in groups else ""
    files = [*directory.glob("*.yaml"), *_option_files(directory)]
    mounts = [mount.lstrip("/").partition("@") for path in files for mount, _ in _mounts(path, path.stat().st_mtime_ns)]
    return next((group for group, _, place in mounts if group in groups and place.rpartition(".")[2] == last), "")


def with_parts_of_a_search(overrides: list[str]) -> list[str]:
    """Return overrides with `search.lexicon=words.txt` written out: `+scorer@search.lexicon=lexicon` and its path."""
    written: list[str] = []
    for override in overrides:
        key, _, value = override.partition("=")
        section, _, part = key.lstrip("+").partition(".")
        if section in ("search", "validation_search") and part in PARTS_OF_A_SEARCH and not key.startswith("~"):
            option, inner = PARTS_OF_A_SEARCH[part]
            written += [f"+scorer@{section}.{part}={option}", f"{section}.{part}.{inner}={value}"]
        else:
            written.append(override)
    return written


def misplaced(directory: Path, name: str, override: str, overrides: list[str]) -> str:
    """Message for a group chosen where a config has no place for it (`cell=lstm`), with the places it has."""
    bare, _, value = override.lstrip("+").partition("=")
    group = bare.partition("@")[0]
    if found := places(directory, name, group, chosen(directory, name, overrides), value):
        return f"{override}: say of which part: {' or '.join(f'{place}={value}' for place in sorted(found))}"
    if "checkpoint" in own_keys(directory, name):
        return f"{override}: {of_checkpoint(name, group)}"
    return f"{override}: configs/{name}.yaml has no place for {group}"


def places(directory: Path, name: str, group: str, composed: Sequence[str], option: str = "") -> list[str]:
    """Keys that choose an option of a group in a config: of the `composed` ones (`cell@model.listener.cell`), or else
    those to add (`+scorer@search.coverage`), if other options mount this `option` there, only these.
    """
    if _is_global(directory, group):
        return [f"+{group}"]
    if mounted := [key for key in composed if key.partition("@")[0] == group]:
        return mounted
    own = own_keys(directory, name)
    return [f"+{group}@{place}" for place in _places(directory, group, option) if place.partition(".")[0] in own]


def of_checkpoint(name: str, section: str) -> str:
    """Message for a key that was decided when the checkpoint was trained."""
    return f"{name} uses the {section} of the checkpoint: leave this key out"


def is_group(override: str, directory: Path) -> bool:
    """Return whether an override chooses an option of a config group."""
    return bool(folders.options(directory, override.partition("=")[0].lstrip("+/").partition("@")[0]))


@functools.cache
def own_keys(directory: Path, name: str) -> frozenset[str]:
    """Keys of a verb's config file, the groups it mounts, and the keys of the files it includes; read once."""
    from omegaconf import OmegaConf

    file = OmegaConf.load(directory / f"{name}.yaml")
    known = {str(key) for key in file} - {"defaults"}
    for entry in file.defaults if "defaults" in file else []:
        if not isinstance(entry, str):
            known |= {group.partition("@")[2] or group for group in map(str, entry)}
        elif entry != "_self_":
            known |= own_keys(directory, entry)
    return frozenset(known)


def chosen(directory: Path, name: str, overrides: Sequence[str]) -> list[str]:
    """Return groups of a config with their places, `cell@model.listener.cell`, for the chosen model and corpus."""
    own = own_keys(directory, name)
    choices = [each for each in overrides if each.lstrip("+").partition("=")[0] in own and is_group(each, directory)]
    return [str(key) for key in folders.load(directory, name, choices).hydra.runtime.choices]


def _places(directory: Path, group: str, option: str) -> list[str]:
    """Places where other config files mount this one (`search.coverage`), or else any of its group."""
    mounted: dict[str, str] = {}
    for path in _option_files(directory):
        for mount, name in _mounts(path, path.stat().st_mtime_ns):
            if mount.startswith(f"/{group}@"):
                mounted[f"{path.parent.name}.{mount.partition('@')[2]}"] = name
    return [place for place, name in mounted.items() if name == option] or list(mounted)


def _option_files(directory: Path) -> list[Path]:
    return [path for each in folders.groups(directory) for path in folders.options(directory, each).values()]


@functools.cache
def _mounts(path: Path, changed_ns: int) -> list[tuple[str, Any]]:
    """Options of other groups in the defaults of a file that was changed last at this time: their keys and names."""
    from omegaconf import OmegaConf

    values: Any = OmegaConf.load(path)
    return [mount for entry in values.get("defaults", []) if not isinstance(entry, str) for mount in entry.items()]


def _is_global(directory: Path, group: str) -> bool:
    """Return whether the options of a group set keys anywhere in the config, so that they need no place.

    Raises ConfigError for an option of the user of such a group that does not begin like the package's.
    """
    files = folders.options(directory, group).values()
    lacking = [path for path in files if not path.read_text("utf-8").startswith(GLOBAL)]
    for path in lacking:
        if path.read_text("utf-8-sig").startswith(GLOBAL):
            raise ConfigError(
                f"{path}: it begins with the byte order mark of UTF-8, with which Hydra does not see {GLOBAL!r}: save "
                f"it without (UTF-8, not UTF-8 with BOM), or: sed -i '1s/^\\xEF\\xBB\\xBF//' {shlex.quote(str(path))}"
            )
    shipped = list((directory / group).glob("*.yaml"))
    if lacking and shipped and all(path.read_text("utf-8").startswith(GLOBAL) for path in shipped):
        raise ConfigError(f"{lacking[0]}: an option of {group} sets keys anywhere: its first line has to be {GLOBAL!r}")
    return not lacking


def check_names(config: dict[str, Any]) -> None:
    """Raise ConfigError unless the names in a config that become folder names are single path components."""
    for key, section in (("name", config), ("corpus.name", config.get("corpus"))):
        if isinstance(section, dict) and "name" in section:
            check_name(key, section["name"])


def check_name(key: str, value: Any) -> None:
    """Raise ConfigError unless a value can be the name of a folder; `..` or a path could lead outside its parent."""
    text = "" if value is None else str(value)
    if not text.strip() or text in (".", "..") or not text.isprintable() or set(text) & set("/\\"):
        raise ConfigError(
            f"{key}={text!r}: a name is that of one folder, not empty and without / in it. {PATH_HINTS[key]}"
        )
