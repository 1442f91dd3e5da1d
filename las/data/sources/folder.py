"""Folders of audio: a `.txt` or `.lab` file beside each recording, or `*.trans.txt` files as in LibriSpeech."""

from collections.abc import Iterable
from pathlib import Path

from las.data.audio import streams
from las.data.sources.base import Entry, ReadingOptions, Source
from las.storage import folders, text_files

TEXT_SUFFIXES = (".txt", ".lab")


def read_folder(folder: Path, options: ReadingOptions) -> Source:
    """Read recordings with a text file of the same name, in any case of letters, beside each in all folders below.

    In folders below, the folder is the speaker. Recordings without a text, and texts without a recording, are left
    out, with a remark.
    """
    found = folders.search(folder)
    audio = [(path, path.with_suffix("")) for path in of_audio(found.files)]
    texts, spoken = _texts(found.files), {stem for _, stem in audio}
    spare = {str(stem).lower(): path for stem, path in texts.items() if stem not in spoken}
    beside = {path: texts.get(stem) or spare.pop(str(stem).lower(), None) for path, stem in audio}
    entries = [_entry(path, text, folder) for path, text in beside.items() if text is not None]
    silent, alone = [path for path, text in beside.items() if text is None], list(spare.values())
    remarks = _remarks(folder, silent, "no .txt or .lab beside them") + _remarks(folder, alone, "no audio beside them")
    return Source(entries, [Path(entry.where) for entry in entries], [*found.remarks(), *remarks])


def read_librispeech(folder: Path, options: ReadingOptions) -> Source:
    """Read `*.trans.txt` files with lines `<id> WORDS`, the audio `<id>.flac` (or another ending) beside them.

    The speaker is the id up to its first `-`. Recordings without a line are left out, with a remark.
    """
    found = folders.search(folder)
    beside: dict[Path, Path] = {path.with_suffix(""): path for path in of_audio(found.files)}
    entries, files = [], [path for path in found.files if is_librispeech(path)]
    for path in files:
        for number, line in text_files.lines(path):
            name, *words = line.split(maxsplit=1)
            audio = beside.pop(path.parent / name, path.parent / f"{name}.flac")
            speaker = name.split("-")[0] if "-" in name else ""
            entries.append(Entry(f"{path}:{number}", str(audio), words[0] if words else "", name, speaker))
    return Source(entries, files, [*found.remarks(), *_remarks(folder, [*beside.values()], "in no .trans.txt")])


def of_audio(files: Iterable[Path]) -> list[Path]:
    """The audio files among some, by their endings in any case of letters."""
    return [path for path in files if path.suffix.lower() in streams.SUFFIXES]


def is_librispeech(path: Path) -> bool:
    """Return whether a file holds transcripts, by its name in LibriSpeech's form."""
    return path.name.lower().endswith(".trans.txt")


def _texts(files: Iterable[Path]) -> dict[Path, Path]:
    """Files of texts by their paths without the ending; of several, that of the first of `TEXT_SUFFIXES`."""
    texts = [path for path in files if path.suffix.lower() in TEXT_SUFFIXES]
    texts.sort(key=lambda path: TEXT_SUFFIXES.index(path.suffix.lower()), reverse=True)
    return {path.with_suffix(""): path for path in texts}


def _entry(audio: Path, path: Path, folder: Path) -> Entry:
    speaker = "" if audio.parent == folder else audio.parent.name
    return Entry(str(path), str(audio), " ".join(text_files.read(path).split()), speaker=speaker)


def _remarks(folder: Path, paths: list[Path], reason: str) -> list[str]:
    return folders.Found(folder, [], {reason: paths} if paths else {}).remarks()
