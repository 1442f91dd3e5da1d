"""JSON lines of recordings: manifests of this package, and objects with named fields as NeMo writes them."""

import math
from pathlib import Path

from las.data import manifest
from las.data.sources import fields
from las.data.sources.base import Entry, ReadingOptions, Source, audio_path
from las.runtime.errors import DataError
from las.storage import bounded, text_files


def read_manifest(path: Path, options: ReadingOptions) -> Source:
    """Read a manifest of this package, as `las prepare` writes it."""
    folder, name = options.folder(path), str(path)
    entries = [
        Entry(
            where=f"{name}: {each.id}",
            audio=audio_path(folder, each.audio),
            text=each.text,
            id=each.id,
            speaker=each.speaker,
            channel=each.channel,
            start_s=each.start_s,
            duration_s=each.duration_s or None,
            alignment=each.alignment,
        )
        for each in manifest.read(path)
    ]
    return Source(entries, [path], [])


def read_objects(path: Path, options: ReadingOptions) -> Source:
    """Read objects like NeMo's `{"audio_filepath": ..., "text": ..., "duration": ..., "offset": ...}`, one a line."""
    folder = options.folder(path)
    entries = []
    for number, line in text_files.lines(path):
        where = f"{path}:{number}"
        values = parsed(line, where)
        chosen = fields.roles(list(values), options.columns, where)
        for role, name in chosen.items():
            value = values[name]
            is_plain = isinstance(value, str | int | None) or (isinstance(value, float) and math.isfinite(value))
            if not is_plain or isinstance(value, bool):
                raise DataError(f"{where}: {name} ({role}) has the value {value!r}, which is of the wrong kind")
        entries.append(fields.entry(values, chosen, where, folder))
    return Source(entries, [path], [])


def parsed(line: str, where: str) -> dict[str, fields.Value]:
    """Parse a line that holds a JSON object. Raises DataError for any other."""
    try:
        values = bounded.parse(line)
    except ValueError as error:
        raise DataError(f"{where}: not a line of JSON ({error})") from error
    if not isinstance(values, dict):
        raise DataError(f'{where}: expected an object: {{"audio_filepath": "...", "text": "..."}}')
    return values
