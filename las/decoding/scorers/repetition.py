"""A limit on repetitions: a pattern of symbols may occur only so many times in a row.

Where each of the last `period * max_repeats` symbols equals the one `period` before it, a pattern of that length has
occurred once and then `max_repeats` times more. The symbol that would complete this is forbidden.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from las.decoding.scorers.base import BatchConstraint, Constraint, SearchStep
from las.runtime.errors import ArgumentError

NOTHING = -1
"""Stands for the positions before the first symbol."""


class RepetitionState(NamedTuple):
    """The last symbols of each hypothesis, and its runs of repeated ones, for each period p from 1.

    `symbols` are those p positions back; `runs` count the last symbols that equal the one p positions before them.
    """

    symbols: Int[Tensor, "batch beam periods"]
    runs: Int[Tensor, "batch beam periods"]


class RepetitionConstraint(Constraint):
    """A pattern of up to `max_period` symbols may be repeated at most `max_repeats` times in a row."""

    def __init__(self, max_period: int = 32, max_repeats: int = 5) -> None:
        if max_period < 1:
            raise ArgumentError(f"max_period={max_period} must be at least 1, for example 32")
        if max_repeats < 1:
            raise ArgumentError(f"max_repeats={max_repeats} must be at least 1, for example 5")
        self.max_period = max_period
        self.max_repeats = max_repeats

    def on(self, decoder: Any, num_states: Int[Tensor, " batch"]) -> BatchConstraint:
        periods = torch.arange(1, self.max_period + 1, device=num_states.device)
        return RepetitionBatchConstraint(periods, self.max_repeats, len(num_states))


class RepetitionBatchConstraint(BatchConstraint):
    """The constraint on a batch; `periods` are 1 ... max_period."""

    def __init__(self, periods: Int[Tensor, " periods"], max_repeats: int, batch: int) -> None:
        self.periods = periods
        self.max_repeats = max_repeats
        self.batch = batch

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
