"""CTC prefix scores inside the beam search of an attention model (Watanabe et al. 2017, algorithm 2; Hori et al. 2017).

psi(g) is the probability that CTC writes something that begins with g. The score of the next symbol c after g is
log psi(g c) - log psi(g), that of the end log p(g) - log psi(g): over a whole hypothesis they add up to log p(g), what
the loss of training is made of. Forward variables of g over the states t = 1 ... T, p_t what CTC says of state t:

    n_t(g c) = p_t(c) (n_{t-1}(g c) + phi_t)         paths that have written g c and end in c
    b_t(g c) = p_t(blank) (b_{t-1}(g c) + n_{t-1}(g c))      and end in a blank
    phi_t    = b_{t-1}(g) + n_{t-1}(g)               without n where c is the last symbol of g
    psi(g c) = sum_t phi_t p_t(c)

Two things make it cheap. psi needs no forward variable of g c: for all symbols together it is one matrix product, so
that no candidates have to be chosen before it, and forward variables are computed for the chosen symbols only. And
both recurrences are linear, so that cumulative sums of logarithms replace the loop over states: with P_t the sum of
log p_1(c) ... log p_t(c),

    log n_t(g c) = P_t + log sum_{s <= t} exp(log phi_s - P_{s-1})"""

import math
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from las.data.tokenizers import Tokenizer
from las.decoding.scorers.base import BatchScorer, Scorer, SearchStep, State, check_weight, score_type
from las.nn.ctc import BLANK, missing
from las.nn.masking import mask_of

FLOOR = -1e4
"""The least log-probability of a symbol in a state: sums of it stay finite, and its exponential is 0."""

LOWEST = -1e30
"""What -inf counts as where it is subtracted: the difference of two of them would be NaN."""


@runtime_checkable
class Hears(Protocol):
    """What is asked of a decoder: log-probabilities of tokens and blank, state by state."""

    def ctc_log_probs(self) -> Tensor: ...


class Prefixes(NamedTuple):
    """Of each hypothesis: its last symbol, log psi, and log n_t and log b_t for t = 0 ... T."""

    last: Int[Tensor, "batch beam"]
    prefix: Float[Tensor, "batch beam"]
    in_symbol: Float[Tensor, "batch beam states1"]
    in_blank: Float[Tensor, "batch beam states1"]


class CTCPrefixScorer(Scorer):
    """log p of CTC, interpolated with the speller: (1 - weight) log p(speller) + weight log p(CTC).

    Needs a model that was trained with `loss=joint_ctc`.
    """

    def __init__(self, weight: float = 0.3) -> None:
        check_weight(weight, below=1.0)
        super().__init__(weight)

    @property
    def share(self) -> float:
        return self.weight

    def bind(self, tokens: Tokenizer, has_ctc: bool) -> None:
        """Raises ConfigError for a model without CTC."""
        if not has_ctc:
            raise missing()

    def on(self, decoder: Any, num_states: Int[Tensor, " batch"]) -> BatchScorer:
        if not isinstance(decoder, Hears):
            raise TypeError(f"search.ctc needs CTC's log-probabilities, which a {type(decoder).__name__} does not have")
        return CTCPrefixBatchScorer(*tables(decoder.ctc_log_probs(), num_states))


class CTCPrefixBatchScorer(BatchScorer):
    """CTC on a batch: p [batch, states, vocab], and the sums of log p over states, [batch, vocab, states + 1]."""

    def __init__(self, probs: Float[Tensor, "batch states vocab"], sums: Float[Tensor, "batch vocab states1"]) -> None:
        self.probs = probs
        self.sums = sums

    def select_utterances(self, rows: Int[Tensor, " selected"]) -> "CTCPrefixBatchScorer":
        return CTCPrefixBatchScorer(self.probs[rows], self.sums[rows])

    def start(self) -> Prefixes:
        in_blank = self.sums[:, BLANK].unsqueeze(1)
        nothing = torch.zeros_like(in_blank[:, :, 0])
        return Prefixes(nothing.long() + BLANK, nothing, torch.full_like(in_blank, -math.inf), in_blank)

    def score(self, state: Prefixes, step: SearchStep) -> tuple[Tensor, State]:
        any_end = torch.logaddexp(state.in_symbol, state.in_blank)
        before = any_end[:, :, :-1]
        top = before.amax(-1, keepdim=True).clamp(min=LOWEST)
        found = torch.matmul((before - top).exp(), self.probs)
        # A symbol that repeats the last one is a new one only after a blank.
        places = state.last.unsqueeze(-1)
        rows = torch.arange(len(self.probs), device=found.device).unsqueeze(1)
        repeated = self.probs.transpose(1, 2)[rows, state.last] * (state.in_blank[:, :, :-1] - top).exp()
        found = found.scatter(2, places, repeated.sum(-1, keepdim=True))
        prefix = state.prefix.clamp(min=LOWEST)
        scores = found.log() + (top - prefix.unsqueeze(-1))
        scores[:, :, BLANK] = any_end[:, :, -1] - prefix
        return scores, state

    def advance(self, state: Prefixes, tokens: Int[Tensor, "batch beam"]) -> Prefixes:
        rows = torch.arange(len(self.sums), device=tokens.device).unsqueeze(1)
        again = (tokens == state.last).unsqueeze(-1)
        before = torch.logaddexp(state.in_symbol, state.in_blank)
        before = torch.where(again, state.in_blank, before)[:, :, :-1]
        sums = self.sums[rows, tokens]
        in_symbol = self._carried(sums, before)
        in_blank = self._carried(self.sums[:, BLANK].unsqueeze(1), in_symbol[:, :, :-1])
        prefix = (before + sums.diff(dim=-1)).logsumexp(-1)
        return Prefixes(tokens, prefix, in_symbol, in_blank)

    @staticmethod
    def _carried(sums: Tensor, entering: Tensor) -> Tensor:
        """log of paths that entered before each state and stay: the recurrences above, with nothing before t = 0."""
        stay = sums[:, :, 1:] + torch.logcumsumexp(entering - sums[:, :, :-1], dim=-1)
        return torch.nn.functional.pad(stay, (1, 0), value=-math.inf)


def tables(
    log_probs: Float[Tensor, "batch states vocab"], num_states: Int[Tensor, " batch"]
) -> tuple[Float[Tensor, "batch states vocab"], Float[Tensor, "batch vocab states1"]]:
    """What `CTCPrefixBatchScorer` works with. States after the last are certain blanks, which change nothing."""
    log_probs = log_probs.to(score_type(log_probs.device)).nan_to_num(FLOOR, 0.0, FLOOR).clamp(min=FLOOR)
    certain = torch.full_like(log_probs[:1, :1], FLOOR)
    certain[..., BLANK] = 0.0
    mask = mask_of(num_states, log_probs.shape[1]).unsqueeze(-1)
    log_probs = torch.where(mask, log_probs, certain)
    sums = torch.nn.functional.pad(log_probs.cumsum(1), (0, 0, 1, 0))
    return log_probs.exp(), sums.transpose(1, 2).contiguous()
