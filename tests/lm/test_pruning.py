"""Entropy pruning: what each n-gram costs, by the definition, and models that still are distributions."""

import itertools
import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from las.lm import kneser_ney
from las.lm.arpa import END, START, UNKNOWN, Model, NGrams
from las.lm.pruning import prune
from las.runtime.errors import ArgumentError, DataError

Gram = tuple[str, ...]


def tables(model: Model) -> tuple[dict[Gram, float], dict[Gram, float]]:
    """Probabilities of n-grams and back-off weights, by their words."""
    probs: dict[Gram, float] = {}
    backoffs: dict[Gram, float] = {}
    grams: list[Gram] = [()]
    for part in model.ngrams:
        grams = [(*grams[context], model.words[word]) for context, word in zip(part.contexts, part.words, strict=True)]
        probs |= dict(zip(grams, (10**part.log10_probs).tolist(), strict=True))
        backoffs |= dict(zip(grams, (10**part.log10_backoffs).tolist(), strict=True))
    return probs, backoffs


def probability(probs: dict[Gram, float], backoffs: dict[Gram, float], history: Gram, word: str) -> float:
    """p(word | history), as the definition of a back-off model has it."""
    if (*history, word) in probs:
        return probs[*history, word]
    return backoffs.get(history, 1.0) * probability(probs, backoffs, history[1:], word)


def estimated(seed: int, order: int = 3) -> Model:
    draw = random.Random(seed)
    weights = [draw.random() ** 2 for _ in "abcdef"]
    sentences = [draw.choices("abcdef", weights, k=draw.randint(1, 7)) for _ in range(30)]
    return kneser_ney.estimate([*sentences, list("abcabcabc")], order).model


@given(seed=st.integers(0, 10000), order=st.integers(2, 4), power=st.integers(-7, -1))
@settings(max_examples=25, derandomize=True, deadline=None)
def test_what_is_left_is_a_model_of_distributions(seed: int, order: int, power: int) -> None:
    model = estimated(seed, order)
    pruned = prune(model, 10.0**power)
    probs, backoffs = tables(pruned)
    before, _ = tables(model)
    assert {gram: probs[gram] for gram in probs} == pytest.approx({gram: before[gram] for gram in probs})
    histories = {gram for gram in before if len(gram) < order and END not in gram and UNKNOWN not in gram}
    for history in histories:
        words = [word for word in model.words if word != START]
        assert sum(probability(probs, backoffs, history, word) for word in words) == pytest.approx(1.0, abs=1e-9)
    for part in pruned.ngrams:
        keys = part.contexts * len(model.words) + part.words
        assert (np.diff(keys) > 0).all()


@pytest.mark.parametrize("seed", range(4))
def test_an_n_gram_of_the_highest_order_goes_by_the_relative_entropy_of_the_model_without_it(seed: int) -> None:
    model, threshold = estimated(seed), 2e-3
    probs, backoffs = tables(model)
    words = [word for word in model.words if word != START]
    left = {gram for gram in tables(prune(model, threshold))[0] if len(gram) == 3}

    def joint(gram: Gram) -> float:
        steps = (probability(probs, backoffs, gram[:place], gram[place]) for place in range(1, len(gram)))
        return (probs[(END,)] if gram[0] == START else probs[gram[:1]]) * math.prod(steps)

    for gram in (gram for gram in probs if len(gram) == 3):
        history, without = gram[:2], {other: value for other, value in probs.items() if other != gram}
        listed = [other[-1] for other in without if other[:-1] == history]
        mass = 1.0 - sum(probs[*history, word] for word in listed)
        lower = 1.0 - sum(probability(probs, backoffs, history[1:], word) for word in listed)
        changed = backoffs | {history: mass / lower}
        entropy = joint(history) * sum(
            probability(probs, backoffs, history, word)
            * math.log(probability(probs, backoffs, history, word) / probability(without, changed, history, word))
            for word in words
        )
        assert (math.expm1(entropy) >= threshold) == (gram in left), gram


def test_more_is_pruned_by_a_higher_threshold_and_contexts_stay() -> None:
    model = estimated(7, 4)
    sizes = [[len(part.words) for part in prune(model, 10.0**power).ngrams] for power in range(-9, 0)]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] == [len(part.words) for part in model.ngrams]
    assert sizes[-1] == [len(model.words), 0, 0, 0]
    for part, below in itertools.pairwise(reversed(prune(model, 1e-3).ngrams)):
        assert not len(part.contexts) or part.contexts.max() < len(below.words)


def test_what_cannot_be_pruned_is_refused() -> None:
    model = estimated(1)
    with pytest.raises(ArgumentError, match="1e-8"):
        prune(model, 0.0)
    unigrams, bigrams, trigrams = model.ngrams
    cut = NGrams(*(part[::2] for part in bigrams))
    with pytest.raises(DataError, match="back off to"):
        prune(
            Model(model.words, (unigrams, cut, trigrams._replace(contexts=trigrams.contexts % len(cut.words))), "x"),
            1e-8,
        )
