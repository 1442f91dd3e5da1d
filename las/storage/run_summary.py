"""Summaries of run folders, read from their files within a fraction of a millisecond each, without torch.

A folder is a run if it has an environment.json, metrics.jsonl or result.json. A file that is damaged is named in the
summary, not raised: one of a thousand runs must not hide the others.
"""

import itertools
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from las.storage import bounded, lock

FILES = ("environment.json", "metrics.jsonl", "result.json")
"""Files of which every run has at least one."""
LONGEST_GAP_S = 600.0
"""Between two events of a training; a longer one is the time in which it was stopped."""
METRICS = ("phone_error_rate", "wer", "cer", "perplexity")
"""Keys of a split in result.json that hold its measure, first one first."""
TIME = re.compile(rb'\{"time": ([0-9.]+)')
TAIL = 1 << 14
"""Bytes of metrics.jsonl that are read from its end at first."""


@dataclass(frozen=True)
class Measure:
    """Error rate (a fraction) or perplexity of a split, with its 95 % interval where there is one."""

    metric: str
    value: float
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class RunSummary:
    """One run: names, progress and results; None for what its files do not say (yet).

    `state` is `training` (a process holds the folder), `finished`, `broken` (diverged, recorded as a result), `stopped`
    or `damaged` (`problem` says which file). `dev` and `test` are the result's first and last split, before there is a
    result the last validation. `minutes` leaves out pauses of more than `LONGEST_GAP_S`.
    """

    folder: Path
    name: str | None = None
    corpus: str | None = None
    seed: int | None = None
    state: str = "stopped"
    step: int | None = None
    max_steps: int | None = None
    loss: float | None = None
    dev: Measure | None = None
    test: Measure | None = None
    parameters: int | None = None
    minutes: float | None = None
    commit: str | None = None
    problem: str = ""
    splits: Mapping[str, Measure] = field(default_factory=dict)


def find(folder: Path) -> list[Path]:
    """Run folders in a folder and below it, sorted; the folder itself if it is one. Their own folders are not entered.

    Raises OSError if the folder cannot be listed.
    """
    found, waiting = [], [str(folder)]
    while waiting:
        directory = waiting.pop()
        with os.scandir(directory) as entries:
            listed = list(entries)
        if any(entry.name in FILES for entry in listed):
            found.append(Path(directory))
        else:
            waiting += [each.path for each in listed if each.is_dir(follow_symlinks=False) and each.name[0] != "."]
    return sorted(found)


def read(folder: Path) -> RunSummary:
    """The summary of a run folder, by its files."""
    problems: list[str] = []
    config, result = (_object(folder / name, problems) for name in ("config.json", "result.json"))
    environment = {} if "commit" in result else _object(folder / "environment.json", problems)
    events = _Events(folder / "metrics.jsonl", problems)
    validation, last = events.last("validation"), events.last("train")
    trainer, corpus = _section(config, "trainer"), _section(config, "corpus")
    splits = {
        str(split): measure
        for split, values in _section(result, "splits").items()
        if (measure := _measure(values)) is not None
    }
    during = _during_training(validation, config)
    return RunSummary(
        folder=folder,
        name=_text(result.get("name", config.get("name"))),
        corpus=_text(result.get("corpus", corpus.get("name"))),
        seed=_whole(result.get("seed", config.get("seed"))),
        state=_state(folder, result, problems),
        step=_whole(result.get("steps", max(_whole(each.get("step")) or 0 for each in (validation, last)) or None)),
        max_steps=_whole(trainer.get("max_steps")),
        loss=_number(last.get("loss")),
        dev=next(iter(splits.values()), during),
        test=list(splits.values())[-1] if len(splits) > 1 else None,
        parameters=_whole(result.get("parameters")),
        minutes=events.minutes,
        commit=_text(result.get("commit", environment.get("commit"))),
        problem="; ".join(problems),
        splits=splits,
    )


def seconds(times: Sequence[float]) -> float:
    """Seconds between events, without pauses in which the training was stopped."""
    gaps = (after - before for before, after in itertools.pairwise(times))
    return sum(gap for gap in gaps if gap <= LONGEST_GAP_S)


class _Event(NamedTuple):
    """Place of an event's line in its file, in bytes, and its time in seconds."""

    start: int
    time: float


class _Events:
    """The events of a training, of which only those that are asked for are read."""

    def __init__(self, path: Path, problems: list[str]) -> None:
        self.path, self.problems = path, problems
        self.tail = b""
        self.minutes: float | None = None
        """Minutes of computing; None before the second event."""
        try:
            with bounded.open_file(path, bounded.LINES) as file:
                size = file.seek(0, os.SEEK_END)
                start, self.tail = _last_lines(file, size)
                self.minutes = self._minutes(file, start)
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            problems.append(f"{path.name}: damaged ({bounded.reason(error)})")

    def last(self, event: str) -> dict[str, Any]:
        """The last event of a kind; empty if there is none."""
        where = self.tail.rfind(b'"event": "%s"' % event.encode())
        if where < 0:
            return {}
        start, end = self.tail.rfind(b"\n", 0, where) + 1, self.tail.find(b"\n", where)
        try:
            values = bounded.parse(self.tail[start:end])
        except ValueError as error:
            self.problems.append(f"{self.path.name}: damaged at the last {event} ({error})")
            return {}
        return values if isinstance(values, dict) else {}

    def _minutes(self, file: BinaryIO, start: int) -> float | None:
        """Minutes from the first event to the last; `start` is the place of the tail in the file."""
        if not self.tail:
            return None
        first, last_line = _event_from(file, 0), self.tail.rfind(b"\n", 0, len(self.tail) - 1) + 1
        last = _event(self.tail[last_line:], start + last_line)
        return _seconds_between(file, first, last) / 60 if first is not None and last.start > first.start else None


def _last_lines(file: BinaryIO, size: int) -> tuple[int, bytes]:
    """The end of a file up to its last whole line, and where that begins; a line may be being written now.

    A validation is among them if there is one.
    """
    length = TAIL
    while True:
        start = file.seek(max(0, size - length))
        tail = file.read(length)
        if length >= size or b'"event": "validation"' in tail:
            return start, tail[: tail.rfind(b"\n") + 1]
        length *= 4


def _event(line: bytes, start: int) -> _Event:
    if (match := TIME.match(line)) is None:
        raise ValueError(f"byte {start:,}: a line without a time")
    return _Event(start, float(match[1]))


def _event_from(file: BinaryIO, offset: int) -> _Event | None:
    """The first event whose line begins after a place of the file (or at its beginning); None if there is none."""
    file.seek(offset)
    if offset:
        file.readline(bounded.LINE)
    start = file.tell()
    line = file.readline(bounded.LINE)
    return _event(line, start) if line else None


def _seconds_between(file: BinaryIO, first: _Event, last: _Event) -> float:
    """Seconds between two events without pauses, by halves; one too short for a pause is not looked into."""
    if last.time - first.time <= LONGEST_GAP_S:
        return last.time - first.time
    for offset in ((first.start + last.start) // 2, first.start + 1):
        between = _event_from(file, offset)
        if between is not None and between.start < last.start:
            return _seconds_between(file, first, between) + _seconds_between(file, between, last)
    return 0.0  # neighbours: a pause


def _object(path: Path, problems: list[str]) -> dict[str, Any]:
    try:
        values = json.loads(bounded.read(path, bounded.JSON))
        if isinstance(values, dict):
            return values
        problems.append(f"{path.name}: damaged (not a JSON object)")
    except FileNotFoundError:
        if path.name == "config.json":
            problems.append(f"{path.name}: missing")
    except (OSError, ValueError, RecursionError) as error:
        problems.append(f"{path.name}: damaged ({bounded.reason(error)})")
    return {}


def _state(folder: Path, result: Mapping[str, Any], problems: Sequence[str]) -> str:
    if problems:
        return "damaged"
    if result:
        return "broken" if "broken" in result else "finished"
    return "training" if lock.holder_lives(folder) else "stopped"


def _measure(values: Any) -> Measure | None:
    """The measure of a split's entry in result.json."""
    if not isinstance(values, dict):
        return None
    for metric in METRICS:
        if (value := _number(values.get(metric))) is not None:
            limits = [_number(each) for each in values.get("interval") or []]
            low, high = limits if len(limits) == 2 else (None, None)
            return Measure(metric, value, None if low is None or high is None else (low, high))
    return None


def _during_training(validation: Mapping[str, Any], config: Mapping[str, Any]) -> Measure | None:
    """The error rate of the last validation, in phones where the tokens are phones; None for a language model."""
    value = _number(validation.get("dev_error"))
    tokens = str(_section(_section(config, "corpus"), "tokens").get("_target_", ""))
    return (
        None
        if value is None or "lm" in config
        else Measure("phone_error_rate" if tokens.endswith(".Phones") else "wer", value)
    )


def _section(values: Mapping[str, Any], key: str) -> dict[str, Any]:
    section = values.get(key)
    return section if isinstance(section, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
