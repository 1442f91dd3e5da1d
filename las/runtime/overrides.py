"""Hydra's grammar of overrides, `key=value`: values read and written."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from las.runtime.errors import ConfigError


def value_of(key: str, overrides: Sequence[str]) -> Any:
    """The value that overrides give a key, without its quotes; None where none of them does."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    given = [override for override in overrides if override.partition("=")[0] == key]
    try:
        return OverridesParser.create().parse_override(given[-1]).value() if given else None
    except HydraException as error:
        raise ConfigError(str(error)) from error


def of_section(section: Mapping[str, Any], where: str) -> Iterator[str]:
    """Overrides that put every value of a section below a key, whatever is there."""
    for key, value in section.items():
        if isinstance(value, dict):
            yield from of_section(value, f"{where}.{key}")
        else:
            yield f"++{where}.{key}={written(value)}"


def written(value: Any) -> str:
    """A plain value as it is typed after the equals sign."""
    from hydra.core.override_parser.types import Quote, QuotedString

    return QuotedString(value, Quote.single).with_quotes() if isinstance(value, str) else json.dumps(value)
