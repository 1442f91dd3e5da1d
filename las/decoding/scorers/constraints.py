"""Constraints on the end, the length and the repetitions of a hypothesis; they need no tokenizer."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from las.config.build import require
from las.decoding.scorers.base import BatchConstraint, Constraint, SearchStep, State
from las.runtime.errors import ArgumentError

NOTHING = -1
"""Stands for the positions before the first symbol."""


class EndThreshold(Constraint):
    """A threshold on the end of a sentence, relative to the best other symbol (Hannun et al. 2019):

        log p(end) > factor * max over other symbols of log p(symbol)

    with the decoder's own probabilities. It prevents hypotheses that stop early. Logarithms are below 0, so that with a
    factor above 1 the end may also be less probable than the best other symbol.
    """

    def __init__(self, factor: float = 1.5) -> None:
        if not 0 < factor < math.inf:
            raise ArgumentError(f"factor={factor} must be above 0, for example 1.5")
        self.factor = factor

    def on(self, decoder: Any, num_states: Int[Tensor, " batch"]) -> BatchConstraint:
        return EndBatchConstraint(self.factor, decoder.eos)


@dataclass(eq=False)
class EndBatchConstraint(BatchConstraint):
    """The threshold on a batch, which has no state."""

    factor: float
    eos: int

    def forbidden(self, state: State, step: SearchStep) -> Bool[Tensor, "batch beam vocab"]:
        is_end = _is_end(step, self.eos)
        best = step.log_probs.masked_fill(is_end, -math.inf).amax(-1, keepdim=True)
        return is_end & (step.log_probs <= self.factor * best)


class MinLength(Constraint):
    """A minimum of `ratio` tokens per encoded state, rounded up; `search.max_length_ratio` sets the maximum."""

    def __init__(self, ratio: float = 0.05) -> None:
        if not 0 <= ratio < math.inf:
            raise ArgumentError(f"ratio={ratio} must be 0 or more, for example 0.05")
        self.ratio = ratio

    def on(self, decoder: Any, num_states: Int[Tensor, " batch"]) -> BatchConstraint:
        # Rounded before ceil, as in LengthLimit: in binary, 0.07 * 100 is a little more than 7.
        return LengthBatchConstraint((self.ratio * num_states.double()).round(decimals=6).ceil(), decoder.eos)


@dataclass(eq=False)
class LengthBatchConstraint(BatchConstraint):
    """The least lengths of a batch; the state is the length of each hypothesis."""

    min_tokens: Float[Tensor, " batch"]
    eos: int

    def select_utterances(self, rows: Int[Tensor, " selected"]) -> "LengthBatchConstraint":
        return LengthBatchConstraint(self.min_tokens[rows], self.eos)

    def start(self) -> Tensor:
        return torch.zeros_like(self.min_tokens, dtype=torch.long).unsqueeze(1)

    def advance(self, state: Tensor, tokens: Int[Tensor, "batch beam"]) -> Tensor:
        return state + 1

    def forbidden(self, state: Tensor, step: SearchStep) -> Bool[Tensor, "batch beam vocab"]:
        return _is_end(step, self.eos) & (state < self.min_tokens.unsqueeze(1)).unsqueeze(-1)


def _is_end(step: SearchStep, eos: int) -> Bool[Tensor, " vocab"]:
    return torch.arange(step.log_probs.shape[-1], device=step.log_probs.device) == eos


class RepetitionConstraint(Constraint):
    """A pattern of up to `max_period` symbols may be repeated at most `max_repeats` times in a row.

    Where each of the last `period * max_repeats` symbols equals the one `period` before it, a pattern of that length
    has occurred once and then `max_repeats` times more. The symbol that would complete this is forbidden.
    """

    def __init__(self, max_period: int = 32, max_repeats: int = 5) -> None:
        require("max_period", max_period, 1)
        require("max_repeats", max_repeats, 1)
        self.max_period, self.max_repeats = max_period, max_repeats

    def on(self, decoder: Any, num_states: Int[Tensor, " batch"]) -> BatchConstraint:
        periods = torch.arange(1, self.max_period + 1, device=num_states.device)
        return RepetitionBatchConstraint(periods, self.max_repeats, len(num_states))


class RepetitionState(NamedTuple):
    """The last symbols of each hypothesis, and its runs of repeated ones, for each period p from 1.

    `symbols` are those p positions back; `runs` count the last symbols that equal the one p positions before them.
    """

    symbols: Int[Tensor, "batch beam periods"]
    runs: Int[Tensor, "batch beam periods"]


@dataclass(eq=False)
class RepetitionBatchConstraint(BatchConstraint):
    """The limit on a batch; `periods` are 1 ... max_period."""

    periods: Int[Tensor, " periods"]
    max_repeats: int
    batch: int

    def select_utterances(self, rows: Int[Tensor, " selected"]) -> "RepetitionBatchConstraint":
        return RepetitionBatchConstraint(self.periods, self.max_repeats, len(rows))

    def start(self) -> RepetitionState:
        empty = torch.full((self.batch, 1, len(self.periods)), NOTHING, device=self.periods.device)
        return RepetitionState(empty, torch.zeros_like(empty))

    def advance(self, state: RepetitionState, tokens: Int[Tensor, "batch beam"]) -> RepetitionState:
        symbol = tokens.unsqueeze(-1)
        runs = torch.where(state.symbols == symbol, state.runs + 1, 0)
        return RepetitionState(torch.cat([symbol, state.symbols[:, :, :-1]], dim=-1), runs)

    def forbidden(self, state: RepetitionState, step: SearchStep) -> Bool[Tensor, "batch beam vocab"]:
        completes = (state.runs + 1 >= self.periods * self.max_repeats) & (state.symbols != NOTHING)
        counts = torch.zeros_like(step.log_probs, dtype=torch.long)
        return counts.scatter_add(2, state.symbols.clamp(min=0), completes.long()) > 0
