"""Chance level of a corpus: the scores of models that know the training text and ignore the audio.

A training that ends no better than that has not learned to listen, however low its loss is. Two such models set
the level, both deterministic functions of the text:

- token accuracy, true tokens fed: a bigram of the training tokens, smoothed as by Witten & Bell (1991), guesses the
  most probable token after each true one;
- error of decoding: one sentence is written for every utterance, the one with the least edits to the training
  sentences that steepest descent from the empty one finds (an approximate median string, Kohonen 1985).
"""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from las.data import loader
from las.data.corpora.base import Corpus
from las.data.manifest import Utterance

BIGRAM_SENTENCES, MEDIAN_SENTENCES, MEDIAN_UNITS = 20_000, 100, 12
"""Training sentences that the bigram is of, and the median; the most frequent units that the median is built of."""
BOUNDARY = 0
"""Token that begins and ends a sentence."""
Item = TypeVar("Item")
Integers = NDArray[np.int32]


class ChanceLevel(NamedTuple):
    """Scores on the dev part without its audio, as fractions."""

    token_accuracy: float
    error: float
    """Error in the corpus's metric; the perplexity of a language model."""
    sentence: str
    """The sentence with that error; empty where writing nothing is as good."""


def chance_level(corpus: Corpus, train: Sequence[Utterance], dev: Sequence[Utterance]) -> ChanceLevel:
    """Compute the chance level on the dev utterances from the texts of training utterances."""
    tokens = corpus.tokens
    trained_on, tested_on = (
        [tokens.encode(each.text) for each in loader.drop_unknown_symbols(utterances, tokens)]
        for utterances in (spread(train, BIGRAM_SENTENCES), dev)
    )
    texts = [corpus.normalise(each.text) for each in spread(train, MEDIAN_SENTENCES)]
    error, sentence = min(
        (corpus.score(corpus.splits[1], list(dev), dict.fromkeys([each.id for each in dev], text)).total.rate, text)
        for text in ("", " ".join(median(texts, MEDIAN_UNITS)))
    )
    return ChanceLevel(bigram_accuracy(trained_on, tested_on), error, sentence)


def spread(items: Sequence[Item], limit: int) -> Sequence[Item]:
    """Items of a list, at most `limit`, evenly spread."""
    return items if len(items) <= limit else [items[number * len(items) // limit] for number in range(limit)]


def bigram_accuracy(train: Sequence[Sequence[int]], dev: Sequence[Sequence[int]]) -> float:
    """Share of dev tokens, ends of sentences included, that are the most probable ones after the token before.

    With c the counts of the training text and T(h) the number of different tokens after h, the probability of w goes
    with c(h w) + T(h) p(w). The lowest of equally probable tokens is guessed.
    """
    after: dict[int, Counter[int]] = defaultdict(Counter)
    for before, token in _pairs(train):
        after[before][token] += 1
    single = sum(after.values(), Counter[int]())
    total = single.total()
    common = _first(single)

    def guess(before: int) -> int:
        seen = after.get(before, Counter())
        return _first({token: seen[token] * total + len(seen) * single[token] for token in {*seen, common}})

    guesses: dict[int, int] = {}
    correct = [guesses.setdefault(before, guess(before)) == token for before, token in _pairs(dev)]
    return sum(correct) / max(len(correct), 1)


def unigram(train: Sequence[Sequence[int]], dev: Sequence[Sequence[int]], size: int) -> ChanceLevel:
    """Compute the chance level of a language model: of guessing by the frequencies of single tokens.

    `size` is that of the vocabulary; each count is raised by one. The error is the perplexity per token, ends of
    sentences included.
    """
    counts = Counter(token for _, token in _pairs(spread(train, BIGRAM_SENTENCES)))
    total, common = counts.total() + size, _first(counts)
    tested_on = [token for _, token in _pairs(dev)]
    loss = sum(math.log(total / (counts[token] + 1)) for token in tested_on) / max(len(tested_on), 1)
    return ChanceLevel(tested_on.count(common) / max(len(tested_on), 1), math.exp(loss), "")


def _pairs(sentences: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    return [pair for sentence in sentences for pair in zip([BOUNDARY, *sentence], [*sentence, BOUNDARY], strict=True)]


def _first(counts: dict[int, int]) -> int:
    """Return the key of the largest value, the lowest of several; the end of the sentence where there are none."""
    return min(counts, key=lambda key: (-counts[key], key), default=BOUNDARY)


def median(sentences: Sequence[Sequence[str]], num_units: int) -> list[str]:
    """Find a sentence with few edits to all given ones: the best single edit again and again, from the empty one on.

    It is made of the `num_units` most frequent words (or phones).
    """
    frequent = Counter(unit for sentence in sentences for unit in sentence).most_common(num_units)
    names = [name for name, _ in frequent]
    references = _References(sentences, names)
    best: list[int] = []
    cost = references.lengths.sum()
    while names:
        lowest, changed = references.best_edit(best)
        if lowest >= cost:
            break
        best, cost = changed, lowest
    return [names[unit] for unit in best]


class _References:
    """Sentences as padded numbers [sentences length], and their edit distances to a hypothesis.

    Args:
        sentences: as units.
        names: the units that have a number; all others are -1.
    """

    def __init__(self, sentences: Sequence[Sequence[str]], names: Sequence[str]) -> None:
        number = {name: index for index, name in enumerate(names)}
        self.num_units = len(names)
        self.lengths = np.array([len(sentence) for sentence in sentences], np.int32)
        size = int(self.lengths.max(initial=0))
        self.forwards = np.full((len(sentences), size), -1, np.int32)
        self.backwards = self.forwards.copy()
        for row, sentence in enumerate(sentences):
            units = [number.get(unit, -1) for unit in sentence]
            self.forwards[row, : len(units)] = units
            self.backwards[row, : len(units)] = units[::-1]
        self.places = np.arange(size + 1, dtype=np.int32)

    def best_edit(self, hypothesis: list[int]) -> tuple[int, list[int]]:
        """Return the hypothesis after its best insertion, substitution or deletion, with its summed distance.

        The distance after an edit at a place is the least sum, over the places of a reference, of that of what lies
        before both and that of what lies behind both.
        """
        before, behind = self._prefixes(hypothesis), self._suffixes(hypothesis)
        best: tuple[int, list[int]] | None = None
        for place in range(len(hypothesis) + 1):
            with_unit = self._extended(before[place], self.forwards, np.arange(self.num_units))
            for removed in range(min(2, len(hypothesis) - place + 1)):
                rest = hypothesis[place + removed :]
                costs = (with_unit + behind[place + removed]).min(-1).sum(-1)
                unit = int(costs.argmin())
                edits = [(int(costs[unit]), [*hypothesis[:place], unit, *rest])]
                if removed:
                    edits.append((int((before[place] + behind[place + 1]).min(-1).sum()), hypothesis[:place] + rest))
                best = min([*edits, *([best] if best else [])], key=lambda edit: edit[0])
        assert best is not None
        return best

    def _prefixes(self, hypothesis: Sequence[int], backwards: bool = False) -> list[Integers]:
        """Distances [sentences places] of the hypothesis's beginnings to those of the references."""
        references = self.backwards if backwards else self.forwards
        rows = [np.tile(self.places, (len(references), 1))]
        for unit in hypothesis:
            rows.append(self._extended(rows[-1], references, np.array([unit]))[0])
        return rows

    def _suffixes(self, hypothesis: Sequence[int]) -> list[Integers]:
        """Distances [sentences places] of the hypothesis's endings to those of the references."""
        left = self.lengths[:, None] - self.places
        far = np.int32(1 << 20)  # behind the end of a reference
        rows = self._prefixes(hypothesis[::-1], backwards=True)[::-1]
        return [np.where(left < 0, far, np.take_along_axis(row, left.clip(0), 1)) for row in rows]

    def _extended(self, row: Integers, references: Integers, units: NDArray[np.int64]) -> NDArray[np.int32]:
        """Distances [units sentences places] after one more unit: the recursion of Wagner & Fischer (1974)."""
        matched = row[:, :-1] + (references != units[:, None, None])
        longer = np.broadcast_to(row + 1, (len(units), *row.shape)).copy()
        np.minimum(longer[..., 1:], matched, out=longer[..., 1:])
        extended: Integers = np.minimum.accumulate(longer - self.places, axis=-1) + self.places
        return extended
