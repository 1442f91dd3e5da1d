"""Location-aware attention (Chorowski et al. 2015, eq. 8-9):

features = F * previous weights          (convolution over the states)
energy_s = v . tanh(W query + V encoded_s + L features_s + b)
"""

import torch
from torch import nn

from las.config.build import require
from las.nn.attention.base import Attention, Encoded, Keys, Query, Weights
from las.runtime.errors import ArgumentError


class LocationAttention(Attention):
    """Additive attention whose energies also read the convolved weights of the previous token.

    Args:
        key_size: size of the space in which query, states and location features are compared.
        num_filters: location features per state.
        width: states that one filter spans, odd so that it is centred.
    """

    def __init__(
        self, query_size: int, value_size: int, *, key_size: int = 128, num_filters: int = 10, width: int = 51
    ) -> None:
        super().__init__(query_size, value_size)
        require("key_size", key_size, 1)
        require("num_filters", num_filters, 1)
        require("width", width, 1)
        if width % 2 == 0:
            raise ArgumentError(f"width={width} must be odd: choose {width - 1} or {width + 1}")
        self.key = nn.Linear(value_size, key_size)
        self.query = nn.Linear(query_size, key_size, bias=False)
        self.filters = nn.Conv1d(1, num_filters, width, padding=width // 2, bias=False)
        self.location = nn.Linear(num_filters, key_size, bias=False)
        self.score = nn.Linear(key_size, 1, bias=False)

    def prepare_keys(self, encoded: Encoded) -> Keys:
        return self.key(encoded)

    def energy(self, query: Query, keys: Keys, weights: Weights) -> Weights:
        batch, beam, states = weights.shape
        features = self.filters(weights.reshape(batch * beam, 1, states)).transpose(1, 2)
        location = self.location(features).unflatten(0, (batch, beam))
        hidden = torch.tanh(keys.unsqueeze(1) + self.query(query).unsqueeze(2) + location)
        return self.score(hidden).squeeze(-1)
