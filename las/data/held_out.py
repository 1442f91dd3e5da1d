"""Splits that are held out of the training part: whole speakers where they are known, else single utterances."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple


class Speech(NamedTuple):
    """Utterance id with its speaker, empty where it is unknown."""

    id: str
    speaker: str


class Division(NamedTuple):
    """Utterance ids of each split that is held out, and whether whole speakers were."""

    ids: dict[str, set[str]]
    by_speaker: bool


def divide(utterances: Sequence[Speech], shares: Mapping[str, float], seed: int) -> Division:
    """Hold out a share of the utterances for each split, and at least one.

    Whole speakers are held out where every speaker is known and there are more speakers than splits. Speakers (or
    utterances) are taken in the order of a hash of the seed and their names, so that the order of the source does not
    matter. A speaker with far more utterances than a split is to have is passed over while there are others.
    """
    by_speaker = all(each.speaker for each in utterances) and len({each.speaker for each in utterances}) > len(shares)
    units = Counter(each.speaker if by_speaker else each.id for each in utterances)
    remaining = sorted(units, key=lambda unit: hashlib.sha256(f"{seed} {unit}".encode()).digest())
    ids: dict[str, set[str]] = {}
    for split, share in shares.items():
        taken = _taken(remaining, units, share * len(utterances))
        remaining = [unit for unit in remaining if unit not in taken]
        ids[split] = {each.id for each in utterances if (each.speaker if by_speaker else each.id) in taken}
    return Division(ids, by_speaker)


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
