"""Folders of audio: a `.txt` or `.lab` file beside each recording, or `*.trans.txt` files as in LibriSpeech."""

from pathlib import Path

from las.data.sources.base import AUDIO_SUFFIXES, Entry, ReadingOptions, Source, first_of
from las.storage import text_files

TEXT_SUFFIXES = (".txt", ".lab")


def read_folder(folder: Path, options: ReadingOptions) -> Source:
    """Read recordings with a text file of the same name beside each, in all folders below.

    In folders below, the folder is the speaker. Recordings without a text, and texts without a recording, are left
    out, with a remark.
    """
    entries, silent, texts = [], [], []
    for audio in audio_files(folder):
        path = next((each for each in map(audio.with_suffix, TEXT_SUFFIXES) if each.is_file()), None)
        if path is None:
            silent.append(str(audio.relative_to(folder)))
            continue
        speaker = "" if audio.parent == folder else audio.parent.name
        texts.append(path)
        entries.append(Entry(str(path), str(audio), " ".join(text_files.read(path).split()), speaker=speaker))
    others = {each for suffix in TEXT_SUFFIXES for each in folder.rglob(f"*{suffix}")} - set(texts)
    alone = sorted(str(path.relative_to(folder)) for path in others if not _beside_audio(path))
    remarks = _remarks(folder, silent, "no .txt or .lab beside them") + _remarks(folder, alone, "no audio beside them")
    return Source(entries, texts, remarks)


def read_librispeech(folder: Path, options: ReadingOptions) -> Source:
    """Read `*.trans.txt` files with lines `<id> WORDS`, the audio `<id>.flac` (or another ending) beside them.

    The speaker is the id up to its first `-`. Recordings without a line are left out, with a remark.
    """
    beside: dict[Path, Path] = {path.with_suffix(""): path for path in audio_files(folder)}
    entries, files = [], sorted(folder.rglob("*.trans.txt"))
    for path in files:
        for number, line in text_files.lines(path):
            name, *words = line.split(maxsplit=1)
            audio = beside.pop(path.parent / name, path.parent / f"{name}.flac")
            speaker = name.split("-")[0] if "-" in name else ""
            entries.append(Entry(f"{path}:{number}", str(audio), words[0] if words else "", name, speaker))
    silent = [str(path.relative_to(folder)) for path in beside.values()]
    return Source(entries, files, _remarks(folder, silent, "in no .trans.txt"))


def audio_files(folder: Path) -> list[Path]:
    """Audio files in a folder and those below it, by their endings, sorted."""
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in AUDIO_SUFFIXES and path.is_file())


def _beside_audio(path: Path) -> bool:
    return any(path.with_suffix(suffix).is_file() for suffix in AUDIO_SUFFIXES)


def _remarks(folder: Path, names: list[str], reason: str) -> list[str]:
    return [f"{folder}: left out, {reason} ({len(names):,}): {first_of(names, 3)}"] if names else []
