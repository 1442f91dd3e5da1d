"""Subtraction of a speller's internal language model (Variani et al. 2020; of attention models Meng et al. 2021).

A speller learns p(text) of its training transcripts besides what it hears. Next to a language model of other texts that
prior counts twice, so that the search ranks by

    log p(text | speech) + weight of lm * log p(text) - weight * log p_internal(text)

p_internal is the speller itself with every context replaced by zero (Zeineldeen et al. 2021).
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Int
from torch import Tensor

from las.decoding.scorers.base import BatchScorer, Scorer, SearchStep, State, check_weight
from las.runtime.errors import ConfigError


@runtime_checkable
class HasInternalLM(Protocol):
    """A decoder that gives one of as many utterances in which nothing is heard."""

    sos: int

    def without_speech(self) -> Any: ...


class InternalLMScorer(Scorer):
    """The score -weight * log p(internal language model), for models with a speller.

    It has no upper bound, so that a search ends only where all its hypotheses have, or at their greatest length.

    Args:
        weight: 0 or more; as a rule below that of the language model; 0 leaves it out.
    """

    def __init__(self, weight: float = 0.2) -> None:
        check_weight(weight)
        super().__init__(weight)

    def on(self, decoder: Any, num_states: Int[Tensor, " batch"]) -> BatchScorer:
        """Return the scorer of a decoder's utterances. Raises ConfigError for a model without a speller."""
        if not isinstance(decoder, HasInternalLM):
            raise ConfigError(
                "search.internal_lm: this model has no speller, whose language model it subtracts: leave it out "
                "(search.internal_lm=null; for las tune weights.internal_lm=[0.0])"
            )
        first = torch.full((len(num_states), 1), decoder.sos, device=num_states.device)
        return InternalLMBatchScorer(decoder.without_speech(), first)


class InternalLMState(NamedTuple):
    """The symbols chosen last, and the decoder's state before them."""

    tokens: Int[Tensor, "batch beam"]
    decoder: Any


@dataclass(eq=False)
class InternalLMBatchScorer(BatchScorer):
    """Minus the log-probabilities of a decoder that hears nothing (`HasInternalLM`), which is fed `first` in the
    beginning.
    """

    decoder: Any
    first: Int[Tensor, "batch 1"]

    def select_utterances(self, rows: Int[Tensor, " selected"]) -> "InternalLMBatchScorer":
        return InternalLMBatchScorer(self.decoder.select_utterances(rows), self.first[rows])

    def start(self) -> InternalLMState:
        return InternalLMState(self.first, self.decoder.start())

    def score(self, state: InternalLMState, step: SearchStep) -> tuple[Tensor, InternalLMState]:
        log_probs, following = self.decoder.step(*state)
        return -log_probs, InternalLMState(state.tokens, following)

    def advance(self, state: InternalLMState, tokens: Int[Tensor, "batch beam"]) -> InternalLMState:
        return state._replace(tokens=tokens)

    def score_upper_bound(self, state: State, steps_left: Int[Tensor, "batch beam"]) -> float:
        return math.inf
