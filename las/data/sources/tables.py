"""Tables of recordings: CSV and TSV with a header, and LJ Speech's `|` table without one.

Cases of them: `metadata.csv` of Hugging Face's audio folders (column `file_name`), the TSV files of Common Voice
(`path`, `sentence`, `client_id`; audio in `clips`), the CSV files of SpeechBrain and DeepSpeech.
"""

import csv
import io
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from las.data.audio import streams
from las.data.sources import fields
from las.data.sources.base import Entry, ReadingOptions, Source, audio_path
from las.runtime.errors import DataError
from las.storage import text_files

_QUOTES = (
    'A text with quotes in it is written "he said ""no"" twice"; other quotes at its start or end are to be deleted'
)


class Row(NamedTuple):
    """Fields of a row, the number of its first line, and the text of its lines."""

    number: int
    fields: list[str]
    lines: list[str]


def read_csv(path: Path, options: ReadingOptions) -> Source:
    """Read a table with a header, whose fields are separated by commas, semicolons or `|` and may be quoted."""
    header = text_files.read(path).lstrip().partition("\n")[0]
    return _table(path, delimiter(header), csv.QUOTE_MINIMAL, options)


def delimiter(header: str) -> str:
    """Separator of the fields of a header: commas, semicolons or `|`, whichever is most frequent."""
    return max(",;|", key=header.count)


def read_tsv(path: Path, options: ReadingOptions) -> Source:
    """Read a table with a header, whose fields are separated by tabs; quotes are part of the text."""
    return _table(path, "\t", csv.QUOTE_NONE, options)


def read_ljspeech(path: Path, options: ReadingOptions) -> Source:
    """Read lines `id|text` or `id|text|normalised text` as in LJ Speech, the audio in `wavs/<id>.wav`.

    In place of the id a path may stand, from the folder of the table or from `wavs`.
    """
    entries = []
    for number, line in text_files.lines(path):
        name, *texts = line.split("|")
        where = f"{path}:{number}"
        if len(texts) not in (1, 2) or not name.strip():
            raise DataError(f"{where}: {len(texts) + 1} fields between |, expected id|text or id|text|normalised text")
        entries.append(_ljspeech(name.strip(), options.folder(path), where, texts[-1]))
    return Source(entries, [path], [])


def _ljspeech(name: str, folder: Path, where: str, text: str) -> Entry:
    is_file = Path(name).suffix.lower() in streams.SUFFIXES
    places = [audio_path(each, name if is_file else f"{name}.wav") for each in (folder / "wavs", folder)]
    audio = next(filter(os.path.isfile, places), places["/" in name])
    return Entry(where, audio, text, id="" if is_file else name)


def _table(path: Path, delimiter: str, quoting: Literal[0, 3], options: ReadingOptions) -> Source:
    rows = _rows(path, delimiter, quoting)
    number, header, _ = next(rows, Row(1, [], []))
    header = [name.strip() for name in header]
    if twice := [name for name, count in Counter(header).items() if count > 1]:
        raise DataError(f"{path}:{number}: two columns are called {min(twice)!r}: rename one of them")
    chosen = fields.roles(header, options.columns, f"{path}:{number}")
    folder = options.folder(path)
    if "client_id" in header and (folder / "clips").is_dir():
        folder = folder / "clips"
    entries = []
    for row in rows:
        where = f"{path}:{row.number}"
        if sum(line.count(delimiter) >= len(header) - 1 for line in row.lines) > 1:
            raise DataError(
                f"{where}: a quote opens here and closes in line {row.number + len(row.lines) - 1}, so that "
                f"{len(row.lines)} lines would be one row. {_QUOTES}"
            )
        if len(row.fields) != len(header):
            hint = (
                " A text with the separator in it must stand in double quotes" if len(row.fields) > len(header) else ""
            )
            raise DataError(f"{where}: {len(row.fields)} fields, the header has {len(header)}.{hint}")
        entries.append(fields.entry(dict(zip(header, row.fields, strict=True)), chosen, where, folder))
    return Source(entries, [path], [])


def _rows(path: Path, delimiter: str, quoting: Literal[0, 3]) -> Iterator[Row]:
    """Rows of a table; blank lines are left out. Raises DataError for a table that is none."""
    lines = list(io.StringIO(text_files.read(path), newline=""))
    reader = csv.reader(lines, delimiter=delimiter, quoting=quoting, strict=True)
    number = 1
    try:
        for row in reader:
            if any(field.strip() for field in row):
                yield Row(number, row, lines[number - 1 : reader.line_num])
            number = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{path}:{number}: not a line of a table ({error}): look at its quotes. {_QUOTES}") from error
