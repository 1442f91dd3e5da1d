"""Attention with several heads (Vaswani et al. 2017; Chiu et al. 2018 for speech):

energy_{h,s} = (W_h query) . (V_h encoded_s) / sqrt(key_size / heads)
context      = [sum_s weight_{h,s} encoded_s's part h] over all heads h

Every head averages its own part of the encoded states, as in RETURNN; the layers after the context mix the parts.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from las.config.build import require
from las.nn.attention.base import Attention, AttentionMemory, Context, Encoded, Keys, Query, State, Weights
from las.nn.normalisation import masked_softmax
from las.runtime.errors import ArgumentError


class MultiHeadAttention(Attention):
    """Scaled dot products of several heads; the weights it returns are the mean over them.

    Args:
        key_size: size of the space in which query and states are compared, all heads together.
        num_heads: must divide `key_size` and the size of an encoded state.
    """

    def __init__(self, query_size: int, value_size: int, *, key_size: int = 128, num_heads: int = 4) -> None:
        super().__init__(query_size, value_size)
        require("key_size", key_size, 1)
        require("num_heads", num_heads, 1)
        if key_size % num_heads or value_size % num_heads:
            raise ArgumentError(
                f"num_heads={num_heads} must divide key_size={key_size} and the {value_size} values of an encoded state"
            )
        self.num_heads = num_heads
        self.key = nn.Linear(value_size, key_size, bias=False)
        self.query = nn.Linear(query_size, key_size, bias=False)
        self.scale = 1.0 / math.sqrt(key_size // num_heads)

    def prepare_keys(self, encoded: Encoded) -> Keys:
        return self.key(encoded) * self.scale

    def attend(self, query: Query, memory: AttentionMemory, state: State) -> tuple[Context, Weights, State]:
        queries, keys, values = (self._heads(part) for part in (self.query(query), memory.keys, memory.values))
        energy = torch.matmul(queries, keys.transpose(2, 3))
        of_heads = masked_softmax(energy, memory.mask[:, None, None])
        weights = of_heads.mean(1)
        return torch.matmul(of_heads, values).transpose(1, 2).flatten(2), weights, weights

    def _heads(self, rows: Float[Tensor, "batch rows size"]) -> Float[Tensor, "batch heads rows part"]:
        return rows.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
