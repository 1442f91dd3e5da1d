"""Resampled tests against kaldialign's bootstrap, and where the answer is known."""

import random

import kaldialign
import pytest

from las.scoring import bootstrap


def sequences(seed: int, utterances: int = 80) -> tuple[list[list[str]], list[list[str]], list[list[str]]]:
    """References and two systems that err at about the same rate."""
    generator = random.Random(seed)
    references = [generator.choices("abcdefgh", k=generator.randint(1, 15)) for _ in range(utterances)]
    systems = [
        [[generator.choice("xyz") if generator.random() < 0.2 else token for token in tokens] for tokens in references]
        for _ in range(2)
    ]
    return references, *systems


def counts(references: list[list[str]], hypotheses: list[list[str]]) -> list[list[int]]:
    found = [kaldialign.edit_distance(*pair)["total"] for pair in zip(references, hypotheses, strict=True)]
    return [[int(total) for total in found], [len(tokens) for tokens in references]]


@pytest.mark.parametrize("seed", range(5))
def test_intervals_and_shares_are_those_of_kaldialign(seed: int) -> None:
    references, first, second = sequences(seed)
    expected = kaldialign.bootstrap_wer_ci(references, first, second)
    for name, system in (("system1", first), ("system2", second)):
        low, high = bootstrap.interval(*counts(references, system))
        assert low == pytest.approx(expected[name]["ci95min"], abs=0.002)
        assert high == pytest.approx(expected[name]["ci95max"], abs=0.002)
    won = bootstrap.share_won(counts(references, first), counts(references, second))
    assert won == pytest.approx(expected["p_s2_improv_over_s1"], abs=0.03)


def test_the_seed_decides_also_where_large_tests_are_drawn_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    errors, words = [1, 0, 2, 0, 1, 3], [4, 5, 6, 5, 4, 5]
    whole = bootstrap.interval(errors, words, 1)
    assert whole != bootstrap.interval(errors, words, 2)
    monkeypatch.setattr(bootstrap, "DRAWN", 6 * 7)
    assert bootstrap.interval(errors, words, 1) == whole


def test_without_words_there_is_no_interval() -> None:
    assert bootstrap.interval([1], [0]) is None
    assert bootstrap.interval([0, 0, 0], [0, 0, 1]) is None  # a resampled test may have none
