"""A lexicon: only its words can be written, with single separators between them."""

import math
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from las.data.tokenizers import Tokenizer
from las.decoding.scorers.base import BatchConstraint, Constraint, SearchStep
from las.decoding.scorers.lazy_table import LazyTable, TableCache
from las.lm import lexicon
from las.lm.prefix_tree import NO_WORD, PrefixTree
from las.runtime.errors import ConfigError


class LexiconConstraint(Constraint):
    """Only the words of a list can be written: `path` has a word a line, or is a pronouncing dictionary.

    The constraint is strict: a hypothesis that the length limit ends inside a word is given up.
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
        if self._tables is None:
            raise ConfigError(
                f"{self.path}: a search with a lexicon must be told the tokens: call search.bind(tokenizer, has_ctc)"
            )
        return LexiconBatchConstraint(self._tables.table(num_states.device), len(num_states))


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


class LexiconBatchConstraint(BatchConstraint):
    """The lexicon on a batch; the state is the row of each hypothesis in the table."""

    is_strict = True
    on_host = True

    def __init__(self, table: LazyTable, batch: int) -> None:
        self.table = table
        self.batch = batch

    def start(self) -> Tensor:
        return self.table.start(self.batch)

    def advance(self, state: Tensor, tokens: Int[Tensor, "batch beam"]) -> Tensor:
        return self.table.advance(state, tokens)

    def forbidden(self, state: Tensor, step: SearchStep) -> Bool[Tensor, "batch beam vocab"]:
        return self.table.score(state) == -math.inf
