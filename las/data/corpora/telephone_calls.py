"""Telephone calls: SPHERE files with one speaker in each of their two channels, and the stretches they speak in."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from las.data.corpora.base import audio_duration
from las.data.manifest import Utterance
from las.runtime.errors import DataError

CHANNELS = {"A": 0, "B": 1, "1": 0, "2": 1}
"""The side of a call, as transcripts name it, to the channel of its file."""

OVERSHOOT_S = 0.5
"""Transcripts may run on after the audio: segments that end by less than this after it are cut, as Kaldi does it."""


def find(root: Path, name: Callable[[str], str | None] = str.lower) -> dict[str, Path]:
    """Every SPHERE file anywhere below a folder, by what `name` makes of its name without `.sph`; None is left out.

    Raises DataError for a folder that does not exist and for two files of the same name.
    """
    if not root.is_dir():
        raise DataError(f"{root}: there is no such folder")
    found: dict[str, Path] = {}
    for path in sorted(path for path in root.rglob("*") if path.suffix.lower() == ".sph"):
        call = name(path.stem)
        if call in found:
            raise DataError(f"{path}: the same call as {found[call]}. Remove one of them, or point to one copy")
        if call is not None:
            found[call] = path
    return found


def durations(paths: Iterable[Path]) -> dict[Path, float]:
    """Seconds of each call by its header, 0 where it cannot be read."""
    listed = list(paths)
    with ThreadPoolExecutor(4) as pool:
        return dict(zip(listed, pool.map(audio_duration, listed), strict=True))


def utterance(
    name: str, audio: Path, channel: str, times_s: tuple[float, float], text: str, speaker: str, call_s: float
) -> Utterance:
    """What is said from one time of a call to another, cut at the end of the call, which is `call_s` long.

    The duration is 0 where `call_s` is; a segment that ends long after the call keeps its times, and `Corpus.problems`
    names it.
    """
    start_s, end_s = times_s
    if end_s - OVERSHOOT_S < call_s < end_s and call_s > start_s:
        end_s = call_s
    duration_s = round(end_s - start_s, 6) if call_s else 0.0
    return Utterance(name, str(audio), CHANNELS[channel], start_s, duration_s, text, speaker)
