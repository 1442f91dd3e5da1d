"""The contract of an attention: `prepare` once per batch of utterances, `attend` once per output token.

Queries carry a beam axis, [batch, beam, size], and all beams of an utterance share its keys: nothing as large as
the encoded states is ever copied per beam. Teacher forcing is the case of one beam.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from las.nn.masking import mask_of, masked_softmax


class AttentionMemory(NamedTuple):
    """Keys and values of the encoded states, one row per state; the mask is True at true states."""

    keys: Float[Tensor, "batch states size"]
    values: Float[Tensor, "batch states value"]
    mask: Bool[Tensor, "batch states"]


class Attention(nn.Module):
    """Weights = softmax(energy(query, keys)); context = weights @ values (Bahdanau et al. 2015).

    A variant subclasses it, declares parameters and writes `prepare_keys` and `energy`.

    Args:
        query_size: size of the speller's query.
        value_size: size of one encoded state.

    >>> import las, torch
    >>> attention = las.LocationAttention(query_size=256, value_size=64)
    >>> encoded, num_states = torch.randn(2, 13, 64), torch.tensor([13, 8])
    >>> memory = attention.prepare(encoded, num_states)
    >>> weights = attention.initial_weights(memory)
    >>> context, weights = attention.attend(torch.randn(2, 1, 256), memory, weights)
    >>> context.shape, weights.shape
    (torch.Size([2, 1, 64]), torch.Size([2, 1, 13]))
    >>> weights[1, 0, 8:]
    tensor([0., 0., 0., 0., 0.], grad_fn=<SliceBackward0>)
    """

    def __init__(self, query_size: int, value_size: int) -> None:
        super().__init__()
        self.query_size = query_size
        self.value_size = value_size

    def prepare_keys(self, encoded: Float[Tensor, "batch states value"]) -> Float[Tensor, "batch states size"]:
        """The part of the energy that does not depend on the query."""
        raise TypeError(f"{type(self).__name__} must define prepare_keys")

    def energy(
        self,
        query: Float[Tensor, "batch beam query"],
        keys: Float[Tensor, "batch states size"],
        weights: Float[Tensor, "batch beam states"],
    ) -> Float[Tensor, "batch beam states"]:
        """Score of each state for each query before the softmax; `weights` are the result of `accumulate`."""
        raise TypeError(f"{type(self).__name__} must define energy")

    def prepare(
        self, encoded: Float[Tensor, "batch states value"], num_states: Int[Tensor, "batch"]
    ) -> AttentionMemory:
        """Keys and values for all later queries, zero in padding: padded states are never attended to."""
        mask = mask_of(num_states, encoded.shape[1], encoded.device)
        encoded = encoded.masked_fill(~mask.unsqueeze(-1), 0.0)
        return AttentionMemory(self.prepare_keys(encoded), encoded, mask)

    def initial_weights(self, memory: AttentionMemory) -> Float[Tensor, "batch beam states"]:
        """The weights before the first token: zero everywhere, one beam."""
        return torch.zeros_like(memory.keys[:, None, :, 0])

    def attend(
        self,
        query: Float[Tensor, "batch beam query"],
        memory: AttentionMemory,
        weights: Float[Tensor, "batch beam states"],
    ) -> tuple[Float[Tensor, "batch beam value"], Float[Tensor, "batch beam states"]]:
        """Context and new weights for each query; `weights` are the result of `accumulate` for the token before."""
        energy = self.energy(query, memory.keys, weights)
        weights = masked_softmax(energy, memory.mask.unsqueeze(1))
        return torch.matmul(weights, memory.values), weights

    def accumulate(
        self,
        memory: AttentionMemory,
        weights: Float[Tensor, "batch beam states"],
        accumulated: Float[Tensor, "batch beam states"],
    ) -> Float[Tensor, "batch beam states"]:
        """The weights that the next energies read: the new ones, unless a variant adds up those of all tokens."""
        return weights
