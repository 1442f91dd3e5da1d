"""Lengths of a run: options of its trainer that only say when training ends, and that may grow afterwards.

A run that was finished or stopped goes on with a greater length as if a signal had stopped it. Its folder keeps a
record of every change (`extensions.json`) and what the shorter run ended with (`finished/step-<step>/`).
"""

from collections.abc import Mapping
from typing import Any

from las.config.build import Config, shown
from las.runtime.errors import StorageError

LENGTHS = ("max_steps", "max_sub_epochs", "patience")
"""Keys of the section `trainer`; null, or a key that is not there, means no limit."""
Lengths = dict[str, tuple[int | None, int | None]]
"""Lengths that differ, before and after, by key."""


def without_lengths(signed: Config) -> Config:
    """Copy a signature without the lengths."""
    trainer = signed["trainer"]
    return signed | {"trainer": {key: value for key, value in trainer.items() if key not in LENGTHS}}


def changes(before: Config, after: Config) -> Lengths:
    """Lengths that differ between two sections `trainer`."""
    return {key: (before.get(key), after.get(key)) for key in LENGTHS if before.get(key) != after.get(key)}


def require_growth(before: Config, after: Config, result: Mapping[str, Any] | None, advice: str) -> Lengths:
    """Lengths that grow from one section `trainer` to another.

    Args:
        result: content of result.json of a finished run, else None.
        advice: the end of every message, with the command for a run of its own.

    Raises StorageError for a length that shrinks, for a run that ended as broken, and for a finished run that would end
    again where it ended.
    """
    lengths = changes(before, after)
    for key, (old, new) in lengths.items():
        if not _grows(old, new):
            raise StorageError(
                f"trainer.{key} was {shown(old)}, and {shown(new)} would make the run shorter: a run can only be "
                f"continued for longer. {advice}"
            )
    if result is not None and "broken" in result:
        raise StorageError(
            f"this run ended as broken at step {result['steps']}, which more steps do not mend. {advice}"
        )
    if result is not None and not lengths.keys() & (ended_by := _ended_by(before, int(result["steps"]))):
        listed = " or ".join(f"trainer.{key}={shown(before[key])}" for key in ended_by)
        raise StorageError(f"this run ended at step {result['steps']} by {listed}: give a greater value. {advice}")
    return lengths


def describe(lengths: Lengths) -> str:
    """The changes in words: `trainer.max_steps 500 -> 2000`."""
    return ", ".join(f"trainer.{key} {shown(old)} -> {shown(new)}" for key, (old, new) in lengths.items())


def _ended_by(trainer: Config, steps: int) -> list[str]:
    """Lengths that may have ended a run after `steps` steps."""
    if steps >= trainer["max_steps"]:
        return ["max_steps"]
    return [key for key in ("patience", "max_sub_epochs") if trainer.get(key) is not None]


def _grows(old: int | None, new: int | None) -> bool:
    return isinstance(old, int) and (new is None or new > old)
