"""The search of a hybrid HMM for words: the best paths through a decoding graph of dictionary and grammar, with
kaldi-decoder.

    score = sum_t [alpha (log p(s_t | x_t) - beta log p(s_t)) + log a(s_t-1, s_t)]
            + gamma (log p(words) + log p(pronunciations)) + delta (number of words)

The beam is exact where it is wider than the scores of all paths differ. A grammar is read from an ARPA file, or gives
all words of a dictionary the same probability.
"""

import itertools
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from las.config.build import require
from las.decoding.base import Hypothesis, WordSearch, WordSpan
from las.decoding.hybrid.lattice_nbest import nbest
from las.decoding.hybrid.word_times import word_spans
from las.hmm import decoding_graph
from las.hmm.decoding_graph import DecodingGraph
from las.hmm.fst import EPSILON, Arcs, Fst, Grammar, concatenated, from_lattice, library, to_kaldi
from las.hmm.lexicon import Lexicon
from las.hmm.topology import StateNumbering
from las.lm import arpa, ngram, word_ngram
from las.nn.acoustic_model import FrameScores
from las.runtime import progress
from las.runtime.errors import ConfigError, DataError, NumericalError, first_of

BEAMS = (0.01, 1e6)
"""Smallest and greatest beam."""
MIN_ACTIVE = 20
"""Paths that survive a frame at least, whatever the beam."""
LATTICE_SHARE = 0.25
"""Share of the beam within which the paths of n-best lists are kept."""
_BOUNDARIES = (arpa.START, arpa.END, arpa.UNKNOWN)


class _Prepared(NamedTuple):
    lexicon: Lexicon
    states: StateNumbering
    grammar: Grammar
    graph: DecodingGraph


class WordGraphSearch(WordSearch):
    """Viterbi search with a beam over the states of all sentences of a grammar.

    Args:
        acoustic_scale: alpha, weight of the network's scores.
        prior_scale: beta, weight of the priors that they are divided by.
        lm_scale: gamma, weight of the grammar and of the probabilities of pronunciations.
        word_insertion: delta, score added for every word; above 0 for more words.
        beam: greatest difference from the best path that a path survives, in nats of the score.
        max_active: paths that survive a frame, at most; for lists of several hypotheses the beam alone decides.
        nbest: hypotheses of an utterance, at most; they have different words.
        grammar: an ARPA file of words, gzipped or not (`las ngram units=words`); None: all words of the dictionary are
            equally probable.

    `prepare` must be called before the first search. The scales may be changed between searches; the graph stays.
    """

    def __init__(
        self,
        acoustic_scale: float = 1.0,
        prior_scale: float = 1.0,
        lm_scale: float = 1.0,
        word_insertion: float = 0.0,
        beam: float = 100.0,
        max_active: int = 5000,
        nbest: int = 1,
        grammar: str | None = None,
    ) -> None:
        for name, value in (("acoustic_scale", acoustic_scale), ("prior_scale", prior_scale), ("lm_scale", lm_scale)):
            require(name, value, 0.0)
        require("beam", beam, *BEAMS)
        require("max_active", max_active, 2)
        require("nbest", nbest, 1)
        self.acoustic_scale, self.prior_scale, self.lm_scale = acoustic_scale, prior_scale, lm_scale
        self.word_insertion = word_insertion
        self.beam, self.max_active, self.nbest = beam, max_active, nbest
        self.grammar = grammar
        self._prepared: _Prepared | None = None
        self._weighted: tuple[tuple[float, float], Any] | None = None  # scales, and the transducer with them

    def __repr__(self) -> str:
        return (
            f"WordGraphSearch(acoustic_scale={self.acoustic_scale:g}, prior_scale={self.prior_scale:g}, "
            f"lm_scale={self.lm_scale:g}, word_insertion={self.word_insertion:g}, beam={self.beam:g})"
        )

    def prepare(self, lexicon: Lexicon, states: StateNumbering, cache: Path | None = None) -> None:
        """Build the graph of a dictionary, the states of its phones and the grammar, or read it from `cache`, the
        folder where it is kept.

        Raises DataError for a grammar or a dictionary that cannot be used, ConfigError where the libraries are missing.
        """
        library("kaldi_decoder")
        grammar = read_grammar(self.grammar, lexicon)
        graph = decoding_graph.stored_or_built(lexicon, states, grammar, cache)
        self._prepared = _Prepared(lexicon, states, grammar, graph)
        self._weighted = None

    @property
    def words(self) -> tuple[str, ...]:
        """Words that may be found, sorted: token i is `words[i - 1]`."""
        return self._required().graph.words

    @torch.no_grad()
    def __call__(self, decoder: FrameScores, num_states: Int[Tensor, " batch"]) -> list[list[Hypothesis]]:
        """Return the n-best lists of a batch, best first.

        A hypothesis is a `dead_end` if no path ended within the beam: it has the words of the best path so far. Its
        scores are `lm`, the log-probability of the words by the grammar, and `acoustic`, all that remains of the score
        without the scaled `lm` and the words' insertions. Raises NumericalError for scores that are not finite.
        """
        emissions = self._emissions(decoder).cpu().numpy()
        return [
            self._search(np.ascontiguousarray(each[:frames]))
            for each, frames in zip(emissions, num_states.tolist(), strict=True)
        ]

    def times(
        self, decoder: FrameScores, num_states: Int[Tensor, " batch"], tokens: list[list[int]]
    ) -> list[list[WordSpan]]:
        """Return the words of each utterance with their frames, on the best path of these tokens (`word_spans`)."""
        prepared = self._required()
        texts = [[prepared.graph.words[token - 1] for token in each] for each in tokens]
        entries = {
            word: [
                each._replace(probability=each.probability**self.lm_scale) for each in prepared.lexicon.entries[word]
            ]
            for word in set(itertools.chain.from_iterable(texts))
        }
        scaled = Lexicon(entries, prepared.lexicon.silence)  # as the search weighs pronunciations
        emissions = self._emissions(decoder)
        return word_spans(emissions, decoder.log_posteriors, num_states, texts, scaled, prepared.states)

    def _required(self) -> _Prepared:
        if self._prepared is None:
            raise ConfigError("a search for words needs its graph: call search.prepare(lexicon, topology) before it")
        return self._prepared

    def _emissions(self, decoder: FrameScores) -> Float[Tensor, "batch frames pdfs"]:
        """Scaled scores of states, in fp32. Raises ConfigError where a model has other states than the graph."""
        expected = self._required().states.num_pdfs
        if decoder.log_posteriors.shape[-1] != expected:
            raise ConfigError(
                f"the model has {decoder.log_posteriors.shape[-1]} states of phones, and the dictionary's phones have "
                f"{expected}: it was trained with another dictionary"
            )
        return decoder.emissions(self.acoustic_scale, self.prior_scale).float()

    def _fst(self) -> Any:
        scales = (self.lm_scale, self.word_insertion)
        if self._weighted is None or self._weighted[0] != scales:
            self._weighted = scales, to_kaldi(self._required().graph.weighted(*scales))
        return self._weighted[1]

    def _search(self, emissions: NDArray[np.float32]) -> list[Hypothesis]:
        """Return the hypotheses of one utterance, [frames, pdfs]."""
        if not len(emissions):
            return [Hypothesis([], -np.inf, -np.inf, "dead_end")]
        if not np.isfinite(emissions).all():
            raise NumericalError("the model gives scores of states that are not finite: its parameters are broken")
        decodable = library("kaldi_decoder").DecodableCtc(emissions)
        return self._best(decodable) if self.nbest == 1 else self._several(decodable)

    def _best(self, decodable: Any) -> list[Hypothesis]:
        kaldi_decoder, kaldifst = library("kaldi_decoder"), library("kaldifst")
        options = kaldi_decoder.FasterDecoderOptions(
            beam=self.beam, max_active=self.max_active, min_active=min(MIN_ACTIVE, self.max_active - 1)
        )
        decoder = kaldi_decoder.FasterDecoder(self._fst(), options)
        decoder.decode(decodable)
        _, lattice = decoder.get_best_path()
        _, _, words, weight = kaldifst.get_linear_symbol_sequence(lattice)
        return [self._hypothesis(words, -(weight.value1 + weight.value2), decoder.reached_final())]

    def _several(self, decodable: Any) -> list[Hypothesis]:
        """Return the n best sequences of words of the lattice of all paths near the best one."""
        kaldi_decoder = library("kaldi_decoder")
        options = kaldi_decoder.LatticeSimpleDecoderConfig(beam=self.beam, lattice_beam=LATTICE_SHARE * self.beam)
        decoder = kaldi_decoder.LatticeSimpleDecoder(self._fst(), options)
        decoder.decode(decodable)
        has_ended = bool(np.isfinite(decoder.final_relative_cost()))
        _, lattice = decoder.get_raw_lattice()
        return [
            self._hypothesis(each.labels, -each.cost, has_ended) for each in nbest(from_lattice(lattice), self.nbest)
        ]

    def _hypothesis(self, words: list[int], score: float, has_ended: bool) -> Hypothesis:
        lm = 0.0 - self._required().grammar.cost(words, has_ended)  # 0, not -0, without words
        acoustic = score - self.lm_scale * lm - self.word_insertion * len(words)
        finished_by: Literal["eos", "dead_end"] = "eos" if has_ended else "dead_end"
        return Hypothesis(words, score, score / (len(words) + 1), finished_by, {"acoustic": acoustic, "lm": lm})


def read_grammar(path: str | Path | None, lexicon: Lexicon) -> Grammar:
    """Return the grammar of an ARPA file for the words of a dictionary; None for the same probability of all of them.

    Words that only one of them has are left out, and a line says how many. Raises DataError if none remains.
    """
    known = [word for word in lexicon.entries if word not in _BOUNDARIES]
    model = word_ngram.uniform(known, "the dictionary") if path is None else arpa.read(path)
    listed = [word for word in model.words if word not in _BOUNDARIES]
    words = tuple(sorted(set(known) & set(listed)))
    if not words:
        raise DataError(
            f"{model.name}: none of its {len(listed)} words ({first_of(listed, 5)}) is among the {len(known)} of the "
            f"dictionary ({first_of(known, 5)}): are they of the same language, and in the same case?"
        )
    for name, own, other in ((model.name, listed, "the dictionary"), ("the dictionary", known, model.name)):
        if lacking := sorted(set(own) - set(words)):
            progress.say(f"{name}: {len(lacking):,} words that {other} lacks are left out: {first_of(lacking, 5)}")
    return grammar_of_model(model, words)


def grammar_of_model(model: arpa.Model, words: tuple[str, ...]) -> Grammar:
    """Return the acceptor of a back-off model over words of it. The probability of words that are left out is lost."""
    graph = ngram.build_automaton(model, (*words, arpa.END))
    is_end = graph.symbols == len(words)
    finals = np.full(len(graph.fails), np.inf, np.float32)
    finals[graph.sources[is_end]] = -graph.log_probs[is_end]
    labels, costs = graph.symbols + 1, (-graph.log_probs).astype(np.float32)
    said = Arcs(graph.sources, labels, labels, costs, graph.targets)
    said = Arcs(*(each[~is_end] for each in said))
    longer = np.flatnonzero(graph.depths > 0)
    silent = np.full(len(longer), EPSILON)
    costs = (-graph.backoffs[longer]).astype(np.float32)
    backing_off = Arcs(longer, silent, silent, costs, graph.fails[longer])
    return Grammar(words, Fst(graph.start, finals, concatenated([said, backing_off])))
