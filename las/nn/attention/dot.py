"""Scaled dot-product attention (Luong et al. 2015; the scale is Vaswani et al. 2017's):

energy_s = (W query) . (V encoded_s) / sqrt(key_size)
"""

import math

import torch
from torch import nn

from las.config.build import require
from las.nn.attention.base import Attention, Encoded, Keys, Query, Weights


class DotAttention(Attention):
    """Energies by scaled dot products.

    Args:
        key_size: size of the space in which query and states are compared.
    """

    def __init__(self, query_size: int, value_size: int, *, key_size: int = 128) -> None:
        super().__init__(query_size, value_size)
        require("key_size", key_size, 1)
        self.key = nn.Linear(value_size, key_size, bias=False)
        self.query = nn.Linear(query_size, key_size, bias=False)
        self.scale = 1.0 / math.sqrt(key_size)

    def prepare_keys(self, encoded: Encoded) -> Keys:
        return self.key(encoded) * self.scale

    def energy(self, query: Query, keys: Keys, weights: Weights) -> Weights:
        return torch.matmul(self.query(query), keys.transpose(1, 2))
