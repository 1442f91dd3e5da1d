"""Estimation: equal to lmplz, and to the equations in words of one syllable; probabilities that sum to one."""

import json
import math
from collections import Counter, defaultdict

import kenlm_cases
import pytest
from hypothesis import given
from hypothesis import strategies as st

from las.lm import arpa, kneser_ney

GOLD = json.loads(kenlm_cases.GOLD.read_text("utf-8"))


def entries(model: arpa.Model) -> dict[str, list[float]]:
    """`a b` -> [log10 probability, log10 back-off]"""
    found, texts = {}, [""]
    for ngrams in model.ngrams:
        pairs = zip(ngrams.contexts.tolist(), ngrams.words.tolist(), strict=True)
        texts = [f"{texts[context]} {model.words[word]}".strip() for context, word in pairs]
        logs = zip(ngrams.log10_probs.tolist(), ngrams.log10_backoffs.tolist(), strict=True)
        found |= {text: list(each) for text, each in zip(texts, logs, strict=True)}
    return found


@pytest.mark.parametrize("case", kenlm_cases.CASES)
def test_estimates_are_those_of_lmplz(case: str) -> None:
    found = kneser_ney.estimate(kenlm_cases.text(case), kenlm_cases.CASES[case])
    own = entries(found.model)
    assert len(own) == GOLD[case]["count"]
    for ngram, expected in GOLD[case]["ngrams"].items():
        assert own[ngram] == pytest.approx(expected, abs=2e-6), ngram
    discounts = [list(each.values) for each in found.discounts]
    assert discounts == [pytest.approx(each, abs=1e-5) for each in GOLD[case]["discounts"]]
    assert [each.are_fallback for each in found.discounts] == [each == [0.5, 1.0, 1.5] for each in discounts]


Grams = dict[tuple[str, ...], int]


def adjusted_counts(sentences: list[list[str]], order: int) -> list[Grams]:
    """Of n-grams of each size, by walking over them."""
    seen: list[Counter[tuple[str, ...]]] = [Counter() for _ in range(order)]
    for sentence in sentences:
        words = ["<s>", *sentence, "</s>"]
        for size in range(1, order + 1):
            seen[size - 1].update(tuple(words[at : at + size]) for at in range(len(words) - size + 1))
    adjusted: list[Grams] = [dict(seen[-1])]
    for size in range(order - 1, 0, -1):
        before: defaultdict[tuple[str, ...], set[str]] = defaultdict(set)
        for gram in seen[size]:
            before[gram[1:]].add(gram[0])
        adjusted.insert(0, {g: n if g[0] == "<s>" else len(before[g]) for g, n in seen[size - 1].items()})
    adjusted[0].pop(("<s>",))
    return adjusted


def by_the_equations(
    sentences: list[list[str]], order: int, found: kneser_ney.Estimate
) -> dict[tuple[str, ...], float]:
    """p of every n-gram but `<s>` and `<unk>`, with the discounts of an estimate."""
    probs: dict[tuple[str, ...], float] = {}
    uniform = 1 / (len({word for sentence in sentences for word in sentence}) + 2)
    for counts, discounts in zip(adjusted_counts(sentences, order), found.discounts, strict=True):
        following: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
        for gram, count in counts.items():
            following[gram[:-1]].append(count)
        for gram, count in counts.items():
            listed = following[gram[:-1]]
            gamma = sum(discounts.values[min(other, 3) - 1] for other in listed) / sum(listed)
            lower = probs[gram[1:]] if len(gram) > 1 else uniform
            probs[gram] = (count - discounts.values[min(count, 3) - 1]) / sum(listed) + gamma * lower
    return probs


@given(
    sentences=st.lists(st.lists(st.sampled_from("abcdefgh"), min_size=0, max_size=9), min_size=1, max_size=30),
    order=st.integers(1, 4),
)
def test_estimates_follow_the_equations(sentences: list[list[str]], order: int) -> None:
    order = min(order, 2 + max(map(len, sentences)))
    found = kneser_ney.estimate(sentences, order)
    own = entries(found.model)
    expected = by_the_equations(sentences, order, found)
    assert own.keys() - {"<s>", "<unk>"} == {" ".join(gram) for gram in expected}
    for gram, prob in expected.items():
        assert 10 ** own[" ".join(gram)][0] == pytest.approx(prob, rel=1e-9)


def test_words_that_are_not_in_the_text_can_be_known() -> None:
    text = kenlm_cases.text("letters")
    without, found = (kneser_ney.estimate(text, 3, known).model for known in ((), ("new", "w1", "other")))
    own = entries(found)
    assert set(found.words) == {*without.words, "new", "other"}
    assert own["new"] == own["other"] == own["<unk>"]
    assert math.fsum(10 ** own[word][0] for word in found.words if word != "<s>") == pytest.approx(1)
