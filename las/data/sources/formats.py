"""Formats of sources: their readers, and recognition of a file or folder by its content; Kaldi's is in `kaldi`.

JSON lines are manifests of this package, or objects with named fields as NeMo writes them. Tables are CSV and TSV with
a header, and LJ Speech's `|` table without one; cases of them: `metadata.csv` of Hugging Face's audio folders (column
`file_name`), the TSV files of Common Voice (`path`, `sentence`, `client_id`; audio in `clips`), the CSV files of
SpeechBrain and DeepSpeech. Folders of audio have a `.txt` or `.lab` file next to each recording, or `*.trans.txt` files
as in LibriSpeech.
"""

import csv
import io
import itertools
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from las.data import manifest
from las.data.audio.files import SUFFIXES
from las.data.sources import fields, kaldi, parts
from las.data.sources.base import Entry, ReadingOptions, Source, audio_path
from las.runtime.errors import ConfigError, DataError, suggest
from las.storage import bounded, folders, text_files

LIST = """Formats (corpus.format=...):
  manifest     JSON lines that `las prepare` wrote
  jsonl        JSON lines with audio_filepath and text, as NeMo's
  csv, tsv     a table with a header that names a column of audio files and one of texts
  ljspeech     lines id|text, the audio in wavs
  kaldi        a folder with wav.scp and text
  librispeech  a folder with *.trans.txt files next to the audio
  folder       a folder of audio with a .txt or .lab file next to each"""
_FOLDERS = ("kaldi", "librispeech", "folder")
SEARCHED = frozenset(("librispeech", "folder"))
"""Formats whose audio is found by looking into folders; in the others a file names it."""
TEXT_SUFFIXES = (".txt", ".lab")
_QUOTES = (
    'A text with quotes in it is written "he said ""no"" twice"; other quotes at its start or end are to be deleted'
)


def check_format(name: str | None) -> None:
    """Raise ConfigError with the nearest names for an unknown format; None stands for recognition."""
    if name is not None and name not in READERS:
        raise ConfigError(f"corpus.format={name}: there is no such format.{suggest(name, READERS)}\n{LIST}")


def read(path: Path, name: str | None, options: ReadingOptions) -> tuple[str, Source]:
    """Read a source of the format `name`, or of the one it is recognised as (None). Returns the format with it.

    Raises DataError for a source that is not there, is not recognised, or has no utterances.
    """
    if not path.exists():
        if path.is_symlink():
            raise DataError(f"{path}: a link that leads to no file or folder: {path.readlink()}")
        siblings = [each.name for each in path.parent.iterdir()] if path.parent.is_dir() else []
        raise DataError(f"{path}: there is no such file or folder.{suggest(path.name, siblings)}")
    named = path
    if path.is_dir() and name not in _FOLDERS:
        path = parts.listing(path) or parts.listing_above(path) or path
    name = name or recognised(path)
    if path.is_dir() != (name in _FOLDERS):
        kind, expected = ("folder", "file") if path.is_dir() else ("file", "folder")
        raise DataError(f"{path}: a {kind}, and corpus.format={name} is a {expected}")
    source = READERS[name](path, options)
    # The listing of a whole dataset, of which one split was named.
    if named.is_dir() and path not in (named, parts.listing(named)):
        inside = [entry for entry in source.entries if Path(entry.audio).is_relative_to(named)]
        source = source._replace(entries=inside)
    if not source.entries:
        raise DataError("\n".join([f"{path}: there are no utterances in it, read as {name}", *source.remarks]))
    return name, source


def recognised(path: Path) -> str:
    """Recognise the format of a file or folder by its content. Raises DataError listing the formats for none."""
    name = _of_folder(path) if path.is_dir() else _of_file(path)
    if name is None:
        raise DataError(f"{path}: not recognised as a source of recordings: {_content(path)}\n{LIST}")
    return name


def _of_folder(path: Path) -> str | None:
    if (path / "wav.scp").is_file():
        return "kaldi"
    files = folders.search(path).files
    if any(map(is_librispeech, files)):
        return "librispeech"
    return "folder" if of_audio(files) else None


def _of_file(path: Path) -> str | None:
    first = _first_line(path)
    if first.startswith("{"):
        keys = parsed(first, f"{path}:1").keys()
        return "manifest" if {"audio", "start_s", "duration_s"} <= keys else "jsonl"
    if "\t" in first:
        return "tsv"
    if first.count("|") in (1, 2) and not fields.is_header(first.split("|")):
        return "ljspeech"
    return "csv" if delimiter(first) in first else None


def _first_line(path: Path) -> str:
    """Return the first line of a text file; empty for a file with a byte that no text has."""
    try:
        with bounded.open_file(path, bounded.LINES) as file:
            beginning = file.read(4096)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({bounded.reason(error)})") from error
    if b"\0" in beginning and text_files.encoding(beginning)[1] == "utf-8":
        return ""
    return text_files.read(path).lstrip().partition("\n")[0].rstrip("\r")


def _content(path: Path) -> str:
    """Content of a file or folder in short, for an error."""
    if path.is_dir():
        names = sorted(f"{each.name}/" if each.is_dir() else each.name for each in itertools.islice(path.iterdir(), 8))
        return f"a folder with {', '.join(names)}" if names else "an empty folder"
    with path.open("rb") as file:
        beginning = file.read(40)
    return f"a file that begins with {beginning!r}" if beginning else "an empty file"


def read_manifest(path: Path, options: ReadingOptions) -> Source:
    """Read a manifest of this package, as `las prepare` writes it."""
    folder, name, entries = options.folder(path), str(path), []
    for each in manifest.read(path):
        stretch = (each.channel, each.start_s, each.duration_s or None)
        audio = audio_path(folder, each.audio)
        entries.append(Entry(f"{name}: {each.id}", audio, each.text, each.id, each.speaker, *stretch, each.alignment))
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
    is_file = Path(name).suffix.lower() in SUFFIXES
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
            closes = (
                f"closes in line {row.number + len(row.lines) - 1}, so that {len(row.lines)} lines would be one row"
            )
            raise DataError(f"{where}: a quote opens here and {closes}. {_QUOTES}")
        if len(row.fields) != len(header):
            says = f"{len(row.fields)} fields, the header has {len(header)}."
            hint = " A text with the separator in it must stand in double quotes"
            raise DataError(f"{where}: {says}{hint if len(row.fields) > len(header) else ''}")
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


def read_folder(folder: Path, options: ReadingOptions) -> Source:
    """Read recordings with a text file of the same name, in any case of letters, next to each in all folders below.

    In folders below, the folder is the speaker. Recordings without a text, and texts without a recording, are left
    out, with a remark.
    """
    found = folders.search(folder)
    audio = [(path, path.with_suffix("")) for path in of_audio(found.files)]
    texts, spoken = _texts_of(found.files), {stem for _, stem in audio}
    spare = {str(stem).lower(): path for stem, path in texts.items() if stem not in spoken}
    entries, silent = [], []
    for path, stem in audio:
        if text := texts.get(stem) or spare.pop(str(stem).lower(), None):
            speaker = "" if path.parent == folder else path.parent.name
            entries.append(Entry(str(text), str(path), " ".join(text_files.read(text).split()), speaker=speaker))
        else:
            silent.append(path)
    remarks = _remarks(folder, silent, "no .txt or .lab next to them")
    remarks += _remarks(folder, list(spare.values()), "no audio next to them")
    return Source(entries, [Path(entry.where) for entry in entries], [*found.remarks(), *remarks])


def read_librispeech(folder: Path, options: ReadingOptions) -> Source:
    """Read `*.trans.txt` files with lines `<id> WORDS`, the audio `<id>.flac` (or another ending) next to them.

    The speaker is the id up to its first `-`. Recordings without a line are left out, with a remark.
    """
    found = folders.search(folder)
    unlisted: dict[Path, Path] = {path.with_suffix(""): path for path in of_audio(found.files)}
    entries, files = [], [path for path in found.files if is_librispeech(path)]
    for path in files:
        for number, line in text_files.lines(path):
            name, *words = line.split(maxsplit=1)
            audio = unlisted.pop(path.parent / name, path.parent / f"{name}.flac")
            speaker = name.split("-")[0] if "-" in name else ""
            entries.append(Entry(f"{path}:{number}", str(audio), words[0] if words else "", name, speaker))
    return Source(entries, files, [*found.remarks(), *_remarks(folder, [*unlisted.values()], "in no .trans.txt")])


def of_audio(files: Iterable[Path]) -> list[Path]:
    """Return the audio files among some, by their endings in any case of letters."""
    return [path for path in files if path.suffix.lower() in SUFFIXES]


def is_librispeech(path: Path) -> bool:
    """Return whether a file holds transcripts, by its name in LibriSpeech's form."""
    return path.name.lower().endswith(".trans.txt")


def _texts_of(files: Iterable[Path]) -> dict[Path, Path]:
    """Files of texts by their paths without the ending; of several, that of the first of `TEXT_SUFFIXES`."""
    texts = [path for path in files if path.suffix.lower() in TEXT_SUFFIXES]
    texts.sort(key=lambda path: TEXT_SUFFIXES.index(path.suffix.lower()), reverse=True)
    return {path.with_suffix(""): path for path in texts}


def _remarks(folder: Path, paths: list[Path], reason: str) -> list[str]:
    return folders.Found(folder, [], {reason: paths} if paths else {}).remarks()


READERS: dict[str, Callable[[Path, ReadingOptions], Source]] = {
    "manifest": read_manifest,
    "jsonl": read_objects,
    "csv": read_csv,
    "tsv": read_tsv,
    "ljspeech": read_ljspeech,
    "kaldi": kaldi.read_kaldi,
    "librispeech": read_librispeech,
    "folder": read_folder,
}
