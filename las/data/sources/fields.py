"""Named fields of tables and JSON lines: which one is the audio, which the text, and an entry from each row."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from las.data.sources.base import Entry, audio_path
from las.runtime.errors import DataError, first_of, suggest
from las.storage import text_files

USUAL = {
    "audio": (
        *("audio", "audio_filepath", "audio_path", "audio_file", "path", "file_name", "filename", "file"),
        *("wav", "wav_filename", "wav_path"),
    ),
    "text": ("text", "sentence", "transcript", "transcription", "normalized_text", "wrd"),
    "id": ("id", "utt_id", "utterance_id", "utt", "segment_id"),
    "speaker": ("speaker", "speaker_id", "client_id", "spk_id", "spk"),
    "channel": ("channel",),
    "start": ("start", "start_s", "offset", "start_time", "begin"),
    "end": ("end", "end_s", "end_time"),
    "duration": ("duration", "duration_s"),
}
"""Usual names of columns by role, in any case of letters; the first that is there is taken."""

_MOST_COMPARED = 1000
"""Number of columns among which a misspelt one is looked for."""

Value = str | int | float | None


def roles(names: Sequence[str], columns: Mapping[str, str | None], where: str) -> dict[str, str]:
    """Find the column of each role among the `names` of a table; roles without a column are left out.

    `columns` has the names that the user gave. Raises DataError listing the names when a given one is not there, or
    when none is that of the audio or the text.
    """
    chosen: dict[str, str] = {}
    by_lower = {name.strip().lower(): name for name in reversed(names)}
    for role, usual in USUAL.items():
        given = columns.get(role)
        if given is not None and given not in names:
            nearest = suggest(given, names[:_MOST_COMPARED])
            raise DataError(
                f"{where}: there is no column {given!r} (corpus.columns.{role}): {_listed(names)}.{nearest}"
            )
        name = given or next((by_lower[each] for each in usual if each in by_lower), None)
        if name is not None:
            chosen[role] = name
    for role in ("audio", "text"):
        if role not in chosen:
            raise DataError(
                f"{where}: no column of the {role}: {_listed(names)}. Usual names are {', '.join(USUAL[role])}. For "
                f"another one: corpus.columns.{role}=..."
            )
    return chosen


def is_header(names: Iterable[str]) -> bool:
    """Return whether there are usual names of both the audio and the text among some."""
    found = {name.strip().strip('"').lower() for name in names}
    return not found.isdisjoint(USUAL["audio"]) and not found.isdisjoint(USUAL["text"])


def entry(values: Mapping[str, Value], chosen: Mapping[str, str], where: str, folder: Path) -> Entry:
    """Make an entry from the values of a row. Raises DataError for a value that cannot be meant."""
    by_role = {role: values.get(name) for role, name in chosen.items()}
    audio, text = by_role["audio"], by_role["text"]
    if not isinstance(audio, str) or not audio.strip():
        raise DataError(f"{where}: {chosen['audio']} names no audio file")
    if text is None:
        raise DataError(f"{where}: there is no {chosen['text']}")
    name, speaker = _text(by_role.get("id")), _text(by_role.get("speaker"))
    channel = _channel(by_role.get("channel"), where)
    return Entry(where, audio_path(folder, audio.strip()), str(text), name, speaker, channel, *_stretch(by_role, where))


def _stretch(by_role: Mapping[str, Value], where: str) -> tuple[float, float | None]:
    """Start and duration in seconds; a duration of None reaches to the end of the file."""
    start_s = _seconds(by_role.get("start"), "start", where) or 0.0
    end_s = _seconds(by_role.get("end"), "end", where)
    duration_s = _seconds(by_role.get("duration"), "duration", where)
    if end_s is None:
        return start_s, duration_s
    if end_s <= start_s:
        raise DataError(f"{where}: the utterance ends at {end_s:g} s, before it starts ({start_s:g} s)")
    return start_s, end_s - start_s


def _seconds(value: Value, role: str, where: str) -> float | None:
    if value is None or value == "":
        return None
    try:
        seconds = text_files.seconds(str(value).strip())
    except ValueError as error:
        raise DataError(f"{where}: the {role} is {value!r:.40}, and should be a number of seconds") from error
    if role == "duration" and seconds == 0:
        raise DataError(f"{where}: the duration is {value!r}, and should be a number of seconds above 0")
    return seconds


def _channel(value: Value, where: str) -> int | None:
    if value is None or value == "":
        return None
    if not text_files.is_integer(str(value).strip()):
        raise DataError(f"{where}: the channel is {value!r:.40}, and should be a number counted from 0")
    return int(value)


def _text(value: Value) -> str:
    return "" if value is None else str(value).strip()


def _listed(names: Sequence[str]) -> str:
    return f"the columns are {first_of(names)}" if names else "there are no columns"
