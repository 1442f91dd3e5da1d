"""Telephone calls: SPHERE files with one speaker in each of two channels, and segments of them."""

from collections.abc import Callable, Iterable
from pathlib import Path

from las.data.manifest import Utterance
from las.data.quality import AudioScanCache
from las.data.sources.kaldi import CHANNELS
from las.data.sources.utterances import OVERSHOOT_S
from las.runtime.errors import DataError
from las.storage import folders


def find(root: Path, name: Callable[[str], str | None] = str.lower) -> dict[str, Path]:
    """Find the SPHERE files below a folder, keyed by `name(stem)`; files for which that is None are left out.

    Raises DataError for a folder that does not exist and for two files of the same name.
    """
    if not root.is_dir():
        raise DataError(f"{root}: there is no such folder")
    calls: dict[str, Path] = {}
    for path in folders.search(root).files:
        call = name(path.stem) if path.suffix.lower() == ".sph" else None
        if call in calls:
            raise DataError(f"{path}: the same call as {calls[call]}. Remove one of them, or point to one copy")
        if call is not None:
            calls[call] = path
    return calls


def durations(paths: Iterable[Path]) -> dict[Path, float]:
    """Durations of calls in seconds by their headers, 0 for unreadable files."""
    headers = AudioScanCache().headers(map(str, paths))
    return {Path(path): 0.0 if info is None else info.duration_s for path, info in headers.items()}


def utterance(
    name: str, audio: Path, channel: str, times_s: tuple[float, float], text: str, speaker: str, call_s: float
) -> Utterance:
    """Utterance for a segment of a call (`times_s`, seconds), cut at the end of the call, `call_s`.

    The duration is 0 if `call_s` is 0. A segment that ends long after the call is not cut; `Corpus.problems` lists it.
    """
    start_s, end_s = times_s
    if end_s - OVERSHOOT_S < call_s < end_s and call_s > start_s:
        end_s = call_s
    duration_s = round(end_s - start_s, 6) if call_s else 0.0
    return Utterance(name, str(audio), CHANNELS[channel], start_s, duration_s, text, speaker)
