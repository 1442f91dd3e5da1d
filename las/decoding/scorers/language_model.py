"""Shallow fusion: the log-probability that a language model gives the same symbols, the end included.

Any model of the same tokens can be one that has `start(batch, device)`, the state before the first symbol,
`score(state)`, the log-probabilities [batch, beam, tokens] of what may come next, and `advance(state, tokens)`.
"""

from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Int
from torch import Tensor

from las.data.tokenizers import Tokenizer
from las.decoding.scorers.base import BatchScorer, Scorer, SearchStep, State, check_weight
from las.lm import loading
from las.runtime.errors import ArgumentError, ConfigError


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
        if self.model is None:
            raise ConfigError(
                f"{self.path}: a search with a language model must be told the tokens: give the scorer a model, "
                "lm=NGram.read(path, tokenizer), or call search.bind(tokenizer, has_ctc)"
            )
        return LanguageModelBatchScorer(self.model, len(num_states), num_states.device)


class LanguageModelBatchScorer(BatchScorer):
    """The language model's log-probabilities of a batch."""

    def __init__(self, model: Predicts, batch: int, device: torch.device) -> None:
        self.model = model
        self.batch = batch
        self.device = device

    def start(self) -> State:
        return self.model.start(self.batch, self.device)

    def score(self, state: State, step: SearchStep) -> tuple[Tensor, State]:
        return self.model.score(state), state

    def advance(self, state: State, tokens: Int[Tensor, "batch beam"]) -> State:
        return self.model.advance(state, tokens)
