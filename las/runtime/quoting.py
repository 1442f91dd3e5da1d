"""Overrides that survive two readers, the shell and Hydra's grammar, and what is said of those that did not."""

import re
import shlex
from collections.abc import Sequence

from las.runtime.errors import ConfigError

CLOSING = {"[": "]", "{": "}"}


def override(key: str, value: str) -> str:
    """`key=value` to be pasted into a shell, the value a text whatever is in it."""
    escaped = re.sub(r'(\\*)"', r'\1\1\\"', value)
    escaped = re.sub(r"(\\+)$", r"\1\1", escaped)
    return shlex.quote(f'{key}="{escaped}"')


def mistake(overrides: Sequence[str]) -> str | None:
    """What to say of the first override that Hydra's grammar cannot read, with the line that it can; None of others."""
    for each in overrides:
        key, _, value = each.partition("=")
        if not _is_read(each):
            better = _closed(key, value) if value[:1] in CLOSING else override(key, value.strip("'\""))
            return (
                f"{each}: this value cannot be read. Letters beyond English ones, brackets, quotes, = and most signs "
                f"stand in two pairs of quotes, the outer one for the shell{f': {better}' if better else ''}"
            )
    return None


def ambiguous(overrides: Sequence[str]) -> str | None:
    """What to say of the first value with a comma outside of quotes and brackets, which is a sweep; None of others."""
    for each in overrides:
        if _is_sweep(each):
            key, _, value = each.partition("=")
            return (
                f"{each}: commas stand between several values. For a list: {shlex.quote(f'{key}=[{value}]')}; for a "
                f"text: {override(key, value)}; for a training with each of them: las train -m {shlex.quote(each)}"
            )
    return None


def _closed(key: str, value: str) -> str | None:
    """An override whose brackets are closed, quoted for the shell; None if that does not mend it."""
    missing: list[str] = []
    for character in value:
        if character in CLOSING:
            missing.append(CLOSING[character])
        elif missing and character == missing[-1]:
            missing.pop()
    whole = f"{key}={value}{''.join(reversed(missing))}"
    return shlex.quote(whole) if _is_read(whole) else None


def _is_read(text: str) -> bool:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        OverridesParser.create().parse_override(text)
    except HydraException:
        return False
    return True


def _is_sweep(text: str) -> bool:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    return bool(OverridesParser.create().parse_override(text).is_sweep_override())


def require_read(overrides: Sequence[str]) -> None:
    """Raise ConfigError for the first override that cannot be read."""
    if says := mistake(overrides):
        raise ConfigError(says)
