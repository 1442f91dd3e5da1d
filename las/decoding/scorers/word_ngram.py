"""Fusion with a model of words: the log-probability of the words of a hypothesis and of its end, while their tokens are
written (`las.lm.word_ngram`, Hori et al. 2018)."""

from pathlib import Path
from typing import Any

from jaxtyping import Int
from torch import Tensor

from las.data.tokenizers import Tokenizer
from las.decoding.scorers.base import BatchScorer, Scorer, check_weight
from las.decoding.scorers.lazy_table import TableBatchScorer, TableCache
from las.lm import word_ngram
from las.runtime.errors import ArgumentError, ConfigError


class WordNGramScorer(Scorer):
    """weight * log p(words), of an n-gram model or the same for all words of a list.

    Args:
        path: an ARPA file of words, gzipped or not (`las ngram units=words`).
        words: a list of words or a pronouncing dictionary instead: all words, the end of a sentence and an unknown word
            are equally probable.
        weight: 0 or more; 0 leaves it out.
        oov_penalty: cost in nats of each character of a word that is not listed, beside p(<unk>); None: such words
            cannot be written.

    Raises ArgumentError unless one of `path` and `words` is given.
    """

    def __init__(
        self,
        path: str | None = None,
        words: str | None = None,
        weight: float = 0.3,
        oov_penalty: float | None = 3.0,
    ) -> None:
        check_weight(weight)
        if (path is None) == (words is None):
            raise ArgumentError(f"path={path}: give one of path (an ARPA file) and words (a list of words)")
        if oov_penalty is not None and oov_penalty < 0:
            raise ArgumentError(f"oov_penalty={oov_penalty} must be 0 or more, or null to write listed words only")
        super().__init__(weight)
        self.path = None if path is None else Path(path)
        self.words = None if words is None else Path(words)
        self.oov_penalty = oov_penalty
        self._tables: TableCache | None = None

    def bind(self, tokens: Tokenizer, has_ctc: bool) -> None:
        """Read the file. Raises DataError if it cannot be used or the tokens can spell none of its words."""
        self._tables = TableCache(word_ngram.read(self.path, self.words, tokens, self.oov_penalty))

    def on(self, decoder: Any, num_states: Int[Tensor, " batch"]) -> BatchScorer:
        if self._tables is None:
            raise ConfigError(
                f"{self.path or self.words}: a search with a model of words must be told the tokens: call "
                "search.bind(tokenizer, has_ctc)"
            )
        return TableBatchScorer(self._tables.table(num_states.device), len(num_states))
