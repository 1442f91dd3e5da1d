"""Interpolated modified Kneser-Ney estimation of n-gram models (Chen & Goodman 1999; Heafield et al. 2013).

With c the count of an n-gram in the text, the adjusted count of an n-gram of the highest order, or one that begins a
sentence, is a = c; of any other it is the number of different words (or `<s>`) that were seen before it. With n_j the
number of n-grams of one order whose adjusted count is j:

    Y = n_1 / (n_1 + 2 n_2)                 D_j = j - (j + 1) Y n_{j+1} / n_j           j = 1, 2, 3 (3: of 3 and more)
    p(w | h) = (a(h w) - D(a(h w))) / sum_v a(h v) + gamma(h) p(w | h without its first word)
    gamma(h) = sum_j D_j |{v: a(h v) = j}| / sum_v a(h v)

Single words are interpolated with the uniform distribution over all words, `</s>` and `<unk>`; `<s>` is never
predicted. gamma(h) is the back-off weight in the ARPA file: a model with interpolated probabilities of its n-grams is
a back-off model.

Everything lies in memory: about 120 bytes for each word of the text and 40 for each n-gram.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from las.lm.arpa import END, START, UNKNOWN, Model, NGrams
from las.runtime.errors import ConfigError, DataError

Integers = NDArray[np.int64]
FALLBACK = (0.5, 1.0, 1.5)


class Discounts(NamedTuple):
    """D_1, D_2 and D_3 of one order; `are_fallback` if the text has too few n-grams of some count to estimate them."""

    values: tuple[float, float, float]
    are_fallback: bool


class Estimate(NamedTuple):
    """A model and the discounts of each order."""

    model: Model
    discounts: tuple[Discounts, ...]


class _Counted(NamedTuple):
    """The n-grams of one order, sorted by context and last word.

    `suffixes` are indices, one order below, of the n-gram without its first word; `begins` where its first word is
    `<s>`; `counts` are those of the text, and become adjusted ones.
    """

    contexts: Integers
    words: Integers
    suffixes: Integers
    begins: NDArray[np.bool_]
    counts: Integers


def estimate(
    sentences: Iterable[Sequence[str]],
    order: int,
    vocabulary: Iterable[str] = (),
    fallback: tuple[float, float, float] = FALLBACK,
    name: str = "the text",
) -> Estimate:
    """Estimate a model from sentences, each a sequence of words without boundaries.

    Words of `vocabulary` that are not in the text are added as words seen zero times. If the discounts of an order
    cannot be computed from its counts, or D_j is not in (0, j], `fallback` replaces them, as lmplz does with
    --discount_fallback. `name` is the name of the model.
    Raises ConfigError for an order below 1; DataError when there is no sentence as long as the order, and for words
    that are empty, hold blanks, or are the names of boundaries or of unknown words.
    """
    if order < 1:
        raise ConfigError(f"order={order} must be at least 1")
    ids = {UNKNOWN: 0, START: 1, END: 2}
    for word in vocabulary:
        ids.setdefault(word, len(ids))
    text, positions = _stream(sentences, ids)
    words = tuple(ids)
    _check(words)
    if not len(text):
        raise DataError(f"{name}: there is no sentence to estimate a language model from")
    if order > positions.max() + 1:
        longest = int(positions.max()) - 1
        raise DataError(f"{name}: the longest sentence has {longest} words: n-grams can have at most {longest + 2}")
    counted = list(_count(text, positions, len(words), order))
    adjusted = _adjust(counted)
    discounts = tuple(_discounts(counts, fallback) for counts in adjusted)
    return Estimate(Model(words, _interpolate(counted, adjusted, discounts), name), discounts)


def _stream(sentences: Iterable[Sequence[str]], ids: dict[str, int]) -> tuple[Integers, Integers]:
    """All sentences with their boundaries as one sequence of ids, and the position of each word in its sentence.

    `<s>` is at position 0. New words get the next id.
    """
    listed: list[Integers] = []
    for number, sentence in enumerate(sentences, start=1):
        row = [ids.setdefault(word, len(ids)) for word in sentence]
        if row and min(row) <= ids[END]:
            word = next(word for word in sentence if word in (UNKNOWN, START, END))
            raise DataError(f"sentence {number}: {word} stands for itself in a language model, and not in its text")
        listed.append(np.array([ids[START], *row, ids[END]]))
    lengths = np.array([len(row) for row in listed], dtype=np.int64)
    text = np.concatenate(listed) if listed else np.zeros(0, dtype=np.int64)
    return text, np.arange(len(text)) - np.repeat(np.cumsum(lengths) - lengths, lengths)


def _check(words: Sequence[str]) -> None:
    """Raise DataError for words that an ARPA file cannot hold: empty ones, and words with blanks."""
    for word in words:
        if word.encode().split() != [word.encode()]:
            raise DataError(f"the word {word!r} is empty or holds a blank, and cannot stand in a language model")


def _count(text: Integers, positions: Integers, num_words: int, order: int) -> Iterator[_Counted]:
    """Count the n-grams of each order; a longer one is an n-gram of the previous order and one more word."""
    singles = np.arange(num_words)
    none = np.zeros(num_words, dtype=np.int64)
    yield _Counted(none, singles, none, singles == 1, np.bincount(text, minlength=num_words) * (singles != 1))
    ending = text  # the n-gram that ends at each word of the text
    for size in range(2, order + 1):
        ends = np.flatnonzero(positions >= size - 1)
        keys = ending[ends - 1] * num_words + text[ends]
        unique, first, inverse, counts = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
        first_ends = ends[first]
        yield _Counted(
            unique // num_words, unique % num_words, ending[first_ends], positions[first_ends] == size - 1, counts
        )
        ending = np.full(len(text), -1)
        ending[ends] = inverse


def _adjust(counted: list[_Counted]) -> list[Integers]:
    adjusted = []
    for here, longer in pairwise(counted):
        before = np.bincount(longer.suffixes, minlength=len(here.words))
        adjusted.append(np.where(here.begins, here.counts, before))
    return [*adjusted, counted[-1].counts]


def _discounts(adjusted: Integers, fallback: tuple[float, float, float]) -> Discounts:
    """Return the closed form of Chen & Goodman (1999), equation 26."""
    n = np.bincount(np.minimum(adjusted, 5), minlength=6)[:5].astype(float)
    if n[1:4].all():
        y = n[1] / (n[1] + 2 * n[2])
        first, second, third = (float(j - (j + 1) * y * n[j + 1] / n[j]) for j in (1, 2, 3))
        if 0 < first <= 1 and 0 < second <= 2 and 0 < third <= 3:
            return Discounts((first, second, third), are_fallback=False)
    return Discounts(fallback, are_fallback=True)


def _interpolate(
    counted: list[_Counted], adjusted: list[Integers], discounts: Sequence[Discounts]
) -> tuple[NGrams, ...]:
    """Probabilities from the lowest order up; the gammas of an order are the back-off weights of the one below it."""
    probs = np.full(1, 1 / (len(counted[0].words) - 1))  # every word but <s>
    log10_probs: list[NDArray[np.float64]] = []
    log10_backoffs: list[NDArray[np.float64]] = []
    for (contexts, words, suffixes, _, _), counts, (values, _) in zip(counted, adjusted, discounts, strict=True):
        taken = np.array([0.0, *values])[np.minimum(counts, 3)]
        totals = np.bincount(contexts, counts, minlength=len(probs))
        gammas = np.bincount(contexts, taken, minlength=len(probs)) / np.maximum(totals, 1)
        probs = (counts - taken) / totals[contexts] + gammas[contexts] * probs[suffixes]
        if not log10_probs:
            probs[words == 1] = 1.0  # <s> is there in any case; lmplz writes it so
        log10_probs.append(np.minimum(np.log10(probs), 0))
        # What nothing follows is no context: it backs off at no cost.
        log10_backoffs.append(np.log10(gammas, where=totals > 0, out=np.zeros_like(gammas)))
    log10_backoffs.append(np.zeros(len(probs)))
    return tuple(
        NGrams(order.contexts, order.words, *logs)
        for order, *logs in zip(counted, log10_probs, log10_backoffs[1:], strict=True)
    )
