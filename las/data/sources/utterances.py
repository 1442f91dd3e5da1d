"""Utterances from entries: unique ids, held-out splits, existing audio, stretches within it, rates of the files."""

import hashlib
import operator
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path

from las.data.audio import shards
from las.data.audio.files import AudioInfo
from las.data.manifest import Utterance
from las.data.quality import Headers
from las.data.sources.base import Entry
from las.runtime.errors import DataError

TOLERANCE_S = 0.01
"""Seconds by which a stretch may miss the end of its file: sources write times with few digits."""
OVERSHOOT_S = 0.5
"""Seconds from which a stretch ends too long after its file; a shorter one is cut there, as Kaldi does."""


def identified(entries: Sequence[Entry]) -> list[Entry]:
    """Give every entry without an id one made from the name of its audio file, and the stretch of a segment.

    Where file names occur twice, the ids have the folders that tell them apart. Raises DataError for ids that occur
    twice, naming both places.
    """
    nameless = {entry.audio for entry in entries if not entry.id}
    names = _names(nameless)
    named = [entry if entry.id else entry._replace(id=names[entry.audio] + _stretch(entry)) for entry in entries]
    first: dict[str, str] = {}
    twice = []
    for entry in named:
        if entry.id in first:
            twice.append(f"{entry.where}: {entry.id} is already at {first[entry.id]}")
        first.setdefault(entry.id, entry.where)
    if twice:
        raise DataError(_complaint(f"utterances with the id of another one ({len(twice):,})", twice))
    return named


def _names(audio: Iterable[str]) -> dict[str, str]:
    """Names of files without ending, preceded by as many folders as tell them apart."""
    paths = {each: Path(each) for each in audio}
    for depth in range(1, max((len(path.parts) for path in paths.values()), default=0) + 2):
        names = {each: "-".join([*path.parts[-depth:-1], path.stem]) for each, path in paths.items()}
        if len(set(names.values())) == len(names):
            break
    return names


def _stretch(entry: Entry) -> str:
    """Suffix of an id: channel, start and end in milliseconds; empty for a whole file of one channel."""
    channel = "" if entry.channel is None else f"-{entry.channel}"
    if entry.start_s == 0 and entry.duration_s is None:
        return channel
    end = "end" if entry.duration_s is None else f"{round(1000 * (entry.start_s + entry.duration_s)):07d}"
    return f"{channel}-{round(1000 * entry.start_s):07d}-{end}" if entry.start_s else channel


def divide(
    entries: Sequence[Entry], shares: Mapping[str, float], seed: int, whole_speakers: bool = True
) -> tuple[dict[str, list[Entry]], str]:
    """Hold out a share of the entries for each split, and at least one; the others are `train`.

    Whole speakers are held out, if asked for, where every speaker is known and there are more of them than splits.
    Speakers (or utterances) are taken in the order of a hash of the seed and their names, so that the order of the
    source does not matter. A speaker with far more utterances than a split is to have is passed over while there are
    others. Returns the entries by split, and why single ones were held out: empty where whole speakers were.
    """
    reason = _reason({each.speaker for each in entries}, shares, whole_speakers)
    unit_of = operator.attrgetter("id" if reason else "speaker")
    units = Counter(map(unit_of, entries))
    remaining = sorted(units, key=lambda unit: hashlib.sha256(f"{seed} {unit}".encode()).digest())
    taken = {}
    for split, share in shares.items():
        taken[split] = _taken(remaining, units, share * len(entries))
        remaining = [unit for unit in remaining if unit not in taken[split]]
    taken["train"] = set(remaining)
    return {split: [each for each in entries if unit_of(each) in units] for split, units in taken.items()}, reason


def _reason(speakers: Set[str], shares: Mapping[str, float], whole_speakers: bool) -> str:
    if not whole_speakers:
        return "of corpus.hold_out=utterances"
    if "" in speakers:
        return "some have no speaker"
    return f"there are only {len(speakers)} speakers" if len(speakers) <= len(shares) else ""


def _taken(candidates: Sequence[str], units: Mapping[str, int], wanted: float) -> set[str]:
    """Take units until they have `wanted` utterances; each may make it half as many again, or is the smallest."""
    limit = max(1.5 * wanted, min(units[unit] for unit in candidates))
    taken: set[str] = set()
    count = 0
    for unit in candidates:
        if count and count >= wanted:
            break
        if count + units[unit] <= limit:
            taken.add(unit)
            count += units[unit]
    return taken


def require_audio(entries: Iterable[Entry]) -> None:
    """Raise DataError naming the first ten audio files that do not exist, and their number."""
    holders = {entry.audio: shards.file_of(entry.audio) for entry in entries}
    absent = {holder for holder in set(holders.values()) if not os.path.exists(holder)}
    if absent:
        missing = [f"{entry.where}: {entry.audio}" for entry in entries if holders[entry.audio] in absent]
        raise DataError(
            _complaint(f"audio files that do not exist ({len(missing):,})", missing)
            + "\nRelative paths start from the folder of the file that names them; corpus.audio_root=... is another one"
        )


def rates(paths: Iterable[str], infos: Headers) -> Counter[int]:
    """Return the number of readable files of each sample rate in Hz."""
    return Counter(info.sample_rate for path in set(paths) if (info := infos[path]) is not None)


def utterances(entries: Iterable[Entry], infos: Headers, audio: Mapping[str, Path]) -> list[Utterance]:
    """Make the utterances of entries, sorted by id; `audio` has the resampled copies of some files.

    Raises DataError naming the first ten that do not lie within their file, or do not say which of its channels.
    """
    made, wrong, here = [], [], os.getcwd()
    for entry in entries:
        info = infos[entry.audio]
        if info is not None and (problem := _problem(entry, info)):
            wrong.append(f"{entry.where}: {entry.id}: {problem}")
        path = os.path.join(here, audio.get(entry.audio, entry.audio))
        duration_s = 0.0 if info is None else _duration(entry, info)
        place = (path, entry.channel or 0, entry.start_s, duration_s)
        made.append(Utterance(entry.id, *place, entry.text, entry.speaker, entry.alignment))
    if wrong:
        raise DataError(_complaint(f"utterances that do not lie within their audio ({len(wrong):,})", wrong))
    return sorted(made, key=lambda utterance: utterance.id)


def _problem(entry: Entry, info: AudioInfo) -> str:
    """Reason why an entry does not fit its file, empty if it does."""
    name = os.path.basename(entry.audio)
    if entry.channel is None and info.channels > 1:
        which = "say which in a column `channel`, counted from 0, or corpus.channel=0 for all"
        return f"{name} has {info.channels} channels: {which}"
    if (entry.channel or 0) >= info.channels:
        return f"{name} has no channel {entry.channel}: it has {info.channels}, counted from 0"
    if overshoot_s(entry, info) >= OVERSHOOT_S or entry.start_s >= info.duration_s:
        return f"it ends at {_end_s(entry):.3f} s, {name} at {info.duration_s:.3f} s"
    return ""


def overshoot_s(entry: Entry, info: AudioInfo) -> float:
    """Seconds by which an entry ends after its file, negative for one that ends before."""
    return _end_s(entry) - info.duration_s


def _end_s(entry: Entry) -> float:
    return entry.start_s + (entry.duration_s or 0.0)


def _duration(entry: Entry, info: AudioInfo) -> float:
    """Duration in seconds; a stretch that ends within the tolerance of the file's end, or after it, reaches to it."""
    rest_s = info.duration_s - entry.start_s
    if entry.duration_s is None or entry.duration_s >= rest_s - TOLERANCE_S:
        return rest_s
    return entry.duration_s


def _complaint(beginning: str, listed: Sequence[str], count: int = 10) -> str:
    """Message with the first `count` lines of a list and the number of the others."""
    more = [f"  ... and {len(listed) - count:,} more"] if len(listed) > count else []
    return "\n".join([f"{beginning}:", *(f"  {line}" for line in listed[:count]), *more])
