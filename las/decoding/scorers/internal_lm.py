"""Subtraction of a speller's internal language model (Variani et al. 2020; of attention models Meng et al. 2021).

A speller learns p(text) of its training transcripts besides what it hears. Next to a language model of other texts that
prior counts twice, so that the search ranks by

    log p(text | speech) + weight of lm * log p(text) - weight * log p_internal(text)

p_internal is the speller itself with every context replaced by zero, or by its mean over training utterances
(Zeineldeen et al. 2021).
"""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from las.data.tokenizers import Tokenizer
from las.decoding.scorers.base import BatchScorer, Scorer, SearchStep, State, check_weight
from las.nn.attention.base import Attention, AttentionMemory, Context, Query, Weights
from las.nn.ensemble import SpellerEnsembleDecoder
from las.nn.model import Decoder
from las.runtime.errors import ConfigError, DataError
from las.storage import bounded


class FixedContext(Attention):
    """An attention whose every context is the only encoded state."""

    def attend(self, query: Query, memory: AttentionMemory, state: State) -> tuple[Context, Weights, Weights]:
        weights = query.new_ones(*query.shape[:2], 1)
        return weights @ memory.values, weights, weights


class InternalLMScorer(Scorer):
    """The score -weight * log p(internal language model), for models with a speller.

    It has no upper bound, so that a search ends only where all its hypotheses have, or at their greatest length.

    Args:
        weight: 0 or more; as a rule below that of the language model; 0 leaves it out.
        contexts: the file that `las analyze what=contexts` writes, for their mean in place of zero.
    """

    def __init__(self, weight: float = 0.2, contexts: str | None = None) -> None:
        check_weight(weight)
        super().__init__(weight)
        self.contexts = contexts
        self.mean: list[float] | None = None

    def bind(self, tokens: Tokenizer, has_ctc: bool) -> None:
        """Read the mean of contexts if there is a file. Raises DataError for one without it."""
        if self.contexts is None:
            return
        try:
            self.mean = [float(value) for value in bounded.stored_lines(Path(self.contexts))[-1]["mean"]]
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{self.contexts}: no mean of contexts ({error!r}): las analyze checkpoint=... what=contexts writes one"
            ) from error

    def on(self, decoder: Any, num_states: Int[Tensor, " batch"]) -> BatchScorer:
        """Return the scorer of a decoder's utterances. Raises ConfigError for a model without a speller."""
        first = torch.full((len(num_states), 1), decoder.sos, device=num_states.device)
        return InternalLMBatchScorer(without_speech(decoder, self.mean), first)


class InternalLMState(NamedTuple):
    """The symbols chosen last, and the decoder's state before them."""

    tokens: Int[Tensor, "batch beam"]
    decoder: Any


@dataclass(eq=False)
class InternalLMBatchScorer(BatchScorer):
    """Minus the log-probabilities of a decoder that hears nothing, which is fed `first` in the beginning."""

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


def without_speech(decoder: Any, context: Sequence[float] | None) -> Any:
    """Return a decoder of as many utterances whose every context is this one, or zero.

    Raises ConfigError for a model without a speller, for a context of another size, and one for several models.
    """
    if isinstance(decoder, SpellerEnsembleDecoder) and context is None:
        return SpellerEnsembleDecoder([without_speech(member, None) for member in decoder.members], decoder.mean)
    if not isinstance(decoder, Decoder):
        raise ConfigError(
            "search.internal_lm: this model has no speller, or several with one context, whose language model it "
            "subtracts: leave it out (search.internal_lm=null; for las tune weights.internal_lm=[0.0])"
        )
    speller, heard = decoder.speller, torch.zeros_like(decoder.memory.values[:, :1])
    if context is not None:
        if len(context) != heard.shape[-1]:
            raise ConfigError(
                f"search.internal_lm.contexts: a mean of {len(context)} values, and contexts of this model have "
                f"{heard.shape[-1]}: las analyze what=contexts with the same checkpoint"
            )
        heard, speller = heard + torch.tensor(context).to(heard), copy.copy(speller)
        speller._modules = {**speller._modules, "attention": FixedContext(0, len(context))}
    num_states = torch.ones(len(heard), dtype=torch.long, device=heard.device)
    return Decoder(speller, speller.attention.prepare(heard, num_states))
