"""Cache of audio scans, so that files that have not changed are read to their end only once."""

import io
import json
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from las.data.audio import files, worker_pool
from las.data.audio_levels import AudioLevels, AudioScan, measure, segment_key, state
from las.data.manifest import Utterance
from las.runtime import devices, progress
from las.runtime.errors import DataError
from las.storage import bounded

# Part of every entry: raise it when the meaning of an entry changes. Up to 1, joined files ended with their first part.
_FORMAT = 2


class AudioScanCache:
    """Cache of audio scans in the file `path`, one JSON line each; without a path, in memory only.

    An entry is valid while the file has the same size and modification time. Files that could not be read have no
    entry and are tried again. Lines are appended as files are read, so that an interrupted check continues; of two
    entries the later one counts.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._entries: dict[str, list[Any]] = {}

    @classmethod
    @devices.garbage_paused()
    def remembered(cls, path: Path) -> "AudioScanCache":
        """Load the cache that earlier processes wrote to `path`; lines that are not entries are ignored."""
        readings = cls(path)
        with path.open("rb") if path.exists() else io.BytesIO() as lines:
            for _, value in bounded.parse_lines(lines):
                try:
                    version, name, *entry = value
                except (ValueError, TypeError):
                    continue
                if version == _FORMAT and isinstance(name, str):
                    readings._entries[name] = entry
        return readings

    @devices.garbage_paused()
    def read(self, utterances: Sequence[Utterance], num_workers: int, title: str) -> dict[str, AudioScan | DataError]:
        """Scan of each audio file of some utterances by file name, or the error of one that cannot be read.

        Files without an entry are read completely, once each, in threads. `title` describes them in the progress.
        """
        by_file: dict[str, set[str]] = {}
        for utterance in utterances:
            by_file.setdefault(utterance.audio, set()).add(segment_key(utterance))
        scans: dict[str, AudioScan | DataError] = {}
        unread: list[tuple[str, set[str]]] = []
        for name, stretches in by_file.items():
            reading = self._recall(name, stretches)
            if reading is None:
                unread.append((name, stretches))
            else:
                scans[name] = reading
        if unread:
            scans |= self._read_all(unread, num_workers, title)
        return scans

    def _read_all(
        self, unread: list[tuple[str, set[str]]], num_workers: int, title: str
    ) -> dict[str, AudioScan | DataError]:
        scans: dict[str, AudioScan | DataError] = {}
        lines: list[str] = []
        pool = ThreadPoolExecutor(num_workers, thread_name_prefix="las-readings")
        try:
            outcomes = zip(unread, pool.map(lambda file: _read(*file), unread), strict=True)
            for (name, _), outcome in progress.counted(outcomes, len(unread), title):
                if isinstance(outcome, DataError):
                    scans[name] = outcome
                else:
                    reading, file_state = outcome
                    scans[name] = reading
                    self._entries[name] = entry = [*file_state, *_plain(reading)]
                    lines.append(json.dumps([_FORMAT, name, *entry], separators=(",", ":")) + "\n")
                if len(lines) == 1000:
                    self._append(lines)
        finally:
            pool.shutdown(cancel_futures=True)
            self._append(lines)
        return scans

    def _append(self, lines: list[str]) -> None:
        if self.path is not None and lines:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="ascii") as file:
                file.writelines(lines)
        lines.clear()

    def _recall(self, name: str, stretches: Iterable[str]) -> AudioScan | None:
        entry = self._entries.get(name)
        if entry is None or entry[:2] != state(name):
            return None
        rate, num_samples, channels, sounds = entry[2:]
        if not sounds.keys() >= set(stretches):
            return None
        return AudioScan(
            files.AudioInfo(rate, num_samples, channels), {key: AudioLevels(*sounds[key]) for key in stretches}
        )


def _plain(reading: AudioScan) -> list[Any]:
    info = reading.info
    return [info.sample_rate, info.num_samples, info.channels, reading.sounds]


def _read(name: str, stretches: set[str]) -> tuple[AudioScan, list[int]] | DataError:
    try:
        return worker_pool.run_in_worker(name, measure, name, stretches)
    except DataError as error:
        return error
