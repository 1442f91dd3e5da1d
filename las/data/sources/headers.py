"""Headers of audio files, remembered on the disk: a corpus of hundreds of thousands of files opens each only once."""

import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from las.data.audio import files
from las.data.audio.files import AudioInfo
from las.data.audio_levels import state
from las.runtime.errors import DataError
from las.storage import atomic, bounded

Headers = Mapping[str, AudioInfo | None]
# Raise it when headers begin to say something else of the same files.
_FORMAT = 2
_NUM_THREADS = 4
_FEW = 100
"""Number of files whose headers are read as fast as remembered ones."""


def read(paths: Iterable[str | Path], remembered: Path | None = None) -> dict[str, AudioInfo | None]:
    """Header of each audio file; None where it cannot be read, for which the check of the corpus gives the reason.

    Headers of files that have had the same size and modification time before are taken from the file `remembered`,
    which is written again when others were read. Without it, all are read.
    """
    listed = sorted(set(map(str, paths)))
    if remembered is None or len(listed) < _FEW:
        return _read(listed)
    known = _load(remembered)
    states = {path: state(path) for path in listed}
    unread = [path for path in listed if path not in known or known[path][:2] != states[path]]
    read_now = _read(unread)
    infos = {path: read_now[path] if path in read_now else AudioInfo(*known[path][2:]) for path in listed}
    if any(read_now.values()):
        _store(remembered, {path: (states[path], info) for path, info in infos.items() if info is not None})
    return infos


def _read(paths: Sequence[str]) -> dict[str, AudioInfo | None]:
    with ThreadPoolExecutor(_NUM_THREADS) as pool:
        return dict(zip(paths, pool.map(_header, paths), strict=True))


def _header(path: str) -> AudioInfo | None:
    try:
        return files.info(path)
    except DataError:
        return None


def _load(remembered: Path) -> dict[str, list[int]]:
    """Read remembered headers, size, time, rate, samples and channels by path; a damaged file is as good as none."""
    try:
        content = bounded.parse(bounded.read(remembered, bounded.LINES))
        known = {path: numbers for path, *numbers in content["headers"]} if content["format"] == _FORMAT else {}
    except (OSError, ValueError, TypeError, KeyError):
        return {}
    sound = all(isinstance(path, str) and _is_header(numbers) for path, numbers in known.items())
    return known if sound else {}


def _is_header(numbers: list[object]) -> bool:
    return len(numbers) == 5 and all(type(number) is int for number in numbers)


def _store(remembered: Path, infos: dict[str, tuple[list[int], AudioInfo]]) -> None:
    """Write headers to be remembered; a disk that refuses costs no more than reading them again."""
    lines = [[path, *place, info.sample_rate, info.num_samples, info.channels] for path, (place, info) in infos.items()]
    try:
        content = {"format": _FORMAT, "headers": lines}
        atomic.write(remembered, json.dumps(content, separators=(",", ":")))
    except OSError:
        return
