"""Lists of words in a search: a lexicon, whose words alone can be written, and a bonus for hot words."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from las.data.tokenizers import Tokenizer
from las.decoding.scorers.base import (
    BatchConstraint,
    BatchScorer,
    Constraint,
    Scorer,
    SearchStep,
    check_weight,
    require_bound,
)
from las.decoding.scorers.lazy_table import LazyTable, OnTable, TableBatchScorer, TableCache
from las.lm import lexicon
from las.lm.lexicon import NO_WORD, PrefixTree
from las.runtime.errors import ArgumentError

SPACE = " "
"""The character before every word of the automaton of hot words, and after the last one."""


class LexiconConstraint(Constraint):
    """Only the words of a list can be written, with single separators between them.

    `path` has a word a line, or is a pronouncing dictionary. The constraint is strict: a hypothesis that the length
    limit ends inside a word is given up.
    """

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self._tables: TableCache | None = None

    def bind(self, tokens: Tokenizer, has_ctc: bool) -> None:
        """Read the file. Raises DataError if it cannot be read or the tokens can spell none of its words."""
        words = lexicon.spellings(lexicon.read(self.path), tokens, str(self.path))
        tree = PrefixTree(list(words), lexicon.word_parts(tokens))
        self._tables = TableCache(LexiconAutomaton(tree, tokens.eos))

    def on(self, decoder: Any, num_states: Int[Tensor, " batch"]) -> BatchConstraint:
        table = require_bound(self._tables, self.path).table(num_states.device)
        return LexiconBatchConstraint(table, len(num_states))


class LexiconAutomaton:
    """Texts of the words of a tree: scores are 0 for tokens that may come next and -inf for others.

    A state is a node of the tree, or `start`. The root is what follows a separator: another word must come.
    """

    def __init__(self, tree: PrefixTree, eos: int) -> None:
        self.tree = tree
        self.eos = eos
        self.start = tree.num_nodes

    def expand(
        self, states: Int[Tensor, " states"]
    ) -> tuple[Float[Tensor, "states tokens"], Int[Tensor, "states tokens"]]:
        tree, tokens = self.tree, torch.arange(len(self.tree.begins))
        is_start = (states == self.start).unsqueeze(1)
        nodes = torch.where(is_start, 0, states.unsqueeze(1))
        is_word = tree.word[nodes] != NO_WORD
        children = tree.follow(torch.where(tree.begins, 0, nodes), tokens)
        is_allowed = (children != tree.outside) & (~tree.begins | is_word | (is_start & tree.may_lead))
        is_allowed[:, self.eos] = (is_word | is_start).squeeze(1)
        return torch.where(is_allowed, 0.0, -math.inf), children


class LexiconBatchConstraint(OnTable, BatchConstraint):
    """The lexicon on a batch."""

    is_strict = True

    def forbidden(self, state: Tensor, step: SearchStep) -> Bool[Tensor, "batch beam vocab"]:
        return self.table.score(state) == -math.inf


class HotWordBonus(Scorer):
    """weight * number of hot words: words or phrases that are expected, such as names.

    A hypothesis gets `weight` for every time that it has one of them, as whole words. So that it survives until then,
    the bonus is paid in advance, in equal parts for the characters of the word, and taken back where the word is not
    completed. Matching is by the automaton of Aho & Corasick (1975) over characters: a word that begins inside another
    phrase is not missed.

    Args:
        words: words or phrases, or a file with one a line.
        weight: the bonus of one, in nats.
    """

    def __init__(self, words: Sequence[str], weight: float = 2.0) -> None:
        check_weight(weight)
        if not words:
            raise ArgumentError(f"words={words}: give words in a list, [SMITH,NEW YORK], or a file with one a line")
        super().__init__(weight)
        self.words = words
        self._bound: tuple[TableCache, HotWordAutomaton] | None = None

    def bind(self, tokens: Tokenizer, has_ctc: bool) -> None:
        """Read the words. Raises DataError if the file cannot be read or the tokens can spell none of the words."""
        is_file = isinstance(self.words, str)
        phrases = lexicon.read_phrases(str(self.words)) if is_file else list(self.words)
        spellings = lexicon.spellings(phrases, tokens, str(self.words) if is_file else "hot words")
        automaton = HotWordAutomaton(list(spellings), tokens)
        self._bound = TableCache(automaton), automaton

    def on(self, decoder: Any, num_states: Int[Tensor, " batch"]) -> BatchScorer:
        tables, automaton = require_bound(self._bound, "hot words")
        return HotWordBatchScorer(tables.table(num_states.device), len(num_states), automaton.most_at_once)


class HotWordAutomaton:
    """States are the longest ends of a text that begin a phrase; scores add up to the number of phrases in the text."""

    def __init__(self, phrases: Sequence[str], tokens: Tokenizer) -> None:
        self._children: list[dict[str, int]] = [{}]
        self._paid = [0.0]
        self._completed = [0]
        for phrase in phrases:
            self._add(SPACE + phrase)
        self._fails = self._failures()
        parts = lexicon.word_parts(tokens)
        self._texts = [(SPACE if part.begins else "") + part.text for part in parts]
        self._eos = tokens.eos
        self.start = self._child(0, SPACE)
        self.most_at_once = max(self._completed)

    def _add(self, text: str) -> None:
        node = 0
        for place, character in enumerate(text):
            if character not in self._children[node]:
                self._children[node][character] = len(self._children)
                self._children.append({})
                self._paid.append(0.0)
                self._completed.append(0)
            node = self._children[node][character]
            # Of the phrases that begin like this, the one that is nearest to its end.
            self._paid[node] = max(self._paid[node], place / (len(text) - 1))
        self._completed[node] = 1

    def _failures(self) -> list[int]:
        """Return the longest proper end of each node's text that is a node as well; completed phrases are counted for
        both.
        """
        fails = [0] * len(self._children)
        nodes = [0]
        for node in nodes:  # grows while it is walked: the tree by depth
            for character, child in self._children[node].items():
                other = fails[node]
                while other and character not in self._children[other]:
                    other = fails[other]
                fails[child] = self._children[other].get(character, 0) if node else 0
                self._completed[child] += self._completed[fails[child]]
                nodes.append(child)
        return fails

    def _child(self, node: int, character: str) -> int:
        while node and character not in self._children[node]:
            node = self._fails[node]
        return self._children[node].get(character, 0)

    def expand(
        self, states: Int[Tensor, " states"]
    ) -> tuple[Float[Tensor, "states tokens"], Int[Tensor, "states tokens"]]:
        rows = [[self._step(state, text) for text in self._texts] for state in states.tolist()]
        scores = torch.tensor([[score for score, _ in row] for row in rows], dtype=torch.float64)
        ends = [self._completed[state] - self._paid[state] for state in states.tolist()]
        scores[:, self._eos] = torch.tensor(ends, dtype=torch.float64)
        return scores, torch.tensor([[node for _, node in row] for row in rows])

    def _step(self, state: int, text: str) -> tuple[float, int]:
        """Return the score of a text after a state: what it completes, what is paid in advance; and the next state."""
        completed, node = 0, state
        for character in text:
            completed += self._completed[node] if character == SPACE else 0
            node = self._child(node, character)
        return completed + self._paid[node] - self._paid[state], node


class HotWordBatchScorer(TableBatchScorer):
    """The bonus on a batch; `most_at_once` is the greatest number of phrases that end with the same word."""

    def __init__(self, table: LazyTable, batch: int, most_at_once: int) -> None:
        super().__init__(table, batch)
        self.most_at_once = most_at_once

    def score_upper_bound(self, state: Tensor, steps_left: Int[Tensor, "batch beam"]) -> Tensor:
        return steps_left * self.most_at_once
