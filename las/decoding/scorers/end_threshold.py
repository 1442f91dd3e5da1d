"""A sentence may end only where its end is probable beside the next symbol (Hannun et al. 2019):

    log p(end) > factor * max over other symbols of log p(symbol)

Against texts that stop early. Logarithms are below 0, so that a factor above 1 asks for less than being the best.
"""

import math
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from las.decoding.scorers.base import Guard, Guarding, State, Step
from las.runtime.errors import ArgumentError


class EndThreshold(Guard):
    """The rule above, on the decoder's own probabilities."""

    def __init__(self, factor: float = 1.5) -> None:
        if not 0 < factor < math.inf:
            raise ArgumentError(f"factor={factor} must be above 0, for example 1.5")
        self.factor = factor

    def on(self, decoder: Any, num_states: Int[Tensor, " batch"]) -> Guarding:
        return EndGuarding(self.factor, decoder.eos)


class EndGuarding(Guarding):
    """Whether the end may come, each step by itself."""

    def __init__(self, factor: float, eos: int) -> None:
        self.factor = factor
        self.eos = eos

    def forbidden(self, state: State, step: Step) -> Bool[Tensor, "batch beam vocab"]:
        is_end = torch.arange(step.log_probs.shape[-1], device=step.log_probs.device) == self.eos
        best = step.log_probs.masked_fill(is_end, -math.inf).amax(-1, keepdim=True)
        return is_end & (step.log_probs <= self.factor * best)
