"""Random toy decoding: a bigram of the words of `toy_hmm`, and the best sentence by passing tokens."""

import math
import random
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from las.hmm.lexicon import Lexicon
from las.hmm.topology import Topology
from las.lm import arpa, kneser_ney, ngram

WORDS = ("u", "v", "w")


def bigram(seed: int, order: int = 2) -> arpa.Model:
    """A model estimated on random sentences."""
    draw = random.Random(seed)
    sentences = [draw.choices(WORDS, [1, 2, 4], k=draw.randint(1, 5)) for _ in range(12)]
    return kneser_ney.estimate(sentences, order, WORDS, name="toy").model


def log_prob(lm: ngram.NGram, words: list[str], ended: bool = True) -> float:
    """The score of a sentence by the language model as other searches use it (`las.lm.ngram.of_words`)."""
    symbols = [lm.symbols.index(word) for word in words] + [lm.symbols.index(arpa.END)] * ended
    state, total = lm.start(1), 0.0
    for symbol in symbols:
        total += float(lm.score(state)[0, 0, symbol])
        state = lm.advance(state, torch.tensor([[symbol]]))
    return total


class _Place(NamedTuple):
    """State of a path: its last word, the phones that it is in, which of them, which state of it."""

    last: str
    phones: tuple[str, ...]
    index: int
    state: int
    is_pause: bool


class Recogniser:
    """The best sentence of a bigram, with its score; nothing is shared with the graph but dictionary and states."""

    def __init__(
        self, lexicon: Lexicon, topology: Topology, model: arpa.Model, lm_scale: float = 1.0, insertion: float = 0.0
    ) -> None:
        self.lexicon, self.topology, self.lm_scale, self.insertion = lexicon, topology, lm_scale, insertion
        lm = ngram.of_words(model)
        histories = [(), *((word,) for word in WORDS)]
        before = {history: log_prob(lm, list(history), ended=False) for history in histories}
        self.ends = {"".join(each): log_prob(lm, list(each)) - before[each] for each in histories}
        self.follows = {
            ("".join(each), word): log_prob(lm, [*each, word], ended=False) - before[each]
            for each in histories
            for word in WORDS
        }

    def entered(self, last: str, may_pause: bool) -> Iterator[tuple[_Place, float, str]]:
        """First states after a word, or after silence, with their scores and the word that they begin."""
        if may_pause and self.lexicon.silence is not None:
            yield _Place(last, (self.lexicon.silence,), 0, 0, True), 0.0, ""
        for word in WORDS:
            for variant in self.lexicon.entries[word]:
                lm = self.follows[last, word] + math.log(variant.probability)
                yield _Place(word, variant.phones, 0, 0, False), self.lm_scale * lm + self.insertion, word

    def moves(self, place: _Place) -> Iterator[tuple[_Place, float, str]]:
        """States that may follow a state."""
        costs = self.topology.costs(place.phones[place.index])
        yield place, -costs.loop, ""
        if place.state < 2:
            yield place._replace(state=place.state + 1), -costs.forward, ""
        if place.state == 0 and costs.skip < math.inf:
            yield place._replace(state=2), -costs.skip, ""
        if place.state == 2 and place.index + 1 < len(place.phones):
            yield place._replace(index=place.index + 1, state=0), -costs.exit, ""
        elif place.state == 2:
            for following, score, word in self.entered(place.last, not place.is_pause):
                yield following, score - costs.exit, word

    def best(self, emissions: NDArray[np.float64]) -> tuple[float, list[str]]:
        """The best score and its words, of emissions [frames, pdfs]; -inf without a path."""
        tokens: dict[_Place, tuple[float, list[str]]] = {}
        for frame, scores in enumerate(emissions):
            before = tokens.items() if frame else [(None, (0.0, []))]
            tokens = {}
            for place, (score, words) in before:
                for following, step, word in self.entered("", True) if place is None else self.moves(place):
                    pdf = self.topology.pdfs(following.phones[following.index])[following.state]
                    arrived = score + step + float(scores[pdf])
                    if following not in tokens or arrived > tokens[following][0]:
                        tokens[following] = (arrived, [*words, word] if word else words)
        ended = [
            (score - self.topology.costs(place.phones[-1]).exit + self.lm_scale * self.ends[place.last], words)
            for place, (score, words) in tokens.items()
            if place.index + 1 == len(place.phones) and place.state == 2
        ]
        return max(ended, default=(-math.inf, []))
