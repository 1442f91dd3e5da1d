"""Utterances, and manifests that list them: files of JSON lines with a content hash."""

import hashlib
import json.encoder
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from las.runtime.errors import DataError
from las.storage import atomic, bounded
from las.storage.text_files import MAX_SECONDS


@dataclass(frozen=True, slots=True)
class Interval:
    """Symbol with its start and end, in seconds from the start of the utterance."""

    start_s: float
    end_s: float
    symbol: str


@dataclass(frozen=True, slots=True)
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
_quoted = json.encoder.encode_basestring_ascii
"""A text as JSON in ASCII: hundreds of thousands of lines are built from it, faster than by a call of `json` each."""


def content_hash(utterances: Iterable[Utterance]) -> str:
    """Hash (sha256, hex) of the canonical JSON lines, with file names of audio in place of paths.

    A corpus that was moved has the same hash, and is therefore trained on in the same order.
    """
    digest = hashlib.sha256()
    for utterance in utterances:
        digest.update(_line(utterance, _name(utterance.audio)).encode("ascii"))
    return digest.hexdigest()


def write(path: str | Path, utterances: Iterable[Utterance]) -> str:
    """Write a manifest atomically, unless the file has these lines already. Returns its content hash.

    Raises DataError when two utterances share an id or a time is not a number.
    """
    path = Path(path)
    listed = list(utterances)
    ids: set[str] = set()
    for utterance in listed:
        if utterance.id in ids:
            raise DataError(f"{path}: two utterances are called {utterance.id!r}: ids must differ")
        ids.add(utterance.id)
        if not all(map(math.isfinite, _times(utterance))):
            raise DataError(f"{path}: utterance {utterance.id!r} has a time that is not a finite number")
    if not _holds(path, _lines(listed)):
        atomic.write(path, _lines(listed), durable=True)
    return content_hash(listed)


def _times(utterance: Utterance) -> tuple[float, ...]:
    times = (utterance.start_s, utterance.duration_s)
    return (*times, *(time for each in utterance.alignment for time in (each.start_s, each.end_s)))


def _lines(utterances: Iterable[Utterance]) -> Iterator[str]:
    return (_line(utterance, utterance.audio) for utterance in utterances)


def _holds(path: Path, lines: Iterable[str]) -> bool:
    try:
        with bounded.open_file(path, bounded.LINES) as file:
            return all(file.readline() == line.encode("ascii") for line in lines) and not file.read(1)
    except OSError:
        return False


def read(path: str | Path) -> list[Utterance]:
    """Read the utterances of a manifest, in file order. Raises DataError naming file and line."""
    utterances: list[Utterance] = []
    first_line: dict[str, int] = {}
    shapes: set[tuple[object, ...]] = set()
    try:
        with bounded.open_file(Path(path), bounded.LINES) as file:
            for number, values in bounded.parse_lines(file):
                try:
                    utterance = _utterance(values, shapes)
                except DataError as error:
                    raise DataError(f"{path}:{number}: {error}") from error
                if utterance.id in first_line:
                    raise DataError(
                        f"{path}:{number}: utterance {utterance.id!r} is already on line {first_line[utterance.id]}"
                    )
                first_line[utterance.id] = number
                utterances.append(utterance)
    except OSError as error:
        raise DataError(f"{path}: cannot read the manifest ({error.strerror}). Prepare it: las prepare") from error
    return utterances


def _name(audio: str) -> str:
    """Name of a file without its folders, as `Path.name`, which takes long for hundreds of thousands of them."""
    name = audio.rpartition("/")[2]
    return Path(audio).name if name in ("", ".") else name


def _line(utterance: Utterance, audio: str) -> str:
    """Canonical JSON line. ASCII escapes protect the line format from odd file names and line separators in texts."""
    intervals = ",".join(f"[{each.start_s},{each.end_s},{_quoted(each.symbol)}]" for each in utterance.alignment)
    return (
        f'{{"id":{_quoted(utterance.id)},"audio":{_quoted(audio)},"channel":{utterance.channel},'
        f'"start_s":{utterance.start_s},"duration_s":{utterance.duration_s},"text":{_quoted(utterance.text)},'
        f'"speaker":{_quoted(utterance.speaker)},"alignment":[{intervals}]}}\n'
    )


def _utterance(values: Any, shapes: set[tuple[object, ...]]) -> Utterance:
    """Make the utterance of a parsed line.

    `shapes` collects the keys and kinds of values that were found right, which most lines share.
    """
    if isinstance(values, ValueError):
        raise DataError(f"not a line of JSON ({values}). Prepare the corpus again: las prepare") from values
    if not isinstance(values, dict):
        raise DataError(f"expected an object with the keys {', '.join(_KINDS)}")
    shape = (*values, *map(type, values.values()))
    if shape not in shapes:
        _require_kinds(values)
        shapes.add(shape)
    start_s, duration_s = values["start_s"], values["duration_s"]
    if not (values["channel"] >= 0 and 0 <= start_s <= MAX_SECONDS and 0 <= duration_s <= MAX_SECONDS):
        raise DataError(
            f"channel, start_s and duration_s must be finite, not negative, and times at most {MAX_SECONDS:g} s"
        )
    alignment = tuple(map(_interval, values.get("alignment", ())))
    values = values | {"start_s": float(start_s), "duration_s": float(duration_s), "alignment": alignment}
    return Utterance(**values)


def _require_kinds(values: dict[str, Any]) -> None:
    missing = _KINDS.keys() - _OPTIONAL - values.keys()
    unknown = values.keys() - _KINDS.keys()
    if missing or unknown:
        problem = f"missing {', '.join(sorted(missing))}" if missing else f"unknown key {', '.join(sorted(unknown))}"
        raise DataError(f"{problem}. The keys are {', '.join(_KINDS)}")
    for key, value in values.items():
        if not isinstance(value, _KINDS[key]) or isinstance(value, bool):
            raise DataError(f"{key} has the value {value!r}, which is of the wrong kind")


def _interval(entry: Any) -> Interval:
    match entry:
        case [int() | float() as start_s, int() | float() as end_s, str(symbol)] if (
            -MAX_SECONDS <= start_s <= end_s <= MAX_SECONDS
        ):
            return Interval(float(start_s), float(end_s), symbol)
    raise DataError(f"alignment holds {entry!r}, expected [start_s, end_s, symbol] with start_s <= end_s")
