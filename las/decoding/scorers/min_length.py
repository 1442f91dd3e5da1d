"""A minimum length in proportion to the audio: the end of the sentence is forbidden before it."""

import math
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from las.decoding.scorers.base import BatchConstraint, Constraint, SearchStep
from las.runtime.errors import ArgumentError


class MinLength(Constraint):
    """A minimum of `ratio` tokens per encoded state, rounded up; `search.max_length_ratio` sets the maximum."""

    def __init__(self, ratio: float = 0.05) -> None:
        if not 0 <= ratio < math.inf:
            raise ArgumentError(f"ratio={ratio} must be 0 or more, for example 0.05")
        self.ratio = ratio

    def on(self, decoder: Any, num_states: Int[Tensor, " batch"]) -> BatchConstraint:
        # Rounded before ceil, as in LengthLimit: in binary, 0.07 * 100 is a little more than 7.
        return LengthBatchConstraint((self.ratio * num_states.double()).round(decimals=6).ceil(), decoder.eos)


class LengthBatchConstraint(BatchConstraint):
    """The constraint on a batch; `min_tokens` [batch] are the least lengths, the state is that of each hypothesis."""

    def __init__(self, min_tokens: Float[Tensor, " batch"], eos: int) -> None:
        self.min_tokens = min_tokens
        self.eos = eos

    def select_utterances(self, rows: Int[Tensor, " selected"]) -> "LengthBatchConstraint":
        return LengthBatchConstraint(self.min_tokens[rows], self.eos)

    def start(self) -> Tensor:
        return torch.zeros_like(self.min_tokens, dtype=torch.long).unsqueeze(1)

    def advance(self, state: Tensor, tokens: Int[Tensor, "batch beam"]) -> Tensor:
        return state + 1

    def forbidden(self, state: Tensor, step: SearchStep) -> Bool[Tensor, "batch beam vocab"]:
        is_end = torch.arange(step.log_probs.shape[-1], device=step.log_probs.device) == self.eos
        return is_end & (state < self.min_tokens.unsqueeze(1)).unsqueeze(-1)
