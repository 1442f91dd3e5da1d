"""Cache of headers and levels of audio files, so that files that have not changed are read only once."""

import contextlib
import io
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from las.data.audio import files, worker_pool
from las.data.audio.worker import AudioLevels, AudioScan, measure, state
from las.data.manifest import Utterance
from las.runtime import devices, progress
from las.runtime.errors import DataError
from las.storage import bounded

# Part of every entry: raise it when the meaning of an entry changes. Up to 1, joined files ended with their first part.
_FORMAT = 2
_HEADER_THREADS = 4

Headers = Mapping[str, files.AudioInfo | None]
"""Headers of audio files; None for those that cannot be read, for which the check of the corpus gives the reason."""
_Stretches = Collection[str]


def segment_key(utterance: Utterance) -> str:
    """Key of an utterance within its file: channel, start and duration in seconds."""
    return f"{utterance.channel} {utterance.start_s:.6f} {utterance.duration_s:.6f}"


class AudioScanCache:
    """Cache of audio scans in the file `path`, one JSON line each; without a path, in memory only.

    An entry is valid while the file has the same size and modification time. Files that could not be read have no
    entry and are tried again. Lines are appended as files are read, so that an interrupted check continues; of two
    entries the later one counts. A disk that refuses lines costs no more than reading the files again.
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
                match value:
                    case [version, str(name), int(), int(), int(), int(), int(), dict()] if version == _FORMAT:
                        readings._entries[name] = value[2:]
        return readings

    @devices.garbage_paused()
    def read(self, utterances: Sequence[Utterance], num_workers: int, title: str) -> dict[str, AudioScan | DataError]:
        """Scan of each audio file of some utterances by file name, or the error of one that cannot be read.

        Files without an entry are read completely, once each, in threads. `title` describes them in the progress.
        """
        by_file: dict[str, set[str]] = {}
        for utterance in utterances:
            by_file.setdefault(utterance.audio, set()).add(segment_key(utterance))
        known, unread = self._recalled(by_file)
        return known | self._read(_read_all, unread, num_workers, title)

    def headers(self, paths: Iterable[str]) -> dict[str, files.AudioInfo | None]:
        """Read `Headers`, those without an entry from the files."""
        known, unread = self._recalled({path: () for path in paths})
        known |= self._read(_read_header, unread, _HEADER_THREADS, "audio headers read")
        return {path: scan.info if isinstance(scan, AudioScan) else None for path, scan in known.items()}

    def _recalled(
        self, by_file: Mapping[str, _Stretches]
    ) -> tuple[dict[str, AudioScan | DataError], dict[str, _Stretches]]:
        """Scans of the files whose entries hold all their stretches, and the other files."""
        known: dict[str, AudioScan | DataError] = {}
        for name, stretches in by_file.items():
            if (entry := self._entries.get(name)) and entry[:2] == state(name) and entry[5].keys() >= set(stretches):
                levels = {key: AudioLevels(*entry[5][key]) for key in stretches}
                known[name] = AudioScan(files.AudioInfo(*entry[2:5]), levels)
        return known, {name: stretches for name, stretches in by_file.items() if name not in known}

    def _read(
        self,
        read: Callable[[str, _Stretches], tuple[AudioScan, list[int]] | DataError],
        unread: Mapping[str, _Stretches],
        num_workers: int,
        title: str,
    ) -> dict[str, AudioScan | DataError]:
        if not unread:
            return {}
        scans: dict[str, AudioScan | DataError] = {}
        lines: list[str] = []
        pool = ThreadPoolExecutor(num_workers, thread_name_prefix="las-readings")
        try:
            outcomes = zip(unread, pool.map(read, unread.keys(), unread.values()), strict=True)
            for name, outcome in progress.counted(outcomes, len(unread), title):
                if isinstance(outcome, DataError):
                    scans[name] = outcome
                    continue
                scans[name], file_state = outcome
                info, levels = outcome[0]
                self._entries[name] = entry = [*file_state, info.sample_rate, info.num_samples, info.channels, levels]
                lines.append(json.dumps([_FORMAT, name, *entry], separators=(",", ":")) + "\n")
                if len(lines) == 1000:
                    self._append(lines)
        finally:
            pool.shutdown(cancel_futures=True)
            self._append(lines)
        return scans

    def _append(self, lines: list[str]) -> None:
        if self.path is not None and lines:
            with contextlib.suppress(OSError):
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with self.path.open("a", encoding="ascii") as file:
                    file.writelines(lines)
        lines.clear()


def _read_all(name: str, stretches: _Stretches) -> tuple[AudioScan, list[int]] | DataError:
    try:
        return worker_pool.run_in_worker(name, measure, name, stretches)
    except DataError as error:
        return error


def _read_header(name: str, _: _Stretches) -> tuple[AudioScan, list[int]] | DataError:
    state_before = state(name)
    try:
        return AudioScan(files.info(name), {}), state_before
    except DataError as error:
        return error
