"""Result and events of a run, read from its files, and the kinds of the values in them.

What reads them relies on these kinds: a file that is damaged, or that something else wrote, is an error that names the
file and the value, and never a surprise later on.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from las.runtime.errors import StorageError
from las.storage import bounded

METRICS = {"phone_error_rate": "PER", "wer": "WER", "cer": "CER", "perplexity": "perplexity"}
"""Keys of a split in result.json that hold its measure, first one first, with their names in print."""
LONGEST_GAP_S = 600.0
"""Between two events of a training; a longer one is the time in which it was stopped."""
LAST_SHARE, STILL = 0.2, 0.02
"""A training has converged if its best dev result became less than `STILL` better over the last share of its steps."""
LIMIT = 1e300
"""Limit for numbers, which keeps sums and products of them finite."""
TEXT, WHOLE, NUMBER, OBJECT = "a text", "a whole number", "a finite number", "an object"
TYPES: dict[str, tuple[type, ...]] = {TEXT: (str,), WHOLE: (int,), NUMBER: (int, float), OBJECT: (dict,)}


class Kinds(NamedTuple):
    """Kinds of the values in an object: of those that it must have, and of those that it may have, or have as null."""

    needed: Mapping[str, str]
    other: Mapping[str, str]

    def faults(self, values: Mapping[str, Any]) -> Iterator[str]:
        """Sentences about values of another kind, and about those that are missing."""
        for key, kind in self.needed.items():
            if not is_of(kind, values.get(key)):
                yield f"{key} is {shown(values[key])}, not {kind}" if key in values else f"{key} is missing"
        for key, kind in self.other.items():
            if (value := values.get(key)) is not None and not is_of(kind, value):
                yield f"{key} is {shown(value)}, not {kind}"


CONFIG = Kinds({}, {"name": TEXT, "seed": WHOLE, "corpus": OBJECT, "trainer": OBJECT})
ENVIRONMENT = Kinds({}, {"commit": TEXT})
RESULT = Kinds(
    {"steps": WHOLE, "splits": OBJECT},
    {
        **dict.fromkeys(("name", "corpus", "commit", "broken", "select"), TEXT),
        **dict.fromkeys(("seed", "parameters", "best_step", "steps_to_converge", "steps_to_within_one_percent"), WHOLE),
        **dict.fromkeys(("chance_level", "choices", "last"), OBJECT),
    },
)
EVENT = Kinds({"time": NUMBER}, {"event": TEXT, "step": WHOLE})
TRAIN = Kinds({"step": WHOLE, "loss": NUMBER}, {"gradient_norm": NUMBER, "learning_rate": NUMBER})
VALIDATION = Kinds(
    {"step": WHOLE, "dev_loss": NUMBER, "dev_error": NUMBER}, {"token_accuracy": NUMBER, "alignment": OBJECT}
)
ALIGNMENT = Kinds(dict.fromkeys(("entropy", "diagonality", "coverage"), NUMBER), {})


def is_of(kind: str, value: Any) -> bool:
    """Return whether a value is of a kind; numbers are finite and within `LIMIT`."""
    if isinstance(value, bool) or not isinstance(value, TYPES[kind]):
        return False
    return not isinstance(value, int | float) or -LIMIT < value < LIMIT


def is_interval(value: Any) -> TypeGuard[list[float]]:
    """Return whether a value is a list of two finite numbers."""
    return isinstance(value, list) and [is_of(NUMBER, each) for each in value] == [True, True]


def config(folder: Path) -> dict[str, Any]:
    """Return the content of config.json, as it was written. Raises StorageError for a damaged one."""
    path = folder / "config.json"
    values = bounded.stored(path)
    _require(f"{path}", CONFIG._replace(needed={"corpus": OBJECT}).faults(values))
    return values


def result(folder: Path) -> dict[str, Any] | None:
    """Return the content of result.json; None without one. Raises StorageError for a damaged one."""
    path = folder / "result.json"
    if not path.exists():
        return None
    values = bounded.stored(path)
    _require(f"{path}", result_faults(values))
    return values


def environment(folder: Path) -> dict[str, Any]:
    """Return the content of environment.json; empty without one. Raises StorageError for a damaged one."""
    path = folder / "environment.json"
    values = bounded.stored(path) if path.exists() else {}
    _require(f"{path}", ENVIRONMENT.faults(values))
    return values


def result_faults(values: Mapping[str, Any]) -> list[str]:
    """Sentences about the values of a result that are of another kind."""
    faults, splits, level = list(RESULT.faults(values)), values.get("splits"), values.get("chance_level")
    faults += [f"chance_level.{fault}" for fault in _CHANCE.faults(level)] if isinstance(level, dict) else []
    return faults + [fault for each in _entries("splits", splits) for fault in _split_faults(*each)]


def _entries(where: str, values: Any) -> list[tuple[str, Any]]:
    return [(f"{where}.{name}", entry) for name, entry in values.items()] if isinstance(values, dict) else []


def _split_faults(where: str, entry: Any) -> Iterator[str]:
    if not isinstance(entry, dict) or all(entry.get(metric) is None for metric in METRICS):
        yield f"{where} has none of {', '.join(METRICS)}"
        return
    yield from (f"{where}.{fault}" for fault in _MEASURES.faults(entry))
    if (limits := entry.get("interval")) is not None and not is_interval(limits):
        yield f"{where}.interval is {shown(limits)}, not two finite numbers"
    for each in _entries(f"{where}.subsets", entry.get("subsets")):
        yield from _split_faults(*each)


_MEASURES = Kinds({}, {**dict.fromkeys(METRICS, NUMBER), "interval_over": TEXT, "subsets": OBJECT})
_CHANCE = Kinds({}, {"error": NUMBER, "token_accuracy": NUMBER})


def events(folder: Path) -> list[dict[str, Any]]:
    """Return the events of a training, without an incomplete line at the end; an empty list without any.

    Raises StorageError for a damaged file, with the line.
    """
    path = folder / "metrics.jsonl"
    found = bounded.stored_lines(path)
    for number, event in enumerate(found, start=1):
        _require(f"{path}:{number}", event_faults(event))
    return found


def event_faults(event: Mapping[str, Any]) -> Iterator[str]:
    """Sentences about the values of an event that are of another kind."""
    yield from EVENT.faults(event)
    if event.get("event") == "train":
        yield from TRAIN.faults(event)
    elif event.get("event") == "validation":
        yield from VALIDATION.faults(event)
        if isinstance(alignment := event.get("alignment"), dict):
            yield from (f"alignment.{fault}" for fault in ALIGNMENT.faults(alignment))


def seconds(times: Sequence[float]) -> float:
    """Seconds of computing from the first of several events to the last."""
    return sum(map(gap, times, times[1:]))


def gap(before: float, after: float) -> float:
    """Seconds of computing between two events: none in a pause, and none where the clock was set back."""
    return after - before if 0 < after - before <= LONGEST_GAP_S else 0.0


def shown(value: Any) -> str:
    """Return a value in a message, shortened."""
    text = ascii(value) if isinstance(value, str | bool | int | float) else f"{type(value).__name__}"
    return text if len(text) <= 40 else f"{text[:40]}..."


def _require(where: str, faults: Iterator[str] | Sequence[str]) -> None:
    for fault in faults:
        raise StorageError(f"{where}: damaged ({fault}): restore it, or move it away, and type the same command again")


def late_gain(steps: Sequence[int], values: Sequence[float]) -> float | None:
    """Compute the relative gain of the best value so far over the last fifth of the steps, a fraction.

    None where no validation lies before that.
    """
    start = (1 - LAST_SHARE) * steps[-1]
    early = [value for step, value in zip(steps, values, strict=True) if step <= start]
    if not early:
        return None
    return (min(early) - min(values)) / min(early) if min(early) else 0.0
