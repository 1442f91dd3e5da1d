"""A word-level n-gram model that predicts tokens, by look-ahead over the prefix tree of its words (Hori et al. 2018,
"End-to-end speech recognition with word-based RNN language models").

The score of a token inside a word is the ratio of two masses: how probable the words below its node are after the words
before, and how probable those below the node before it were. At the end of a word, by a space, by a piece that begins
the next one or by the end of the sentence, the word's own probability replaces the mass. So the ratios telescope:

    sum over tokens of log p(token) = sum over words of log p(word | words before) + log p(</s> | words)

A word that is not in the model costs `<unk>` and `oov_penalty` for each of its characters, and the masses contain that
share as well: mass(g) = sum over words that begin with g of p(word) + p(<unk>) exp(-oov_penalty |g|). A mass never
grows on the way down the tree. Without `oov_penalty` there are no other words. The score of a text depends on its words
alone: neither on the tokens that spell them nor on spaces beyond one.
"""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from las.data.tokenizers import Tokenizer
from las.lm import arpa, lexicon
from las.lm.lexicon import NO_WORD, PrefixTree
from las.lm.ngram import NGram, RangeSums

END, UNKNOWN, FIRST_WORD = 0, 1, 2
"""Symbols of the n-gram model: the end, an unknown word, and the first of the words in the order of the tree."""

SMALLEST = 1e-300
"""Lower bound on a mass, so that its logarithm is finite."""


def uniform(words: Sequence[str], name: str) -> arpa.Model:
    """Return the model in which all words, `</s>` and `<unk>` have the same probability after any words."""
    symbols = (arpa.START, arpa.END, arpa.UNKNOWN, *words)
    count = len(symbols)
    log10_probs = np.full(count, -math.log10(count - 1))
    log10_probs[0] = arpa.UNKNOWN_LOG10_PROB
    ngrams = arpa.NGrams(np.zeros(count, dtype=np.int64), np.arange(count), log10_probs, np.zeros(count))
    return arpa.Model(symbols, (ngrams,), name)


def read(
    path: str | Path | None, words: str | Path | None, tokens: Tokenizer, oov_penalty: float | None
) -> "WordNGram":
    """Return the model of an ARPA file `path`, or the uniform one of a list of `words`. Raises DataError for a bad
    file.
    """
    model = arpa.read(path) if path is not None else uniform(lexicon.read(words or ""), str(words))
    return WordNGram(model, tokens, oov_penalty)


class WordNGram:
    """Log-probabilities (natural) of tokens by a model of words.

    A state is a number: the node of the prefix tree of the word begun, and the state of the n-gram model after the
    words before it. States are expanded on the CPU, in float64.

    Args:
        model: n-grams of words; those that the tokens cannot spell are left out, and a line says so.
        tokens: of the recogniser.
        oov_penalty: cost in nats of each character of a word that the model lacks; None: there are no other words.
    """

    def __init__(self, model: arpa.Model, tokens: Tokenizer, oov_penalty: float | None = None) -> None:
        boundaries = (arpa.START, arpa.END, arpa.UNKNOWN)
        words = [word for word in model.words if word not in boundaries]
        spellings = lexicon.spellings(words, tokens, model.name)
        self.tree = PrefixTree(list(spellings), lexicon.word_parts(tokens))
        symbols = (arpa.END, arpa.UNKNOWN, *spellings.values())
        self.lm = NGram(model, symbols, row_entries=0, dtype=torch.float64)
        self.sums = RangeSums(self.lm)
        self.eos = tokens.eos
        self._single = self._single_masses()
        self._first_nodes = self.tree.follow(torch.tensor(0), torch.arange(tokens.size))
        lengths = torch.arange(1 + int(self.tree.depth.max() + self.tree.length.max()), dtype=torch.float64)
        self._spelling = torch.full_like(lengths, -math.inf) if oov_penalty is None else -oov_penalty * lengths
        self._spelling[0] = 0.0

    @property
    def start(self) -> int:
        return self.lm.start_state * self.tree.num_nodes

    def expand(
        self, states: Int[Tensor, " states"]
    ) -> tuple[Float[Tensor, "states tokens"], Int[Tensor, "states tokens"]]:
        """Return the log-probabilities of all tokens after some states, and the states that they lead to."""
        tree, starts_word = self.tree, self.tree.begins
        nodes, history = states % tree.num_nodes, states // tree.num_nodes
        unknown = self._log_prob_of(UNKNOWN, history)
        log_mass = self._log_mass(nodes, history, unknown)
        ending, next_history = self._end_word(nodes, history, log_mass)
        # A token goes on from the node, or ends its word and goes on from the root after a longer history.
        unknown = torch.where(starts_word, self._log_prob_of(UNKNOWN, next_history).unsqueeze(1), unknown.unsqueeze(1))
        before = torch.where(starts_word, -ending.unsqueeze(1), log_mass.unsqueeze(1))
        history = torch.where(starts_word, next_history.unsqueeze(1), history.unsqueeze(1))
        origin = torch.where(starts_word, 0, nodes.unsqueeze(1))
        children = self._children(nodes)
        scores = self._log_mass(children, history, unknown) - before
        # The first character outside of the tree pays for those before it, the others for themselves.
        leaving = unknown + self._spelling[tree.depth[origin] + tree.length] - before
        outside = torch.where(origin == tree.outside, self._spelling[tree.length], leaving)
        scores = torch.where(children == tree.outside, outside, scores)
        scores[:, self.eos] = ending + self._log_prob_of(END, next_history)
        return scores, history * tree.num_nodes + children

    def _children(self, nodes: Int[Tensor, " states"]) -> Int[Tensor, "states tokens"]:
        """Return the nodes that all tokens lead to; those of the tokens that begin a word are always the same."""
        children = self._first_nodes.expand(len(nodes), -1).clone()
        goes_on = ~self.tree.begins
        children[:, goes_on] = self.tree.follow(nodes.unsqueeze(1), goes_on.nonzero().squeeze(1))
        return children

    def _end_word(
        self, nodes: Int[Tensor, " states"], history: Int[Tensor, " states"], log_mass: Float[Tensor, " states"]
    ) -> tuple[Float[Tensor, " states"], Int[Tensor, " states"]]:
        """Return scores of the end of a word at each node, 0 where none began, and the state of the model after it."""
        tree = self.tree
        is_unknown = tree.word[nodes] == NO_WORD
        symbol = torch.where(is_unknown, UNKNOWN, tree.word[nodes] + FIRST_WORD)
        log_prob, next_history = self.lm.follow(history, symbol)
        log_prob = torch.where(is_unknown, log_prob + self._spelling[tree.depth[nodes]], log_prob)
        is_paid = (nodes == 0) | (nodes == tree.outside)
        return torch.where(is_paid, 0.0, log_prob - log_mass), torch.where(nodes == 0, history, next_history)

    def _log_mass(
        self, nodes: Int[Tensor, "*shape"], history: Int[Tensor, "*shape"], unknown: Float[Tensor, "*shape"]
    ) -> Float[Tensor, "*shape"]:
        """Return the logarithms of the masses of nodes; 0 for the root, where no word was begun, and outside of the
        tree.

        `unknown` is the log-probability of an unknown word after the history.
        """
        tree, log_mass = self.tree, torch.zeros(nodes.shape, dtype=torch.float64)
        inside = (nodes != 0) & (nodes != tree.outside)
        nodes, history = nodes[inside], history[inside]
        first, last = tree.first[nodes] + FIRST_WORD, tree.last[nodes] + FIRST_WORD
        mass = self.sums(history, first, last, self._single[nodes])
        mass = mass + (unknown[inside] + self._spelling[tree.depth[nodes]]).exp()
        log_mass[inside] = mass.clamp(min=SMALLEST).log()
        return log_mass

    def _log_prob_of(self, symbol: int, history: Int[Tensor, " states"]) -> Float[Tensor, " states"]:
        return self.lm.follow(history, torch.full_like(history, symbol))[0]

    def _single_masses(self) -> Float[Tensor, " nodes"]:
        """Return the sums of the probabilities of single words below each node, added from the longest prefixes
        upwards.

        Differences of cumulative sums would lose the small ones.
        """
        tree = self.tree
        empty, words = torch.zeros(len(self.lm.symbols), dtype=torch.long), torch.arange(len(self.lm.symbols))
        probs = self.lm.follow(empty, words)[0].exp()[FIRST_WORD:]
        masses = torch.where(tree.word == NO_WORD, 0.0, probs[tree.word.clamp(min=0)])
        depths, parents = tree.depth[1 : tree.outside], tree.parents
        for depth in range(int(depths.max()), 0, -1):
            nodes = (depths == depth).nonzero().squeeze(1)
            masses.index_add_(0, parents[nodes], masses[nodes + 1])
        return masses
