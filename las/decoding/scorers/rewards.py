"""Rewards for length and for coverage: they counter the bias of summed log-probabilities to short hypotheses."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from las.decoding.scorers.base import BatchScorer, Scorer, SearchStep, State, check_weight
from las.runtime.errors import ArgumentError, ConfigError


class LengthReward(Scorer):
    """The reward weight * length, the end included; a penalty if the weight is below 0.

    Meant for a search without length normalisation.

    >>> import las
    >>> las.BeamSearch(8, length_normalisation=0.0, length_reward=las.LengthReward(0.4))
    BeamSearch(size=8, length_normalisation=0, nbest=1, length_reward=0.4)
    """

    def __init__(self, weight: float = 0.5) -> None:
        super().__init__(weight)

    def on(self, decoder: Any, num_states: Int[Tensor, " batch"]) -> BatchScorer:
        return LengthBatchScorer(self.weight > 0)


@dataclass(eq=False)
class LengthBatchScorer(BatchScorer):
    """A score of 1 for each symbol. `is_gain`: the weight is positive, so that symbols to come add to a score."""

    is_gain: bool

    def score(self, state: State, step: SearchStep) -> tuple[Tensor, State]:
        return torch.ones_like(step.log_probs[:, :, :1]), state

    def score_upper_bound(self, state: State, steps_left: Int[Tensor, "batch beam"]) -> Tensor | float:
        return steps_left if self.is_gain else 0.0


class CoverageReward(Scorer):
    """The reward weight * number of encoded states that were attended to (Chorowski & Jaitly 2017):

        coverage = number of states s with sum over tokens of attention(token, s) > threshold

    A hypothesis that leaves out part of the speech covers fewer states; attending to the same states again covers
    nothing new, so that loops gain nothing.
    """

    def __init__(self, weight: float = 0.1, threshold: float = 0.5) -> None:
        check_weight(weight)
        if not 0 < threshold < 1:
            raise ArgumentError(f"threshold={threshold} must be between 0 and 1, for example 0.5")
        super().__init__(weight)
        self.threshold = threshold

    def on(self, decoder: Any, num_states: Int[Tensor, " batch"]) -> BatchScorer:
        return CoverageBatchScorer(self.threshold, num_states)


class CoverageState(NamedTuple):
    """The attention weights of each hypothesis summed over its symbols, and the number of states that they cover."""

    attention: Float[Tensor, "batch beam states"]
    states: Float[Tensor, "batch beam"]


@dataclass(eq=False)
class CoverageBatchScorer(BatchScorer):
    """The number of states that a step newly covers, which is the same for every next symbol."""

    threshold: float
    num_states: Int[Tensor, " batch"]

    def select_utterances(self, rows: Int[Tensor, " selected"]) -> "CoverageBatchScorer":
        return CoverageBatchScorer(self.threshold, self.num_states[rows])

    def start(self) -> CoverageState:
        zeros = torch.zeros(len(self.num_states), 1, device=self.num_states.device)
        return CoverageState(zeros.unsqueeze(-1), zeros)  # the first attention broadcasts it to its size

    def score(self, state: CoverageState, step: SearchStep) -> tuple[Tensor, CoverageState]:
        if step.weights is None:
            raise ConfigError(
                "search.coverage needs attention, which this model does not have: leave it out (search.coverage=null; "
                "for las tune weights.coverage=[0.0])"
            )
        attention = state.attention + step.weights
        count = (attention > self.threshold).sum(-1).to(state.states.dtype)
        return (count - state.states).unsqueeze(-1), CoverageState(attention, count)

    def score_upper_bound(self, state: CoverageState, steps_left: Int[Tensor, "batch beam"]) -> Tensor:
        return self.num_states.unsqueeze(1) - state.states
