"""Options of config groups and what they build."""

from typing import Any

from las.config.build import build, config_directory, option


def names(group: str) -> list[str]:
    """The package's options of a group."""
    return sorted(path.stem for path in (config_directory() / group).glob("*.yaml"))


def part(group: str, name: str, **options: Any) -> Any:
    """What an option builds, with other values of some of its keys."""
    return build(option(group, name) | options)


def attention(name: str, **options: Any) -> Any:
    """What an option of an attention builds, its known sizes made small, without noise."""
    small = {"key_size": 4, "num_filters": 2, "width": 3, "num_heads": 2, "noise": 0.0}
    return part("attention", name, **{key: small[key] for key in small.keys() & option("attention", name)} | options)
