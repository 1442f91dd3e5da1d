"""Kaldi data folders: `wav.scp` with plain paths, `text`, and where they are there `segments`, `utt2spk`, channels.

No command in `wav.scp` is ever run.
"""

import math
import re
from pathlib import Path

from las.data.sources.base import Entry, ReadingOptions, Source, audio_path
from las.runtime.errors import DataError, first_of
from las.storage import text_files

CHANNELS = {"A": 0, "B": 1, "1": 0, "2": 1}
"""Channel of a telephone call by the name of its side."""
_IN_ARCHIVE = re.compile(r"\.ark:\d+$")


def read_kaldi(folder: Path, options: ReadingOptions) -> Source:
    """Read a data folder; segments and recordings without a text are left out, with a remark.

    Raises DataError naming file and line for a command or an archive in `wav.scp`, and for ids without a recording.
    """
    recordings = _audio(folder / "wav.scp", options.folder(folder / "wav.scp"))
    texts = _table(folder / "text", empty=True)
    speakers = _table(folder / "utt2spk") if (folder / "utt2spk").exists() else {}
    channels = _channels(folder / "reco2file_and_channel")
    segments = _segments(folder / "segments") if (folder / "segments").exists() else None
    entries = []
    for name, (where, spoken) in texts.items():
        recording, start_s, duration_s, named_at = name, 0.0, None, where
        if segments is not None:
            if name not in segments:
                raise DataError(f"{where}: {name} is not in {folder / 'segments'}")
            recording, start_s, duration_s, named_at = segments[name]
        if recording not in recordings:
            raise DataError(f"{named_at}: {recording} is not in {folder / 'wav.scp'}")
        place, audio = recordings[recording]
        speaker, channel = speakers.get(name, ("", ""))[1], channels.get(recording)
        place = place if segments is None else named_at
        entries.append(Entry(place, audio, spoken, name, speaker, channel, start_s, duration_s))
    listing, listed = ("segments", segments) if segments is not None else ("wav.scp", recordings)
    untold = [name for name in listed if name not in texts]
    remarks = [f"{folder / listing}: left out, not in text ({len(untold):,}): {first_of(untold, 3)}"] if untold else []
    names = ("wav.scp", "text", "utt2spk", "segments", "reco2file_and_channel")
    return Source(entries, [folder / name for name in names if (folder / name).exists()], remarks)


def _table(path: Path, empty: bool = False) -> dict[str, tuple[str, str]]:
    """Read lines `id value`: place and value by id. `empty` allows lines without a value."""
    table: dict[str, tuple[str, str]] = {}
    for number, line in text_files.lines(path):
        name, *rest = line.split(maxsplit=1)
        where = f"{path}:{number}"
        if name in table:
            raise DataError(f"{where}: {name} is already on {table[name][0]}")
        if not rest and not empty:
            raise DataError(f"{where}: nothing stands after {name}")
        table[name] = (where, rest[0] if rest else "")
    return table


def _audio(path: Path, folder: Path) -> dict[str, tuple[str, str]]:
    recordings = {}
    for name, (where, value) in _table(path).items():
        if value.endswith("|") or value.startswith("|"):
            # The command is shown and not run: it may be anything.
            raise DataError(
                f"{where}: {name} is a command, which las never runs. If you trust it, run it yourself, and put the "
                f"file that it writes here: {value.strip('| ')} > {name}.wav"
            )
        if _IN_ARCHIVE.search(value):
            raise DataError(f"{where}: {name} lies in an archive ({value}): write it to {name}.wav, and put that path")
        recordings[name] = (where, audio_path(folder, value))
    return recordings


def _segments(path: Path) -> dict[str, tuple[str, float, float | None, str]]:
    """Return recording, start, duration and place of each segment; an end of -1 is the end of the recording."""
    segments = {}
    for name, (where, value) in _table(path).items():
        parts = value.split()
        try:
            recording, start, end = parts
            to_the_end = text_files.number(end) == -1
            start_s, end_s = text_files.seconds(start), math.inf if to_the_end else text_files.seconds(end)
        except ValueError:
            start_s = end_s = math.inf
        if not start_s < end_s:
            raise DataError(f"{where}: {name} {value!r} is not `<segment> <recording> <start s> <end s>`")
        segments[name] = (recording, start_s, None if to_the_end else end_s - start_s, where)
    return segments


def _channels(path: Path) -> dict[str, int]:
    """Channel, counted from 0, of each recording of lines `recording file A`; empty without such a file."""
    channels = {}
    for name, (where, value) in (_table(path) if path.exists() else {}).items():
        label = value.split()[-1]
        if label not in CHANNELS:
            raise DataError(f"{where}: the channel of {name} is {label!r}, expected {', '.join(CHANNELS)}")
        channels[name] = CHANNELS[label]
    return channels
