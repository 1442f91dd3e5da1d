"""A reward for every symbol, the end included: against the preference of sums of log-probabilities for short texts.

It means something where hypotheses are not ranked by their mean per symbol: `search.length_normalisation=0`.
"""

import math
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from las.decoding.scorers.base import BatchScorer, Scorer, SearchStep, State
from las.runtime.errors import ArgumentError


class LengthReward(Scorer):
    """weight * length; below 0 it is a penalty."""

    def __init__(self, weight: float = 0.5) -> None:
        if not math.isfinite(weight):
            raise ArgumentError(f"weight={weight} must be a number, for example 0.5")
        super().__init__(weight)

    def on(self, decoder: Any, num_states: Int[Tensor, " batch"]) -> BatchScorer:
        return LengthBatchScorer(self.weight > 0)


class LengthBatchScorer(BatchScorer):
    """One for each symbol. What is not yet written counts as gain only if symbols are worth something."""

    def __init__(self, is_gain: bool) -> None:
        self.is_gain = is_gain

    def score(self, state: State, step: SearchStep) -> tuple[Tensor, State]:
        return torch.ones_like(step.log_probs[:, :, :1]), state

    def score_upper_bound(self, state: State, steps_left: Int[Tensor, "batch beam"]) -> Tensor | float:
        return steps_left if self.is_gain else 0.0
