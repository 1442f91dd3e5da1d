"""Estimation: equal to lmplz, with probabilities that sum to one after every context."""

import json
import math

import kenlm_cases
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from las.lm import kneser_ney
from las.lm.ngram import of_words

GOLD = json.loads(kenlm_cases.GOLD.read_text("utf-8"))


@pytest.mark.parametrize("case", kenlm_cases.CASES)
def test_estimates_are_those_of_lmplz(case: str) -> None:
    found = kneser_ney.estimate(kenlm_cases.text(case), kenlm_cases.CASES[case])
    own = kenlm_cases.table(found.model)
    assert len(own) == GOLD[case]["count"]
    for ngram, expected in GOLD[case]["ngrams"].items():
        assert own[tuple(ngram.split())] == pytest.approx(expected, abs=2e-6), ngram
    discounts = [list(each.values) for each in found.discounts]
    assert discounts == [pytest.approx(each, abs=1e-5) for each in GOLD[case]["discounts"]]
    assert [each.are_fallback for each in found.discounts] == [each == [0.5, 1.0, 1.5] for each in discounts]


@given(
    sentences=st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=9), min_size=1, max_size=30),
    order=st.integers(1, 4),
)
def test_probabilities_sum_to_one_after_every_context(sentences: list[list[str]], order: int) -> None:
    lm = of_words(kneser_ney.estimate(sentences, min(order, 2 + max(map(len, sentences)))).model)
    sums = lm.score(torch.arange(lm.num_states).unsqueeze(1)).exp().sum(-1)
    torch.testing.assert_close(sums, torch.ones_like(sums))


def test_words_that_are_not_in_the_text_can_be_known() -> None:
    text = kenlm_cases.text("letters")
    without, found = (kneser_ney.estimate(text, 3, known).model for known in ((), ("new", "w1", "other")))
    own = kenlm_cases.table(found)
    assert set(found.words) == {*without.words, "new", "other"}
    assert own["new",] == own["other",] == own["<unk>",]
    assert math.fsum(10 ** own[word,][0] for word in found.words if word != "<s>") == pytest.approx(1)
