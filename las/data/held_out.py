"""Splits that are held out of the training part: whole speakers where they are known, else single utterances."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import NamedTuple


class Speech(NamedTuple):
    """Utterance id with its speaker, empty where it is unknown."""

    id: str
    speaker: str


class Division(NamedTuple):
    """Utterance ids of each split that is held out, and why they are single ones; empty where whole speakers are."""

    ids: dict[str, set[str]]
    reason: str

    @property
    def by_speaker(self) -> bool:
        """Return whether whole speakers are held out."""
        return not self.reason


def divide(
    utterances: Sequence[Speech], shares: Mapping[str, float], seed: int, whole_speakers: bool = True
) -> Division:
    """Hold out a share of the utterances for each split, and at least one.

    Whole speakers are held out, if asked for, where every speaker is known and there are more of them than splits.
    Speakers (or utterances) are taken in the order of a hash of the seed and their names, so that the order of the
    source does not matter. A speaker with far more utterances than a split is to have is passed over while there are
    others.
    """
    reason = _reason({each.speaker for each in utterances}, shares, whole_speakers)
    by_speaker = not reason
    units = Counter(each.speaker if by_speaker else each.id for each in utterances)
    remaining = sorted(units, key=lambda unit: hashlib.sha256(f"{seed} {unit}".encode()).digest())
    ids: dict[str, set[str]] = {}
    for split, share in shares.items():
        taken = _taken(remaining, units, share * len(utterances))
        remaining = [unit for unit in remaining if unit not in taken]
        ids[split] = {each.id for each in utterances if (each.speaker if by_speaker else each.id) in taken}
    return Division(ids, reason)


def _reason(speakers: Set[str], shares: Mapping[str, float], whole_speakers: bool) -> str:
    if not whole_speakers:
        return "of corpus.hold_out=utterances"
    if "" in speakers:
        return "some have no speaker"
    return f"there are only {len(speakers)} speakers" if len(speakers) <= len(shares) else ""


def _taken(candidates: Iterable[str], units: Mapping[str, int], wanted: float) -> set[str]:
    """Take units until they have `wanted` utterances; each may make it half as many again, or is the smallest."""
    candidates = list(candidates)
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
