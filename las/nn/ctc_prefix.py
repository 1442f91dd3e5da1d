"""Probabilities of what the output of CTC begins with (Watanabe et al. 2017, algorithm 2; Hori et al. 2017).

psi(g) is the probability that the output of CTC begins with g. The score of the next symbol c after g is
log psi(g c) - log psi(g), that of the end log p(g) - log psi(g): over a whole hypothesis they add up to log p(g), the
log-likelihood in the CTC loss. Forward variables of g over the states t = 1 ... T, with p_t the CTC output of state t:

    n_t(g c) = p_t(c) (n_{t-1}(g c) + phi_t)         paths that have emitted g c and end in c
    b_t(g c) = p_t(blank) (b_{t-1}(g c) + n_{t-1}(g c))      and end in a blank
    phi_t    = b_{t-1}(g) + n_{t-1}(g)               without n where c is the last symbol of g
    psi(g c) = sum_t phi_t p_t(c)

Two properties make it cheap. psi needs no forward variable of g c: for all symbols together it is one matrix product,
so that no candidates have to be chosen beforehand, and forward variables are computed for the chosen symbols only.
Both recurrences are linear, so that cumulative sums of logarithms replace the loop over states: with P_t the sum of
log p_1(c) ... log p_t(c),

    log n_t(g c) = P_t + log sum_{s <= t} exp(log phi_s - P_{s-1})

On a CPU both are loops over the states in C++ (`prefixes.h`).
"""

import ctypes
import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from las.nn.ctc import BLANK
from las.nn.kernels.choice import Compiled, Differences
from las.nn.kernels.cpp.tensors import Doubles, Int64s, Structure, call, dense, score_type
from las.nn.kernels.graphs.parts import Replayable
from las.nn.normalisation import mask_of

FLOOR = -1e4
"""Lower bound on the log-probability of a symbol in a state: sums of it stay finite, and its exponential is 0."""

LOWEST = -1e30
"""Stands for -inf in subtractions, as the difference of two infinities would be NaN."""

SHARED = 1 << 14
"""Values of all forward variables from which on threads share the beams."""


class PrefixState(NamedTuple):
    """The last symbol of each hypothesis, its log psi, and its log n_t and log b_t for t = 0 ... T."""

    last: Int[Tensor, "batch beam"]
    prefix: Float[Tensor, "batch beam"]
    in_symbol: Float[Tensor, "batch beam states1"]
    in_blank: Float[Tensor, "batch beam states1"]


class CTCPrefixes(Replayable):
    """CTC prefix scores of a batch, by torch's operations.

    `probs` are p_t, [batch, states, vocab]; `sums` are P_t of the equations above, [batch, vocab, states + 1].
    """

    def __init__(self, probs: Float[Tensor, "batch states vocab"], sums: Float[Tensor, "batch vocab states1"]) -> None:
        self.probs = probs
        self.sums = sums

    def select_utterances(self, rows: Int[Tensor, " selected"]) -> "CTCPrefixes":
        """Return the prefixes of a subset of the utterances, by their indices."""
        return type(self)(self.probs[rows], self.sums[rows])

    def start(self) -> PrefixState:
        """Return the state before the first symbol, one beam per utterance."""
        in_blank = self.sums[:, BLANK].unsqueeze(1)
        zeros = torch.zeros_like(in_blank[:, :, 0])
        return PrefixState(zeros.long() + BLANK, zeros, torch.full_like(in_blank, -math.inf), in_blank)

    def score(self, state: PrefixState) -> Float[Tensor, "batch beam vocab"]:
        """Log-probabilities of the next symbol, and of the end as id 0."""
        any_end = torch.logaddexp(state.in_symbol, state.in_blank)
        any_end_before = any_end[:, :, :-1]
        top = any_end_before.amax(-1, keepdim=True).clamp(min=LOWEST)
        psi = torch.matmul((any_end_before - top).exp(), self.probs)
        # Repeating the last symbol emits a new one only after a blank.
        last = state.last.unsqueeze(-1)
        rows = torch.arange(len(self.probs), device=psi.device).unsqueeze(1)
        repeated = self.probs.transpose(1, 2)[rows, state.last] * (state.in_blank[:, :, :-1] - top).exp()
        psi = psi.scatter(2, last, repeated.sum(-1, keepdim=True))
        prefix = state.prefix.clamp(min=LOWEST)
        scores = psi.log() + (top - prefix.unsqueeze(-1))
        scores[:, :, BLANK] = any_end[:, :, -1] - prefix
        return scores

    def advance(self, state: PrefixState, tokens: Int[Tensor, "batch beam"]) -> PrefixState:
        """Return the state after one more symbol."""
        rows = torch.arange(len(self.sums), device=tokens.device).unsqueeze(1)
        again = (tokens == state.last).unsqueeze(-1)
        entering = torch.logaddexp(state.in_symbol, state.in_blank)
        entering = torch.where(again, state.in_blank, entering)[:, :, :-1]
        sums = self.sums[rows, tokens]
        in_symbol = self._forward(sums, entering)
        in_blank = self._forward(self.sums[:, BLANK].unsqueeze(1), in_symbol[:, :, :-1])
        prefix = (entering + sums.diff(dim=-1)).logsumexp(-1)
        return PrefixState(tokens, prefix, in_symbol, in_blank)

    def follow(self, state: PrefixState, tokens: Int[Tensor, "batch beam"]) -> PrefixState:
        """Return the state after the symbols that a search feeds; the boundary, fed first, leaves it as it is."""
        begins, advanced = tokens == BLANK, self.advance(state, tokens)
        last, prefix = (torch.where(begins, *pair) for pair in zip(state[:2], advanced[:2], strict=True))
        forward = zip(state[2:], advanced[2:], strict=True)
        return PrefixState(last, prefix, *(torch.where(begins.unsqueeze(-1), *pair) for pair in forward))

    @staticmethod
    def _forward(sums: Tensor, entering: Tensor) -> Tensor:
        """Return the recurrences above, in logarithms: paths enter before each state and stay, none at t = 0."""
        stay = sums[:, :, 1:] + torch.logcumsumexp(entering - sums[:, :, :-1], dim=-1)
        return torch.nn.functional.pad(stay, (1, 0), value=-math.inf)


class PrefixesStructure(Structure):
    """The structure `Prefixes` of `prefixes.h`, field by field."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("batch", "beams", "states", "vocab", "blank")),
        ("lowest", ctypes.c_double),
        *(("probs", Doubles), ("log_probs", Doubles), ("last", Int64s), ("tokens", Int64s)),
        *((name, Doubles) for name in ("prefix", "in_symbol", "in_blank", "scores")),
        *((name, Doubles) for name in ("next_prefix", "next_in_symbol", "next_in_blank")),
    )


class CompiledCTCPrefixes(CTCPrefixes):
    """CTC prefix scores of a batch in C++, in float64 on a CPU."""

    def __init__(self, probs: Float[Tensor, "batch states vocab"], sums: Float[Tensor, "batch vocab states1"]) -> None:
        super().__init__(probs, sums)
        self.dense_probs, self.log_probs = dense(probs), dense(sums.diff(dim=-1))

    def score(self, state: PrefixState) -> Float[Tensor, "batch beam vocab"]:
        scores = self.dense_probs.new_empty(*state.last.shape, self.probs.shape[-1])
        self._call("prefix_scores", state, scores=scores)
        return scores

    def advance(self, state: PrefixState, tokens: Int[Tensor, "batch beam"]) -> PrefixState:
        new = PrefixState(
            dense(tokens), *(torch.empty_like(part, memory_format=torch.contiguous_format) for part in state[1:])
        )
        results = {f"next_{name}": part for name, part in new._asdict().items() if name != "last"}
        self._call("prefix_advance", state, tokens=new.last, **results)
        return new

    def _call(self, name: str, state: PrefixState, **tensors: Tensor) -> None:
        """Run a function of the library; those tensors are dense, the ones of the state need not be."""
        tensors |= {key: dense(part) for key, part in state._asdict().items()}
        structure = PrefixesStructure(*state.last.shape, *self.probs.shape[1:], BLANK, LOWEST)
        structure.point(probs=self.dense_probs, log_probs=self.log_probs, **tensors)
        call(name, None, structure, state.in_blank.numel() >= SHARED)


def _trial() -> Differences:
    """Return the scores after three symbols of two utterances."""
    log_probs = torch.linspace(-9, 9, 2 * 5 * 4, dtype=torch.float64).sin().mul(3).view(2, 5, 4).log_softmax(-1)
    results = []
    for kind in (CompiledCTCPrefixes, CTCPrefixes):
        scorer = kind(*tables(log_probs, torch.tensor([5, 3])))
        state = scorer.start()
        for token in (1, 1, 3):
            state = scorer.advance(state, torch.full((2, 1), token))
        results.append([scorer.score(state), *state[1:]])
    return [("the scores", ours, right) for ours, right in zip(*results, strict=True)]


PREFIXES = Compiled("CTC prefixes", _trial, 1e-9)


def prefixes(log_probs: Float[Tensor, "batch states vocab"], num_states: Int[Tensor, " batch"]) -> CTCPrefixes:
    """Prefix scores of a batch by the output of CTC, the fastest that computes on its device."""
    probs, sums = tables(log_probs, num_states)
    return (CTCPrefixes if PREFIXES.refusal(probs) else CompiledCTCPrefixes)(probs, sums)


def tables(
    log_probs: Float[Tensor, "batch states vocab"], num_states: Int[Tensor, " batch"]
) -> tuple[Float[Tensor, "batch states vocab"], Float[Tensor, "batch vocab states1"]]:
    """Arguments of `CTCPrefixes`. Padding states are blanks with probability 1, which change nothing."""
    log_probs = log_probs.to(score_type(log_probs.device)).nan_to_num(FLOOR, 0.0, FLOOR).clamp(min=FLOOR)
    padding = torch.full_like(log_probs[:1, :1], FLOOR)
    padding[..., BLANK] = 0.0
    mask = mask_of(num_states, log_probs.shape[1], log_probs.device).unsqueeze(-1)
    log_probs = torch.where(mask, log_probs, padding)
    sums = torch.nn.functional.pad(log_probs.cumsum(1), (0, 0, 1, 0))
    return log_probs.exp(), sums.transpose(1, 2).contiguous()
