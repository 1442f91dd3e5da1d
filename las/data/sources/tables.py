"""Tables of recordings: CSV and TSV with a header, and LJ Speech's `|` table without one.

Cases of them: `metadata.csv` of Hugging Face's audio folders (column `file_name`), the TSV files of Common Voice
(`path`, `sentence`, `client_id`; audio in `clips`), the CSV files of SpeechBrain and DeepSpeech.
"""

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from las.data.sources import fields
from las.data.sources.base import Entry, ReadingOptions, Source, audio_path
from las.runtime.errors import DataError
from las.storage import text_files

Rows = Iterator[tuple[int, list[str]]]


def read_csv(path: Path, options: ReadingOptions) -> Source:
    """Read a table with a header, whose fields are separated by commas or semicolons and may be quoted."""
    header = text_files.read(path).partition("\n")[0]
    delimiter = ";" if header.count(";") > header.count(",") else ","
    return _table(path, _rows(path, delimiter, csv.QUOTE_MINIMAL), options)


def read_tsv(path: Path, options: ReadingOptions) -> Source:
    """Read a table with a header, whose fields are separated by tabs; quotes are part of the text."""
    return _table(path, _rows(path, "\t", csv.QUOTE_NONE), options)


def read_ljspeech(path: Path, options: ReadingOptions) -> Source:
    """Read LJ Speech's `metadata.csv`: lines `id|text` or `id|text|normalised text`, audio in `wavs/<id>.wav`."""
    entries = []
    for number, line in text_files.lines(path):
        name, *texts = line.split("|")
        where = f"{path}:{number}"
        if len(texts) not in (1, 2) or not name.strip():
            raise DataError(f"{where}: {len(texts) + 1} fields between |, expected id|text or id|text|normalised text")
        audio = audio_path(options.folder(path) / "wavs", f"{name.strip()}.wav")
        entries.append(Entry(where, audio, texts[-1], id=name.strip()))
    return Source(entries, [path], [])


def _table(path: Path, rows: Rows, options: ReadingOptions) -> Source:
    number, header = next(rows, (1, []))
    header = [name.strip() for name in header]
    if twice := sorted({name for name in header if header.count(name) > 1}):
        raise DataError(f"{path}:{number}: two columns are called {twice[0]!r}: rename one of them")
    chosen = fields.roles(header, options.columns, f"{path}:{number}")
    folder = options.folder(path)
    if "client_id" in header and (folder / "clips").is_dir():
        folder = folder / "clips"
    entries = []
    for number, row in rows:
        where = f"{path}:{number}"
        if len(row) != len(header):
            hint = " A text with the separator in it must stand in double quotes" if len(row) > len(header) else ""
            raise DataError(f"{where}: {len(row)} fields, the header has {len(header)}.{hint}")
        entries.append(fields.entry(dict(zip(header, row, strict=True)), chosen, where, folder))
    return Source(entries, [path], [])


def _rows(path: Path, delimiter: str, quoting: Literal[0, 3]) -> Rows:
    """Rows with the number of their first line; blank lines are left out. Raises DataError for a table that is none."""
    reader = csv.reader(
        io.StringIO(text_files.read(path), newline=""), delimiter=delimiter, quoting=quoting, strict=True
    )
    number = 1
    try:
        for row in reader:
            if any(field.strip() for field in row):
                yield number, row
            number = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{path}:{number}: not a line of a table ({error}): look at its quotes") from error
