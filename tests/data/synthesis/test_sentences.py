"""The sentence grammar: distinct, reproducible, as large as asked for, and well inflected."""

import re

import pytest
from refusals import refused

from las.data.synthesis import sentences
from las.data.synthesis.sentences import Grammar
from las.runtime.errors import ConfigError


def test_sentences_are_distinct_and_a_function_of_the_seed() -> None:
    drawn = sentences.sentences(3000, 1, 400, (4, 8))
    assert len(set(drawn)) == 3000
    assert sentences.sentences(3000, 1, 400, (4, 8)) == drawn
    assert sentences.sentences(50, 1, 400, (4, 8)) == drawn[:50]
    assert set(sentences.sentences(50, 2, 400, (4, 8))) != set(drawn[:50])


def test_lengths_and_characters_are_as_asked() -> None:
    for sentence in sentences.sentences(500, 3, 3900, (5, 7)):
        assert 5 <= len(sentence.split()) <= 7
        assert re.fullmatch(r"[a-z]+( [a-z]+)*", sentence)
        assert all(first == sentences.article(second) for first, second in re.findall(r"\b(an?) (\w+)", sentence))


def test_the_hard_vocabulary_has_2000_words_and_the_small_one_few() -> None:
    large, small = Grammar(3900, (5, 12)), Grammar(400, (4, 8))
    assert len(large.words) >= 2000
    assert 250 <= len(small.words) <= 450
    assert small.words - large.words == set()
    used = {word for sentence in sentences.sentences(4000, 1, 3900, (5, 12)) for word in sentence.split()}
    assert len(used) >= 2000 and used <= large.words


@pytest.mark.parametrize(
    ("inflect", "pairs"),
    [
        (
            sentences.add_s,
            "judge judges|watch watches|toy toys|story stories|potato potatoes|zoo zoos|box boxes|key keys",
        ),
        (sentences.add_ed, "bake baked|carry carried|enjoy enjoyed|push pushed|free freed"),
        (sentences.add_ing, "bake baking|carry carrying|see seeing|dye dyeing|hoe hoeing|push pushing"),
        (sentences.article, "apple an|banana a|hour an|house a|unicorn a|useful a|umbrella an|honest an"),
    ],
)
def test_inflection(inflect: object, pairs: str) -> None:
    assert callable(inflect)
    for pair in pairs.split("|"):
        word, expected = pair.split()
        assert inflect(word) == expected


def test_settings_that_cannot_be_served_are_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    refused("vocabulary=9999", Grammar, 9999, (4, 8), kind=ConfigError)
    refused("words=[30, 40]|lengths", Grammar, 400, (30, 40), kind=ConfigError)
    monkeypatch.setattr(sentences, "TEMPLATES", ("{name} is {adjective}",))
    refused("vocabulary=150|raise vocabulary", sentences.sentences, 1000, 1, 150, (3, 3))
