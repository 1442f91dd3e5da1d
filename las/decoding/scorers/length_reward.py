"""A reward for every symbol, the end included: it counters the bias of summed log-probabilities to short hypotheses.

Meant for a search without length normalisation: `search.length_normalisation=0`.
"""

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from las.decoding.scorers.base import BatchScorer, Scorer, SearchStep, State


class LengthReward(Scorer):
    """The reward weight * length; a penalty if the weight is below 0.

    >>> import las
    >>> las.BeamSearch(8, length_normalisation=0.0, length_reward=las.LengthReward(0.4))
    BeamSearch(size=8, length_normalisation=0, nbest=1, length_reward=0.4)
    """

    def __init__(self, weight: float = 0.5) -> None:
        super().__init__(weight)

    def on(self, decoder: Any, num_states: Int[Tensor, " batch"]) -> BatchScorer:
        return LengthBatchScorer(self.weight > 0)


class LengthBatchScorer(BatchScorer):
    """A score of 1 for each symbol. `is_gain`: the weight is positive, so that symbols to come add to a score."""

    def __init__(self, is_gain: bool) -> None:
        self.is_gain = is_gain

    def score(self, state: State, step: SearchStep) -> tuple[Tensor, State]:
        return torch.ones_like(step.log_probs[:, :, :1]), state

    def score_upper_bound(self, state: State, steps_left: Int[Tensor, "batch beam"]) -> Tensor | float:
        return steps_left if self.is_gain else 0.0
