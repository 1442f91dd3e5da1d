"""Formats of sources: their names, their readers, and recognition of a file or folder by its content."""

import itertools
from collections.abc import Callable
from pathlib import Path

from las.data.sources import fields, folder, json_lines, kaldi, parts, tables
from las.data.sources.base import ReadingOptions, Source
from las.runtime.errors import ConfigError, DataError, suggest
from las.storage import bounded, folders, text_files

READERS: dict[str, Callable[[Path, ReadingOptions], Source]] = {
    "manifest": json_lines.read_manifest,
    "jsonl": json_lines.read_objects,
    "csv": tables.read_csv,
    "tsv": tables.read_tsv,
    "ljspeech": tables.read_ljspeech,
    "kaldi": kaldi.read_kaldi,
    "librispeech": folder.read_librispeech,
    "folder": folder.read_folder,
}
LIST = """Formats (corpus.format=...):
  manifest     JSON lines that `las prepare` wrote
  jsonl        JSON lines with audio_filepath and text, as NeMo's
  csv, tsv     a table with a header that names a column of audio files and one of texts
  ljspeech     lines id|text, the audio in wavs
  kaldi        a folder with wav.scp and text
  librispeech  a folder with *.trans.txt files beside the audio
  folder       a folder of audio with a .txt or .lab file beside each"""
_FOLDERS = ("kaldi", "librispeech", "folder")
SEARCHED = frozenset(("librispeech", "folder"))
"""Formats whose audio is found by looking into folders; in the others a file names it."""


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
    if named.is_dir() and path not in (
        named,
        parts.listing(named),
    ):  # the listing of a whole dataset, of which one split was named
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
    if any(map(folder.is_librispeech, files)):
        return "librispeech"
    return "folder" if folder.of_audio(files) else None


def _of_file(path: Path) -> str | None:
    first = _first_line(path)
    if first.startswith("{"):
        keys = json_lines.parsed(first, f"{path}:1").keys()
        return "manifest" if {"audio", "start_s", "duration_s"} <= keys else "jsonl"
    if "\t" in first:
        return "tsv"
    if first.count("|") in (1, 2) and not fields.is_header(first.split("|")):
        return "ljspeech"
    return "csv" if tables.delimiter(first) in first else None


def _first_line(path: Path) -> str:
    """The first line of a text file; empty for a file with a byte that no text has."""
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
