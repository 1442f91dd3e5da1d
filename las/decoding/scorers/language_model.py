"""Shallow fusion with language models of the recogniser's tokens, and of words (`las.lm.word_ngram`).

Any model of the same tokens can be one that has `start(batch, device)`, the state before the first symbol,
`score(state)`, the log-probabilities [batch, beam, tokens] of what may come next, and `advance(state, tokens)`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Int
from torch import Tensor

from las.data.tokenizers import Tokenizer
from las.decoding.scorers.base import BatchScorer, Scorer, SearchStep, State, check_weight, require_bound
from las.decoding.scorers.lazy_table import TableBatchScorer, TableCache
from las.lm import loading, word_ngram
from las.runtime.errors import ArgumentError


@runtime_checkable
class Predicts(Protocol):
    """The interface of a language model in a search."""

    def start(self, batch: int, device: torch.device) -> State: ...

    def score(self, state: State) -> Tensor: ...

    def advance(self, state: State, tokens: Tensor) -> State: ...


class LanguageModelScorer(Scorer):
    """The score weight * log p(language model), by a model from a file or one in memory.

    Args:
        path: an ARPA file, gzipped or not, a KenLM binary file, or the run of an LSTM model. `bind` reads it for the
            tokens of the recogniser; `las.load` and trainings call it for the searches of their configs.
        weight: 0 or more; 0 leaves it out.
        lm: a model of the same tokens instead, for example `NGram.read(path, tokenizer)`, which needs no `bind`.

    Raises ArgumentError unless one of `path` and `lm` is given.
    """

    def __init__(self, path: str | None = None, weight: float = 0.3, *, lm: Predicts | None = None) -> None:
        check_weight(weight)
        if (path is None) == (lm is None):
            raise ArgumentError(f"path={path}: give one language model, a file (path=...) or a model (lm=...)")
        super().__init__(weight)
        self.path = None if path is None else Path(path)
        self.model = lm

    def bind(self, tokens: Tokenizer, has_ctc: bool) -> None:
        """Read the file if there is one. Raises DataError if it cannot be used or is of other symbols."""
        if self.path is not None:
            self.model = loading.load(self.path, tokens)

    def on(self, decoder: Any, num_states: Int[Tensor, " batch"]) -> BatchScorer:
        model = require_bound(self.model, self.path, "give the scorer a model, lm=NGram.read(path, tokenizer), or ")
        return LanguageModelBatchScorer(model, len(num_states), num_states.device)


@dataclass(eq=False)
class LanguageModelBatchScorer(BatchScorer):
    """The language model's log-probabilities of a batch."""

    model: Predicts
    batch: int
    device: torch.device

    def start(self) -> State:
        return self.model.start(self.batch, self.device)

    def score(self, state: State, step: SearchStep) -> tuple[Tensor, State]:
        return self.model.score(state), state

    def advance(self, state: State, tokens: Int[Tensor, "batch beam"]) -> State:
        return self.model.advance(state, tokens)


class WordNGramScorer(Scorer):
    """weight * log p(words), of an n-gram model or the same for all words of a list.

    Args:
        path: an ARPA file of words, gzipped or not (`las ngram units=words`).
        words: a list of words or a pronouncing dictionary instead: all words, the end of a sentence and an unknown word
            are equally probable.
        weight: 0 or more; 0 leaves it out.
        oov_penalty: cost in nats of each character of a word that is not listed, besides p(<unk>); None: such words
            cannot be written.

    Raises ArgumentError unless one of `path` and `words` is given.
    """

    def __init__(
        self, path: str | None = None, words: str | None = None, weight: float = 0.3, oov_penalty: float | None = 3.0
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
        tables = require_bound(self._tables, self.path or self.words)
        return TableBatchScorer(tables.table(num_states.device), len(num_states))
