"""Additive attention with feedback of accumulated weights, a model of fertility (Tu et al. 2016; Zeyer et al. 2018):

energy_s      = v . tanh(W query + V encoded_s + b + F accumulated_s)
accumulated_s = sum over the tokens before of  weight_s * sigmoid(f . encoded_s) / 2

The sigmoid is an inverse fertility: small for a state that stands for many tokens.
"""

import torch
from torch import nn

from las.config.build import require
from las.nn.attention.base import Attention, AttentionMemory, Context, Encoded, Keys, Query, State, Weights


class WeightFeedbackAttention(Attention):
    """Energies of a perceptron that also reads the accumulated weights.

    The state is the accumulated weights; the last column of the keys is half the inverse fertility.

    Args:
        key_size: size of the space in which query and states are compared.
    """

    def __init__(self, query_size: int, value_size: int, *, key_size: int = 128) -> None:
        super().__init__(query_size, value_size)
        require("key_size", key_size, 1)
        self.key = nn.Linear(value_size, key_size)
        self.query = nn.Linear(query_size, key_size, bias=False)
        self.feedback = nn.Linear(1, key_size, bias=False)
        self.score = nn.Linear(key_size, 1, bias=False)
        self.inverse_fertility = nn.Linear(value_size, 1, bias=False)

    def prepare_keys(self, encoded: Encoded) -> Keys:
        return torch.cat([self.key(encoded), 0.5 * torch.sigmoid(self.inverse_fertility(encoded))], dim=-1)

    def energy(self, query: Query, keys: Keys, weights: Weights) -> Weights:
        """Energies [batch, beam, states]; `weights` are the accumulated weights."""
        return self._energy(query, keys[..., :-1], weights)

    def _energy(self, query: Query, keys: Keys, weights: Weights) -> Weights:
        of_states = keys.unsqueeze(1) + self.feedback(weights.unsqueeze(-1))
        return self.score(torch.tanh(of_states + self.query(query).unsqueeze(2))).squeeze(-1)

    def attend(self, query: Query, memory: AttentionMemory, state: State) -> tuple[Context, Weights, State]:
        # Split once: the gradients of two slices would each be as large as all keys.
        keys, fertility = memory.keys.split([memory.keys.shape[-1] - 1, 1], -1)
        context, weights = self.average(self._energy(query, keys, state), memory)
        return context, weights, state + weights * fertility.transpose(1, 2)
