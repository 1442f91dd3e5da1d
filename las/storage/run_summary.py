"""Summaries of run folders, read from their files within a fraction of a millisecond each, without torch.

A folder is a run if it has an environment.json, metrics.jsonl or result.json. A file that is damaged is named in the
summary, not raised: one of a thousand runs must not hide the others.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from las.storage import bounded, folders, lock, run_records
from las.storage.run_records import LONGEST_GAP_S, METRICS, NUMBER, TEXT, WHOLE

FILES = ("environment.json", "metrics.jsonl", "result.json")
"""Files of which every run has at least one."""
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

    Links to folders are followed, each folder once, and none that holds this one. A folder below that cannot be listed
    counts as a run, whose summary says so. Raises OSError if the folder itself cannot be listed.
    """
    found = []
    for path, entries in folders.walk(folder):
        if isinstance(entries, OSError):
            if path == folder:
                raise entries
            if not isinstance(entries, FileNotFoundError):  # removed meanwhile
                found.append(path)
        elif isinstance(entries, list):
            if any(entry.name in FILES for entry in entries):
                found.append(path)
                entries.clear()
            entries[:] = [entry for entry in entries if entry.name[0] != "."]
    return sorted(found)


def read(folder: Path) -> RunSummary:
    """Return the summary of a run folder, by its files."""
    problems: list[str] = []
    config = _object(folder / "config.json", run_records.CONFIG.faults, problems)
    result = _object(folder / "result.json", run_records.result_faults, problems)
    environment: dict[str, Any] = {}
    if "commit" not in result:
        environment = _object(folder / "environment.json", run_records.ENVIRONMENT.faults, problems)
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
        name=_value(TEXT, result.get("name", config.get("name"))),
        corpus=_value(TEXT, result.get("corpus", corpus.get("name"))),
        seed=_value(WHOLE, result.get("seed", config.get("seed"))),
        state=_state(folder, result, problems),
        step=_value(WHOLE, result.get("steps")) or max(each.get("step", 0) for each in (validation, last)) or None,
        max_steps=_value(WHOLE, trainer.get("max_steps")),
        loss=last.get("loss"),
        dev=next(iter(splits.values()), during),
        test=list(splits.values())[-1] if len(splits) > 1 else None,
        parameters=_value(WHOLE, result.get("parameters")),
        minutes=events.minutes,
        commit=_value(TEXT, result.get("commit", environment.get("commit"))),
        problem="; ".join(problems),
        splits=splits,
    )


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
        """Return the last event of a kind; empty if there is none, or if it is damaged."""
        where = self.tail.rfind(b'"event": "%s"' % event.encode())
        if where < 0:
            return {}
        start, end = self.tail.rfind(b"\n", 0, where) + 1, self.tail.find(b"\n", where)
        try:
            values: dict[str, Any] = bounded.parse_object(self.tail[start:end])
            faults = list(run_records.event_faults(values))
        except ValueError as error:
            faults = [str(error)]
        if faults:
            self.problems.append(f"{self.path.name}: damaged at the last {event} ({faults[0]})")
        return {} if faults else values

    def _minutes(self, file: BinaryIO, start: int) -> float | None:
        """Minutes from the first event to the last; `start` is the place of the tail in the file."""
        if not self.tail:
            return None
        first, last_line = _event_from(file, 0), self.tail.rfind(b"\n", 0, len(self.tail) - 1) + 1
        last = _event(self.tail[last_line:], start + last_line)
        return _seconds_between(file, first, last) / 60 if first is not None and last.start > first.start else None


def _last_lines(file: BinaryIO, size: int) -> tuple[int, bytes]:
    """Return the end of a file up to its last whole line, and where that begins; a line may be being written now.

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
    if not run_records.is_of(NUMBER, time := float(match[1])):
        raise ValueError(f"byte {start:,}: a time of {run_records.shown(time)}")
    return _Event(start, time)


def _event_from(file: BinaryIO, offset: int) -> _Event | None:
    """Return the first event whose line begins after a place of the file (or at its beginning), or None."""
    file.seek(offset)
    if offset:
        file.readline(bounded.LINE)
    start = file.tell()
    line = file.readline(bounded.LINE)
    return _event(line, start) if line else None


def _seconds_between(file: BinaryIO, first: _Event, last: _Event) -> float:
    """Seconds between two events, pauses excluded (bisection)."""
    if 0 <= last.time - first.time <= LONGEST_GAP_S:
        return last.time - first.time
    for offset in ((first.start + last.start) // 2, first.start + 1):
        between = _event_from(file, offset)
        if between is not None and between.start < last.start:
            return _seconds_between(file, first, between) + _seconds_between(file, between, last)
    return 0.0  # neighbours: a pause, or the clock was set back


def _object(path: Path, faults: Callable[[Mapping[str, Any]], Iterable[str]], problems: list[str]) -> dict[str, Any]:
    """Return the JSON object in a file, empty without one; what is wrong with it is added to the problems."""
    try:
        values = bounded.read_object(path)
        problems += [f"{path.name}: damaged ({fault})" for fault in list(faults(values))[:1]]
        return values
    except FileNotFoundError:
        if path.name == "config.json":
            problems.append(f"{path.name}: missing")
    except (OSError, ValueError) as error:
        problems.append(f"{path.name}: damaged ({bounded.reason(error)})")
    return {}


def _state(folder: Path, result: Mapping[str, Any], problems: list[str]) -> str:
    """Return the state of a run; a lock that is damaged is added to the problems."""
    try:
        is_held = lock.holder_lives(folder)
    except (OSError, ValueError) as error:
        problems.append(f"{lock.NAME}: damaged ({bounded.reason(error)})")
    if problems:
        return "damaged"
    if result:
        return "broken" if "broken" in result else "finished"
    return "training" if is_held else "stopped"


def _measure(values: Any) -> Measure | None:
    if not isinstance(values, dict):
        return None
    for metric in METRICS:
        if (value := _value(NUMBER, values.get(metric))) is not None:
            limits = values.get("interval")
            return Measure(metric, value, (limits[0], limits[1]) if run_records.is_interval(limits) else None)
    return None


def _during_training(validation: Mapping[str, Any], config: Mapping[str, Any]) -> Measure | None:
    """Return the error rate of the last validation; None for a language model.

    Earlier releases did not record the metric: there it is in phones where the tokens are phones.
    """
    value = validation.get("dev_error")
    tokens = str(_section(_section(config, "corpus"), "tokens").get("_target_", ""))
    metric = validation.get("metric", "phone_error_rate" if tokens.endswith(".Phones") else "wer")
    return None if value is None or metric not in METRICS or "lm" in config else Measure(metric, value)


def _section(values: Mapping[str, Any], key: str) -> dict[str, Any]:
    section = values.get(key)
    return section if isinstance(section, dict) else {}


def _value(kind: str, value: Any) -> Any:
    return value if run_records.is_of(kind, value) else None
