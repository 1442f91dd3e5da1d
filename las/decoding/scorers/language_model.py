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
from las.runtime.errors import ConfigError


@runtime_checkable
class Predicts(Protocol):
    """The interface of a language model in a search."""

    def start(self, batch: int, device: torch.device) -> State: ...

    def score(self, state: State) -> Tensor: ...

    def advance(self, state: State, tokens: Tensor) -> State: ...


class LanguageModelScorer(Scorer):
    """weight * log p(language model); `path` is an ARPA file, gzipped or not, or one of KenLM's binary files.

    The file is read when the tokens of the recogniser are known (`bind`), and must be of the same.
    """

    def __init__(self, path: str, weight: float = 0.3) -> None:
        check_weight(weight)
        super().__init__(weight)
        self.path = Path(path)
        self.model: Predicts | None = None

    def bind(self, tokens: Tokenizer, has_ctc: bool) -> None:
        """Read the model. Raises DataError for a file that cannot be used or is of other symbols."""
        self.model = loading.load(self.path, tokens)

    def on(self, decoder: Any, num_states: Int[Tensor, " batch"]) -> BatchScorer:
        if self.model is None:
            raise ConfigError(f"{self.path}: a search with a language model must be told the tokens: search.bind(...)")
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
