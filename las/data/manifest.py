"""Utterances, and manifests that list them: files of JSON lines with a content hash."""

import hashlib
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from las.runtime.errors import DataError
from las.storage import atomic, bounded


@dataclass(frozen=True)
class Interval:
    """Symbol with its start and end, in seconds from the start of the utterance."""

    start_s: float
    end_s: float
    symbol: str


@dataclass(frozen=True)
class Utterance:
    """Transcribed segment of an audio file.

    `audio` is the file, `channel` counts from 0, `start_s` and `duration_s` are seconds within the file, `text` is the
    training target, `alignment` (optional) has symbols with times. A duration of 0 means that the audio could not be
    read when the manifest was written.

    >>> import las
    >>> call = las.Utterance("mary_1", "call.flac", channel=1, start_s=1.5, duration_s=2.0, text="yes", speaker="mary")
    >>> call.text, call.start_s + call.duration_s
    ('yes', 3.5)
    """

    id: str
    audio: str
    channel: int
    start_s: float
    duration_s: float
    text: str
    speaker: str
    alignment: tuple[Interval, ...] = ()


_KINDS: dict[str, type | tuple[type, ...]] = {
    "id": str,
    "audio": str,
    "channel": int,
    "start_s": (int, float),
    "duration_s": (int, float),
    "text": str,
    "speaker": str,
    "alignment": list,
}
_OPTIONAL = {"alignment"}


def content_hash(utterances: Iterable[Utterance]) -> str:
    """Hash (sha256, hex) of the canonical JSON lines, with file names of audio in place of paths.

    A corpus that was moved has the same hash, and is therefore trained on in the same order.
    """
    digest = hashlib.sha256()
    for utterance in utterances:
        digest.update(_line(replace(utterance, audio=Path(utterance.audio).name)).encode("ascii"))
    return digest.hexdigest()


def write(path: str | Path, utterances: Iterable[Utterance]) -> str:
    """Write a manifest atomically. Returns its content hash.

    Raises DataError when two utterances share an id or a time is not a number.
    """
    path = Path(path)
    listed = list(utterances)
    ids: set[str] = set()
    for utterance in listed:
        if utterance.id in ids:
            raise DataError(f"{path}: two utterances are called {utterance.id!r}: ids must differ")
        ids.add(utterance.id)
        times = (
            utterance.start_s,
            utterance.duration_s,
            *(t for i in utterance.alignment for t in (i.start_s, i.end_s)),
        )
        if not all(map(math.isfinite, times)):
            raise DataError(f"{path}: utterance {utterance.id!r} has a time that is not a finite number")
    atomic.write(path, "".join(map(_line, listed)), durable=True)
    return content_hash(listed)


def read(path: str | Path) -> list[Utterance]:
    """Read the utterances of a manifest, in file order. Raises DataError naming file and line."""
    try:
        lines = bounded.read(Path(path), bounded.LINES).split(b"\n")
    except OSError as error:
        raise DataError(f"{path}: cannot read the manifest ({error.strerror}). Prepare it: las prepare") from error
    utterances: list[Utterance] = []
    first_line: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        utterance = _parse(line, where)
        if utterance.id in first_line:
            raise DataError(f"{where}: utterance {utterance.id!r} is already on line {first_line[utterance.id]}")
        first_line[utterance.id] = number
        utterances.append(utterance)
    return utterances


def _line(utterance: Utterance) -> str:
    """Canonical JSON line. ASCII escapes protect the line format from odd file names and line separators in texts."""
    values: dict[str, Any] = {field.name: getattr(utterance, field.name) for field in fields(utterance)}
    values["alignment"] = [[i.start_s, i.end_s, i.symbol] for i in utterance.alignment]
    return json.dumps(values, ensure_ascii=True, separators=(",", ":")) + "\n"


def _parse(line: bytes, where: str) -> Utterance:
    try:
        values = bounded.parse(line)
    except ValueError as error:
        raise DataError(f"{where}: not a line of JSON ({error}). Prepare the corpus again: las prepare") from error
    if not isinstance(values, dict):
        raise DataError(f"{where}: expected an object with the keys {', '.join(_KINDS)}")
    missing = _KINDS.keys() - _OPTIONAL - values.keys()
    unknown = values.keys() - _KINDS.keys()
    if missing or unknown:
        problem = f"missing {', '.join(sorted(missing))}" if missing else f"unknown key {', '.join(sorted(unknown))}"
        raise DataError(f"{where}: {problem}. The keys are {', '.join(_KINDS)}")
    for key, value in values.items():
        if not isinstance(value, _KINDS[key]) or isinstance(value, bool):
            raise DataError(f"{where}: {key} has the value {value!r}, which is of the wrong kind")
    times = (values["start_s"], values["duration_s"])
    if values["channel"] < 0 or not all(math.isfinite(t) and t >= 0 for t in times):
        raise DataError(f"{where}: channel, start_s and duration_s must be finite and not negative")
    alignment = tuple(_interval(entry, where) for entry in values.pop("alignment", []))
    values["start_s"], values["duration_s"] = map(float, times)
    return Utterance(**values, alignment=alignment)


def _interval(entry: Any, where: str) -> Interval:
    match entry:
        case [int() | float() as start_s, int() | float() as end_s, str(symbol)] if start_s <= end_s:
            return Interval(float(start_s), float(end_s), symbol)
    raise DataError(f"{where}: alignment holds {entry!r}, expected [start_s, end_s, symbol] with start_s <= end_s")
