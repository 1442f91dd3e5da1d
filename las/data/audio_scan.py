"""What reading audio files to their end has found, kept so that the next start needs to look at their names only."""

import json
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from las.data.audio import files, worker_pool
from las.data.audio_levels import Reading, Sound, measure, state, stretch
from las.data.manifest import Utterance
from las.runtime import progress
from las.runtime.errors import DataError
from las.storage import bounded

# Part of every entry: raise it when a reading begins to mean something else.
_FORMAT = 1


class Readings:
    """The readings of audio files, remembered in `path`, one JSON line each; without a path, in memory only.

    An entry holds as long as the file has the size and the time of change that it had. Files that could not be read
    are not remembered: they are tried again. Lines are appended as files are read, so that a check that was stopped
    goes on where it was, and of two entries the later one counts.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._entries: dict[str, list[Any]] = {}

    @classmethod
    def remembered(cls, path: Path) -> "Readings":
        """Those that earlier processes have left in `path`; lines that are not entries are none."""
        readings = cls(path)
        for line in path.read_bytes().splitlines() if path.exists() else ():
            try:
                version, name, *entry = bounded.parse(line)
                if version == _FORMAT:
                    readings._entries[name] = entry
            except (ValueError, TypeError):
                continue
        return readings

    def read(self, utterances: Sequence[Utterance], num_workers: int, what: str) -> dict[str, Reading | DataError]:
        """The reading of every audio file of some utterances, or why it cannot be read, by its name.

        Files without a reading are read completely, once each, in threads; `what` they are is said of the progress.
        """
        by_file: dict[str, set[str]] = {}
        for utterance in utterances:
            by_file.setdefault(utterance.audio, set()).add(stretch(utterance))
        found: dict[str, Reading | DataError] = {}
        unread: list[tuple[str, set[str]]] = []
        for name, stretches in by_file.items():
            reading = self._recall(name, stretches)
            if reading is None:
                unread.append((name, stretches))
            else:
                found[name] = reading
        if unread:
            found |= self._read_all(unread, num_workers, what)
        return found

    def _read_all(
        self, unread: list[tuple[str, set[str]]], num_workers: int, what: str
    ) -> dict[str, Reading | DataError]:
        found: dict[str, Reading | DataError] = {}
        lines: list[str] = []
        pool = ThreadPoolExecutor(num_workers, thread_name_prefix="las-readings")
        try:
            outcomes = zip(unread, pool.map(lambda file: _read(*file), unread), strict=True)
            for (name, _), outcome in progress.counted(outcomes, len(unread), what):
                if isinstance(outcome, DataError):
                    found[name] = outcome
                else:
                    reading, before = outcome
                    found[name] = reading
                    self._entries[name] = entry = [*before, *_plain(reading)]
                    lines.append(json.dumps([_FORMAT, name, *entry], separators=(",", ":")) + "\n")
                if len(lines) == 1000:
                    self._append(lines)
        finally:
            pool.shutdown(cancel_futures=True)
            self._append(lines)
        return found

    def _append(self, lines: list[str]) -> None:
        if self.path is not None and lines:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="ascii") as file:
                file.writelines(lines)
        lines.clear()

    def _recall(self, name: str, stretches: Iterable[str]) -> Reading | None:
        entry = self._entries.get(name)
        if entry is None or entry[:2] != state(name):
            return None
        rate, num_samples, channels, sounds = entry[2:]
        if not sounds.keys() >= set(stretches):
            return None
        return Reading(files.AudioInfo(rate, num_samples, channels), {key: Sound(*sounds[key]) for key in stretches})


def _plain(reading: Reading) -> list[Any]:
    info = reading.info
    return [info.sample_rate, info.num_samples, info.channels, reading.sounds]


def _read(name: str, stretches: set[str]) -> tuple[Reading, list[int]] | DataError:
    try:
        return worker_pool.elsewhere(name, measure, name, stretches)
    except DataError as error:
        return error
