"""The cards and keys that a command chooses, looked at before Hydra does: its messages do not say what to type.

What Hydra would take without doing anything, or leave out although it is read, is refused here as well.
"""

import re
from pathlib import Path
from typing import Any

from las.runtime.errors import ConfigError, suggest

HYDRA = re.compile(r"[+~]*hydra\b")
"""The beginning of a key of Hydra's own."""
OPTIONAL = re.compile(r"(scorer|front_end)@.*|(validation_)?search\.[a-z]\w*|model\.listener\.front_end")
"""What `~key` may take out of a config."""


def check_hydra(directory: Path, name: str, overrides: list[str]) -> None:
    """Hydra's own keys are for sweeps (`las.cli.sweep`): here they would be taken and do nothing."""
    for override in overrides:
        key, _, value = override.partition("=")
        if not HYDRA.match(key):
            continue
        message = f"{override}: Hydra's own keys do nothing here: they are for sweeps (las train -m)"
        if key.endswith(".dir") and "run_dir" in own_keys(directory, name):
            message += f". A run lies where run_dir={value} says"
        raise ConfigError(message)


def check_deleted(directory: Path, overrides: list[str]) -> None:
    """Almost every key is read by somebody, so that what is not wanted is replaced."""
    for override in overrides:
        key = override.removeprefix("~").partition("=")[0]
        if not override.startswith("~") or OPTIONAL.fullmatch(key):
            continue
        group, instead = key.partition("@")[0], f"write {key}=... for another value"
        if (directory / group).is_dir():
            names = options(directory, group)
            instead = f"choose {key}={'none' if 'none' in names else '...'} (all: {', '.join(names)})"
        raise ConfigError(f"{override}: only scorers and front ends can be left out: {instead}")


def check_groups(directory: Path, name: str, overrides: list[str]) -> None:
    """Group choices first: Hydra's own message for them does not say what a person should type."""
    groups = {path.name for path in directory.iterdir() if path.is_dir()}
    for override in overrides:
        key, separator, value = override.partition("=")
        if key.startswith("~"):
            continue
        if not separator or not key:
            raise ConfigError(f"{override!r} is not an override: write key=value, for example name=trial")
        last = key.rpartition(".")[2]
        if "." in key and "@" not in key and (directory / last / f"{value}.yaml").is_file():
            raise ConfigError(f"{override}: this part is chosen from configs/{last}: write {last}@{override}")
        bare = key.lstrip("+")
        group = bare.partition("@")[0].lstrip("/")
        if group not in groups or value.startswith(("{", "[")):
            continue
        everywhere = _is_global(directory / group)
        if everywhere and not key.startswith("+"):
            raise ConfigError(f"{override}: this is added, it replaces nothing: write +{override}")
        names = options(directory, group)
        if value not in names:
            raise ConfigError(
                f"{override}: there is no configs/{group}/{value}.yaml.{suggest(value, names)}"
                f" (all: {', '.join(names)})"
            )
        if bare == group and not everywhere and group not in own_keys(directory, name):
            raise ConfigError(misplaced(directory, name, override, overrides))


def misplaced(directory: Path, name: str, override: str, overrides: list[str]) -> str:
    """What to type for a group that is chosen where a config has no place for it: `cell=lstm`."""
    bare, _, value = override.lstrip("+").partition("=")
    group = bare.partition("@")[0]
    own = own_keys(directory, name)
    places = [key for key in _chosen(directory, name, overrides) if key.partition("@")[0] == group]
    if not places:
        free = _places(directory, group, value)
        places = [f"+{group}@{place}" for place in free if place.partition(".")[0] in own]
    if places:
        return f"{override}: say of which part: {' or '.join(f'{place}={value}' for place in sorted(places))}"
    if "checkpoint" in own:
        return f"{override}: {of_checkpoint(name, group)}"
    return f"{override}: configs/{name}.yaml has no place for {group}"


def of_checkpoint(name: str, section: str) -> str:
    """What to say of a key that was decided when the checkpoint was trained."""
    return f"{name} uses the {section} of the checkpoint: leave this key out"


def is_group(override: str, directory: Path) -> bool:
    """Whether an override chooses a card."""
    return (directory / override.partition("=")[0].lstrip("+/").partition("@")[0]).is_dir()


def own_keys(directory: Path, name: str) -> set[str]:
    """The keys of a card, the groups it mounts, and all of the cards it includes whole."""
    from omegaconf import OmegaConf

    card = OmegaConf.load(directory / f"{name}.yaml")
    known = {str(key) for key in card} - {"defaults"}
    for entry in card.defaults if "defaults" in card else []:
        if not isinstance(entry, str):
            known |= {group.partition("@")[2] or group for group in map(str, entry)}
        elif entry != "_self_":
            known |= own_keys(directory, entry)
    return known


def _chosen(directory: Path, name: str, overrides: list[str]) -> list[str]:
    """Every group of a config with its place, `cell@model.listener.cell`, for the model and corpus asked for."""
    from hydra import compose, initialize_config_dir

    own = own_keys(directory, name)
    kept = [each for each in overrides if each.lstrip("+").partition("=")[0] in own and is_group(each, directory)]
    with initialize_config_dir(str(directory.resolve()), version_base="1.3"):
        composed = compose(name, kept, return_hydra_config=True)
    return [str(key) for key in composed.hydra.runtime.choices]


def _places(directory: Path, group: str, card: str) -> list[str]:
    """Where other cards put this one (`search.coverage`), or any of its group where none does."""
    from omegaconf import OmegaConf

    found: dict[str, str] = {}
    for path in directory.glob("*/*.yaml"):
        values: Any = OmegaConf.load(path)
        for entry in values.get("defaults", []):
            for mount, chosen in {} if isinstance(entry, str) else entry.items():
                if mount.startswith(f"/{group}@"):
                    found[f"{path.parent.name}.{mount.partition('@')[2]}"] = chosen
    return [place for place, chosen in found.items() if chosen == card] or list(found)


def options(directory: Path, group: str) -> list[str]:
    """Names of the cards of a group, sorted."""
    return sorted(path.stem for path in (directory / group).glob("*.yaml"))


def _is_global(group: Path) -> bool:
    """Whether the cards of a group change keys all over the config, so that they need no place."""
    return all(card.read_text("utf-8").startswith("# @package _global_") for card in group.glob("*.yaml"))
