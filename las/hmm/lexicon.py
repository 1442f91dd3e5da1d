"""Pronouncing dictionaries: CMU's, Sphinx's, and Kaldi's with and without probabilities.

A line is a word and its phones. CMU and Sphinx number further pronunciations, `READ(2)`; Kaldi repeats the word. In
Kaldi's lexiconp.txt the second column of every line is the probability of the pronunciation.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from las.runtime.errors import DataError, nearest, suggest
from las.storage import text_files

SILENCE = "SIL"
_NUM_SHOWN = 20


class Pronunciation(NamedTuple):
    """One way to say a word; Kaldi scales probabilities so that the likeliest way has 1."""

    phones: tuple[str, ...]
    probability: float = 1.0


class MissingWord(NamedTuple):
    """A word without a pronunciation: how often it occurs, where first, and the nearest words that have one."""

    word: str
    occurrences: int
    utterance_id: str
    nearest: list[str]


class Lexicon:
    """Words with their pronunciations.

    Args:
        entries: pronunciations by word.
        silence: the phone of silence, which may stand before, between and after words; None where texts are phones
            that name every silence.

    >>> from las.hmm.lexicon import Lexicon, Pronunciation
    >>> lexicon = Lexicon({"A": [Pronunciation(("AH",)), Pronunciation(("EY",))], "AN": [Pronunciation(("AE", "N"))]})
    >>> lexicon.phones, [variant.phones for variant in lexicon.entries["A"]]
    (('SIL', 'AE', 'AH', 'EY', 'N'), [('AH',), ('EY',)])
    """

    def __init__(self, entries: Mapping[str, Sequence[Pronunciation]], silence: str | None = SILENCE) -> None:
        self.entries = {word: tuple(variants) for word, variants in entries.items()}
        self.silence = silence
        used = {phone for variants in self.entries.values() for variant in variants for phone in variant.phones}
        self.phones: tuple[str, ...] = (*([] if silence is None else [silence]), *sorted(used - {silence}))

    def state(self) -> dict[str, Any]:
        """State from which `from_state` restores the lexicon, as plain JSON values."""
        entries = {word: [[list(each.phones), each.probability] for each in own] for word, own in self.entries.items()}
        return {"silence": self.silence, "entries": entries}

    @property
    def content_hash(self) -> str:
        """Hash (sha256, hex) of words, pronunciations and silence; the order of the words is not part of it."""
        return hashlib.sha256(json.dumps(self.state(), sort_keys=True).encode()).hexdigest()

    def of_phones(self, phones: Sequence[str]) -> tuple["Lexicon", list[str]]:
        """Return the words that these phones can say, with those pronunciations; and the other phones, sorted."""
        known = set(phones)
        entries = {
            word: sayable
            for word, variants in self.entries.items()
            if (sayable := [variant for variant in variants if known.issuperset(variant.phones)])
        }
        return Lexicon(entries, self.silence), sorted(set(self.phones) - known)

    def missing(self, texts: Iterable[tuple[str, Sequence[str]]]) -> list[MissingWord]:
        """List the words of texts (utterance id, words) that have no pronunciation, the most frequent first."""
        counts: Counter[str] = Counter()
        first: dict[str, str] = {}
        by_folded = {known.casefold(): known for known in self.entries}  # near is near in any case
        for utterance_id, words in texts:
            for word in words:
                if word not in self.entries:
                    counts[word] += 1
                    first.setdefault(word, utterance_id)
        return [
            MissingWord(word, count, first[word], [by_folded[near] for near in nearest(word.casefold(), by_folded)])
            for word, count in counts.most_common()
        ]


def from_state(state: Mapping[str, Any]) -> Lexicon:
    """Restore a lexicon from its `state()`."""
    entries = {
        str(word): [Pronunciation(tuple(map(str, phones)), float(probability)) for phones, probability in variants]
        for word, variants in state["entries"].items()
    }
    return Lexicon(entries, state["silence"])


def of_phones(phones: Iterable[str]) -> Lexicon:
    """Return the lexicon of texts that are phones, silences among them: every phone is a word that is itself."""
    return Lexicon({phone: [Pronunciation((phone,))] for phone in phones}, silence=None)


def describe(missing: Sequence[MissingWord]) -> list[str]:
    """Lines about words without a pronunciation: `HELO (3 times, first in utterance u7). Nearest: HELLO, HELP`."""
    lines = [
        f"  {each.word} ({each.occurrences} times, first in utterance {each.utterance_id}). Nearest: "
        f"{', '.join(each.nearest)}"
        for each in missing[:_NUM_SHOWN]
    ]
    return lines + ([f"  ... and {len(missing) - _NUM_SHOWN} more words"] if len(missing) > _NUM_SHOWN else [])


def read(path: str | Path, silence: str = SILENCE) -> Lexicon:
    """Read a dictionary. Lines that begin with `;;;` are comments, and so is what follows a `#`.

    Raises DataError naming file and line for text that is not UTF-8, a word without phones, a probability that is none,
    and a pronunciation that the word has already; and for a file without words.
    """
    path = Path(path)
    lines = list(text_files.words(path))
    with_probabilities = bool(lines) and all(len(own) > 1 and _is_number(own[0]) for _, _, own in lines)
    entries: dict[str, list[Pronunciation]] = {}
    for number, word, columns in lines:
        where = f"{path}:{number}"
        variant = Pronunciation(tuple(columns))
        if with_probabilities:
            variant = Pronunciation(tuple(columns[1:]), _probability(columns[0], where))
        if not variant.phones:
            raise DataError(f"{where}: {word} has no phones. A line is a word and its phones: READ R IY D")
        known = entries.setdefault(word, [])
        if variant.phones in (each.phones for each in known):
            raise DataError(
                f"{where}: {word} has the pronunciation {' '.join(variant.phones)} above already: delete it"
            )
        known.append(variant)
    if not entries:
        raise DataError(f"{path}: there are no words in it. A line is a word and its phones: READ R IY D")
    return Lexicon(entries, silence)


def require_phone(phone: str, phones: Sequence[str], where: str) -> int:
    """Return the place of a phone in a list. Raises DataError with the nearest ones for an unknown one."""
    if phone not in phones:
        raise DataError(f"{where}: the phone {phone!r} has no states.{suggest(phone, phones)}")
    return phones.index(phone)


def _is_number(field: str) -> bool:
    """Return whether a field is meant as a number, also as one that `_probability` refuses."""
    try:
        float(field)
    except ValueError:
        return False
    return True


def _probability(field: str, where: str) -> float:
    try:
        probability = text_files.number(field)
    except ValueError:
        probability = 0.0
    if not 0.0 < probability <= 1.0:
        raise DataError(f"{where}: {field} is no probability of a pronunciation: it must be above 0 and at most 1")
    return probability
