"""The chance level of a corpus: what is reached without hearing, and when a training is no better."""

import itertools
import random
from pathlib import Path

import pytest
from tiny import overrides, tree

from las.config.build import build, compose
from las.training import chance
from las.training.chance import ChanceLevel


def distance(one: list[str], other: list[str]) -> int:
    """Edit distance, without any of the tricks."""
    row = list(range(len(other) + 1))
    for unit in one:
        diagonal, row[0] = row[0], row[0] + 1
        for place, symbol in enumerate(other, start=1):
            best = min(row[place] + 1, row[place - 1] + 1, diagonal + (unit != symbol))
            diagonal, row[place] = row[place], best
    return row[-1]


@pytest.mark.parametrize("seed", [3, 99])
def test_no_single_edit_of_the_median_has_fewer_errors(seed: int) -> None:
    """The second list of sentences has a median that insertions alone do not find."""
    draw = random.Random(seed)
    sentences = [[draw.choice("aaabbcd") for _ in range(draw.randrange(9))] for _ in range(12)]

    def cost(each: list[str]) -> int:
        return sum(distance(each, sentence) for sentence in sentences)

    median = chance.median(sentences, 4)
    places = range(len(median) + 1)
    edits = [
        [*median[:at], unit, *median[at + cut :]] for at, cut in itertools.product(places, (0, 1)) for unit in "abcd"
    ]
    edits += [median[:at] + median[at + 1 :] for at in places]
    assert median and cost(median) < cost([])
    assert cost(median) == min(map(cost, edits))


def test_the_accuracy_of_a_bigram_by_hand() -> None:
    """After 0 comes 1 (2 of 3), after 1 comes 2, after 2 the end; 3 was never seen: the most frequent token, 0."""
    train = [[1, 2], [1, 2], [2]]
    assert chance.bigram_accuracy(train, [[1, 2]]) == 1.0
    assert chance.bigram_accuracy(train, [[2]]) == 0.5
    assert chance.bigram_accuracy(train, [[3]]) == 0.5  # not 3 after 0, but the end after 3
    assert chance.bigram_accuracy(train, [[3, 1]]) == 0.0


def test_witten_bell_prefers_the_frequent_token_among_followers_seen_alike() -> None:
    """After 1 come 2 and 3, once each; 3 is more frequent elsewhere, so it is the guess although 2 is lower."""
    train = [[1, 2], [1, 3], [3], [3], [3]]
    assert chance.bigram_accuracy(train, [[1, 3]]) == pytest.approx(2 / 3)
    assert chance.bigram_accuracy(train, [[1, 2]]) == pytest.approx(1 / 3)


def test_the_chance_level_of_a_corpus_whose_sentences_are_all_alike(tmp_path: Path) -> None:
    corpus = build(compose("train", overrides(tree(tmp_path)))["corpus"], where="corpus")
    splits = corpus.prepare(tmp_path / "data")
    level = chance.chance_level(corpus, splits["train"], splits["dev"])
    assert level == ChanceLevel(0.8, 0.0, "sil aa iy sil")  # h# ends and begins: one of five tokens is not told


def test_the_perplexity_of_a_unigram() -> None:
    level = chance.unigram([[1, 1], [1]], [[1], []], size=2)  # 1: three times, the end: twice; one more of each
    assert level.error == pytest.approx((7 / 4 * 7 / 3 * 7 / 3) ** (1 / 3))
    assert level.token_accuracy == pytest.approx(1 / 3)
