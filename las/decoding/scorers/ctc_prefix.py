"""CTC prefix scores (`las.nn.ctc_prefix`) inside the beam search of an attention model."""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Int
from torch import Tensor

from las.data.tokenizers import Tokenizer
from las.decoding.scorers.base import BatchScorer, Scorer, SearchStep, State, check_weight
from las.nn import ctc_prefix
from las.nn.ctc import no_ctc_error
from las.nn.ctc_prefix import CTCPrefixes, PrefixState


@runtime_checkable
class HasCTC(Protocol):
    """A decoder with CTC: log-probabilities of tokens and blank, [batch, states, vocab]."""

    def ctc_log_probs(self) -> Tensor: ...


class CTCPrefixScorer(Scorer):
    """The CTC log-probability, interpolated with the speller: (1 - weight) log p(speller) + weight log p(CTC).

    Needs a model that was trained with `loss=joint_ctc`.
    """

    def __init__(self, weight: float = 0.3) -> None:
        check_weight(weight, below=1.0)
        super().__init__(weight)

    @property
    def share(self) -> float:
        return self.weight

    def bind(self, tokens: Tokenizer, has_ctc: bool) -> None:
        """Raise ConfigError for a model without CTC."""
        if not has_ctc:
            raise no_ctc_error()

    def on(self, decoder: Any, num_states: Int[Tensor, " batch"]) -> BatchScorer:
        if not isinstance(decoder, HasCTC):
            raise TypeError(f"search.ctc needs CTC's log-probabilities, which a {type(decoder).__name__} does not have")
        return CTCPrefixBatchScorer(ctc_prefix.prefixes(decoder.ctc_log_probs(), num_states))


@dataclass(eq=False)
class CTCPrefixBatchScorer(BatchScorer):
    """CTC prefix scores of a batch."""

    prefixes: CTCPrefixes

    def select_utterances(self, rows: Int[Tensor, " selected"]) -> "CTCPrefixBatchScorer":
        return CTCPrefixBatchScorer(self.prefixes.select_utterances(rows))

    def start(self) -> PrefixState:
        return self.prefixes.start()

    def score(self, state: PrefixState, step: SearchStep) -> tuple[Tensor, State]:
        return self.prefixes.score(state), state

    def advance(self, state: PrefixState, tokens: Int[Tensor, "batch beam"]) -> PrefixState:
        return self.prefixes.advance(state, tokens)
