"""Errors that say what is wrong, where, why, and which command to type next.

Every error of the package carries the exit code of the console command: 2 usage or configuration, 3 data,
4 numerical, 5 storage.
"""

import difflib
from collections.abc import Collection, Iterable


class LasError(Exception):
    """Base of every error that `las` explains in words; `exit_code` is what the console command returns."""

    exit_code = 1

    def __init__(self, message: str = "", exit_code: int | None = None) -> None:
        super().__init__(message)
        if exit_code is not None:
            self.exit_code = exit_code


class ConfigError(LasError):
    """Unknown or unsuitable command, key, group or value."""

    exit_code = 2


class MissingValueError(ConfigError):
    """Key of a config that has no value yet (`checkpoint: ???`)."""

    def __init__(self, message: str, key: str = "") -> None:
        super().__init__(message)
        self.key = key


class ArgumentError(ConfigError):
    """Value that a constructor refuses, named by its argument; `las.config.build` prepends the section's key."""


class DataError(LasError):
    """Unusable audio, transcripts, manifests or corpus trees.

    `kind` names the fault in a word or two; faults are counted by it.
    """

    exit_code = 3

    def __init__(self, message: str = "", kind: str = "unreadable") -> None:
        super().__init__(message)
        self.kind = kind


class NumericalError(LasError):
    """Loss or gradient that is not finite."""

    exit_code = 4


class StorageError(LasError):
    """Run folder or checkpoint that cannot be written, read or trusted."""

    exit_code = 5


def nearest(name: str, candidates: Iterable[str], count: int = 3) -> list[str]:
    """Return the `count` names closest to a misspelt one, best first (all of them when there are no more)."""
    names = sorted(set(candidates))
    return difflib.get_close_matches(name, names, n=count, cutoff=0.0)


def suggest(name: str, candidates: Iterable[str]) -> str:
    """Return the sentence that ends an unknown-name error: ` Did you mean a, b or c?`"""
    names = nearest(name, candidates)
    if not names:
        return ""
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
    return f" Did you mean {listed}?"


def require_known(key: str, value: str, known: Collection[str]) -> None:
    """Raise ArgumentError unless the value of an argument is one of the known names."""
    if value not in known:
        raise ArgumentError(f"{key}={value!r} does not exist.{suggest(value, known)}")


def first_of(names: Iterable[str], count: int = 10) -> str:
    """Return the first of some names, and the number of further ones: `a, b and 3 more`."""
    names = list(names)
    more = f" and {len(names) - count:,} more" if len(names) > count else ""
    return ", ".join(names[:count]) + more
