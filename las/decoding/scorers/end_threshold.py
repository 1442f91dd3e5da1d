"""A threshold on the end of a sentence, relative to the best other symbol (Hannun et al. 2019):

    log p(end) > factor * max over other symbols of log p(symbol)

It prevents hypotheses that stop early. Logarithms are below 0, so that with a factor above 1 the end may also be less
probable than the best other symbol.
"""

import math
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from las.decoding.scorers.base import BatchConstraint, Constraint, SearchStep, State
from las.runtime.errors import ArgumentError


class EndThreshold(Constraint):
    """The rule above, on the decoder's own probabilities."""

    def __init__(self, factor: float = 1.5) -> None:
        if not 0 < factor < math.inf:
            raise ArgumentError(f"factor={factor} must be above 0, for example 1.5")
        self.factor = factor

    def on(self, decoder: Any, num_states: Int[Tensor, " batch"]) -> BatchConstraint:
        return EndBatchConstraint(self.factor, decoder.eos)


class EndBatchConstraint(BatchConstraint):
    """The constraint on a batch, which has no state."""

    def __init__(self, factor: float, eos: int) -> None:
        self.factor = factor
        self.eos = eos

    def forbidden(self, state: State, step: SearchStep) -> Bool[Tensor, "batch beam vocab"]:
        is_end = torch.arange(step.log_probs.shape[-1], device=step.log_probs.device) == self.eos
        best = step.log_probs.masked_fill(is_end, -math.inf).amax(-1, keepdim=True)
        return is_end & (step.log_probs <= self.factor * best)
