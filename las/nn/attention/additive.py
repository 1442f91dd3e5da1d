"""Additive attention (Bahdanau et al. 2015):

energy_s = v . tanh(W query + V encoded_s + b)
"""

import torch
from torch import nn

from las.config.build import require
from las.nn.attention.base import Attention, Encoded, Keys, Query, Weights


class AdditiveAttention(Attention):
    """Energies of a one-layer perceptron.

    Args:
        key_size: size of the space in which query and states are compared.
    """

    def __init__(self, query_size: int, value_size: int, *, key_size: int = 128) -> None:
        super().__init__(query_size, value_size)
        require("key_size", key_size, 1)
        self.key = nn.Linear(value_size, key_size)
        self.query = nn.Linear(query_size, key_size, bias=False)
        self.score = nn.Linear(key_size, 1, bias=False)

    def prepare_keys(self, encoded: Encoded) -> Keys:
        return self.key(encoded)

    def energy(self, query: Query, keys: Keys, weights: Weights) -> Weights:
        hidden = torch.tanh(keys.unsqueeze(1) + self.query(query).unsqueeze(2))
        return self.score(hidden).squeeze(-1)
