"""Rules for transcripts: their order, what each changes, and what is said about it."""

import pytest
from refusals import refused

from las.data import learned_symbols
from las.data.text_rules import TextRules
from las.runtime.errors import ArgumentError


@pytest.mark.parametrize(
    ("rules", "text", "expected"),
    [
        ({}, "  a\tb\n", "a b"),
        ({}, "u\u0308ber", "über"),
        ({"unicode": None}, "u\u0308ber", "u\u0308ber"),
        ({"unicode": "NFKC"}, "\ufb01ne \uff11", "fine 1"),
        ({"map": {"ß": "ss", "ẞ": "SS"}}, "weiß WEIẞ", "weiss WEISS"),
        ({"map": ["ß: ss", ":: .", "-: "]}, "ß:a-b", "ss.a b"),
        ({"map": ["a:"]}, "abba", "bb"),
        ({"map": {"u\u0308": "ue"}}, "ü", "ue"),
        ({"map": {"a": "b", "b": "a", "ab": "c"}}, "ab b a", "c a b"),
        ({"drop": ["[noise]", "é"]}, "a [noise] été", "a t"),
        ({"lowercase": True, "map": {"A": "x"}}, "AB", "xb"),
        ({"remove_punctuation": True}, "हिन्दी। a_b", "हिन्दी a b"),
        ({"drop": "?ß"}, "weiß?", "wei"),
        ({"remove_punctuation": True}, "Well-known, 'isn't' it? 5 €", "Well known isn't it 5"),
    ],
)
def test_rules(rules: dict, text: str, expected: str) -> None:
    assert TextRules(**rules).apply(text) == expected


def test_whole_words_for_phones() -> None:
    rules = TextRules(map={"h": "hh"}, drop=["sil"]).for_whole_words()
    assert rules.apply("sil h sh silx sil") == "hh sh silx"


def test_a_table_of_changes() -> None:
    rules = TextRules(map={"ß": "ss"}, lowercase=True, remove_punctuation=True)
    lines = [str(change) for change in rules.changes(["Das weiß ich, er weiß.", "nichts", "So!"])]
    assert lines == [
        "map: 1 text, 'ß' 2 times; 'weiß' becomes 'weiss'",
        "lowercase: 2 texts; 'Das' becomes 'das'",
        "remove_punctuation: 2 texts, '!' once, ',' once, '.' once; 'ich,' becomes 'ich'",
    ]
    assert TextRules().changes(["a b"]) == []


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ({"unicode": "NFD"}, "unicode=NFD|mean NFC"),
        ({"map": ["ß"]}, "map=ß|a colon"),
        ({"drop": [""]}, "drop|empty"),
        ({"map": ["", "a: b"]}, "map="),
    ],
)
def test_rules_that_cannot_be_meant(rules: dict, says: str) -> None:
    refused(says, lambda: TextRules(**rules), kind=ArgumentError)


def test_symbols_of_each_unit() -> None:
    texts = ["b a", "ab ü"]
    characters = learned_symbols.tokenizer("characters", texts, 10, "mine")
    words = learned_symbols.tokenizer("words", texts, 10, "mine")
    phones = learned_symbols.tokenizer("phones", texts, 10, "mine")
    assert characters.state() == {"kind": "Characters", "alphabet": " abü"}
    assert words.state() == phones.state() == {"kind": "Phones", "symbols": ["a", "ab", "b", "ü"]}
    assert learned_symbols.tokenizer("bpe", texts, 10, "mine").size == 11
    assert """To remove them: 'corpus.text.drop="?ß"'; to replace some""" in characters.remedy({"ß", "?"})
    assert 'To remove them: "corpus.text.drop=[sil, ß]"' in phones.remedy({"ß", "sil"})
    assert "limits.unknown=1" in words.remedy({"ß"})


def test_too_few_symbols_and_unknown_units() -> None:
    refused("mine|one symbol, 'a'|unit=characters", learned_symbols.tokenizer, "characters", ["aa", "a"], 10, "mine")
    refused("mine|no symbols", learned_symbols.tokenizer, "words", [], 10, "mine")
