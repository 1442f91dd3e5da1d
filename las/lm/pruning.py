"""Entropy pruning of back-off n-gram models (Stolcke 1998).

With p the model and p' the model without the n-gram h w, whose probability there is alpha'(h) p(w | h'), where h' is h
without its first word, the relative entropy of the two is

    D = - p(h) { p(w | h) [log p(w | h') + log alpha'(h) - log p(w | h)] + [log alpha'(h) - log alpha(h)] num(h) }

    alpha(h) = num(h) / den(h)      num(h) = 1 - sum of p(w | h)      den(h) = 1 - sum of p(w | h'), over n-grams h w

An n-gram goes where exp(D) - 1, the relative change of perplexity, is below a threshold. From the highest order down
each is judged by itself; those that begin a longer n-gram that stays, and single words, stay. Afterwards the back-off
weights are computed anew from what is left.
"""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from las.lm import arpa
from las.lm.arpa import END, START, Model, NGrams
from las.runtime.errors import ArgumentError, DataError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
LN10 = float(np.log(10))
LEAST = 1e-12
"""Least mass that is left for words without an n-gram: sums of probabilities are this exact."""


def prune(model: Model, threshold: float) -> Model:
    """Return a model without the n-grams whose loss changes perplexity by less than `threshold`, e.g. 1e-8.

    Raises ArgumentError for a threshold that is not above 0, and DataError for a model that has an n-gram without the
    one that lacks its first word, which estimated models always have.
    """
    if not threshold > 0:
        raise ArgumentError(f"prune={threshold} must be above 0, for example 1e-8")
    suffixes = _suffixes(model)
    probs = [np.exp(LN10 * part.log10_probs) for part in model.ngrams]
    of_contexts = _probabilities(model, probs)
    kept = [np.ones(len(part.words), dtype=bool) for part in model.ngrams]
    for size in range(model.order - 1, 0, -1):
        part = model.ngrams[size]
        lower, alpha = probs[size - 1][suffixes[size]], np.exp(LN10 * model.ngrams[size - 1].log10_backoffs)
        num, den = (_left(part.contexts, each, len(alpha)) for each in (probs[size], lower))
        change = np.log((num[part.contexts] + probs[size]) / (den[part.contexts] + lower))
        lost = probs[size] * (np.log(lower) + change - np.log(probs[size]))
        lost += (change - np.log(alpha[part.contexts])) * num[part.contexts]
        entropy = -of_contexts[size - 1][part.contexts] * lost
        kept[size] &= np.expm1(entropy) >= threshold
        if size + 1 < model.order:
            longer = model.ngrams[size + 1]
            kept[size][longer.contexts[kept[size + 1]]] = True
    return _without(model, kept, suffixes, probs)


def _suffixes(model: Model) -> list[Integers]:
    """Return indices, one order below, of every n-gram without its first word."""
    num_words, found = len(model.words), [np.zeros(len(model.words), dtype=np.int64)]
    for below, part in pairwise(model.ngrams):
        of_context = found[-1][part.contexts]
        keys = below.contexts * num_words + below.words
        found.append(arpa.find(keys, of_context * num_words + part.words) if len(found) > 1 else part.words)
        if len(lacking := np.flatnonzero(found[-1] < 0)):
            word = model.words[part.words[lacking[0]]]
            raise DataError(f"{model.name}: {len(lacking)} n-grams, one ends in {word!r}, lack what they back off to")
    return found


def _probabilities(model: Model, probs: list[Floats]) -> list[Floats]:
    """Probabilities of the words of every n-gram in a row; a sentence begins as often as one ends."""
    ends, starts = (model.words.index(word) for word in (END, START))
    found = [np.where(np.arange(len(model.words)) == starts, probs[0][ends], probs[0])]
    for part, own in zip(model.ngrams[1:], probs[1:], strict=True):
        found.append(found[-1][part.contexts] * own)
    return found


def _left(contexts: Integers, probs: Floats, count: int) -> Floats:
    """Mass of each context that its n-grams leave."""
    return np.maximum(1.0 - np.bincount(contexts, probs, minlength=count), LEAST)


def _without(model: Model, kept: list[NDArray[np.bool_]], suffixes: list[Integers], probs: list[Floats]) -> Model:
    """Return the model of the n-grams that are kept, with back-off weights that make its distributions sum to one."""
    parts: list[NGrams] = []
    effective, places = probs[0], np.zeros(1, dtype=np.int64)
    for size, part in enumerate(model.ngrams):
        own, of = kept[size], part.contexts
        if size:
            count, lower = len(kept[size - 1]), effective[suffixes[size]]
            alphas = _left(of[own], probs[size][own], count) / _left(of[own], lower[own], count)
            logs = np.where(np.bincount(of[own], minlength=count) > 0, np.log10(alphas), 0.0)
            parts[-1] = parts[-1]._replace(log10_backoffs=logs[kept[size - 1]])
            effective = np.where(own, probs[size], 10.0 ** logs[of] * lower)
        parts.append(NGrams(places[of[own]], part.words[own], part.log10_probs[own], part.log10_backoffs[own]))
        places = np.cumsum(own) - 1
    return Model(model.words, tuple(parts), model.name)
