"""The contract of an attention: `prepare` and `initial_state` once per batch, `attend` once per output token.

Queries carry a beam axis, [batch, beam, size], and all beams of an utterance share its keys: nothing as large as
the encoded states is ever copied per beam. Teacher forcing is the case of one beam.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from las.nn.normalisation import Lengths, mask_of, masked_softmax

Encoded = Float[Tensor, "batch states value"]
"""Encoded states of the listener."""
Keys = Float[Tensor, "batch states size"]
Query = Float[Tensor, "batch beam query"]
Weights = Float[Tensor, "batch beam states"]
"""A number for each state: weights, or energies."""
Context = Float[Tensor, "batch beam value"]


class AttentionMemory(NamedTuple):
    """Keys and values of the encoded states, one row per state; the mask is True at true states."""

    keys: Keys
    values: Encoded
    mask: Bool[Tensor, "batch states"]

    def padded(self, batch: int, states: int) -> "AttentionMemory":
        """Return a memory of more utterances and states, which are never attended to."""
        rows, columns = batch - len(self.mask), states - self.mask.shape[1]
        keys, values = (functional.pad(part, (0, 0, 0, columns, 0, rows)) for part in self[:2])
        return AttentionMemory(keys, values, functional.pad(self.mask, (0, columns, 0, rows)))


State = Any
"""Memory of an attention from one token to the next: a tensor [batch, beam, ...], or (named) tuples of them."""


class Attention(nn.Module):
    """Weights = softmax(energy(query, keys)); context = weights @ values (Bahdanau et al. 2015).

    The speller calls `prepare`, `initial_state` and `attend`, and passes each token the state that the one before it
    returned; a search reorders states along the beam axis, so that all of an attention's memory has to lie in them. A
    variant of the energy defines `prepare_keys` and `energy`; its state is the weights of the token before. One that
    remembers something else (positions, sums of weights) defines `initial_state` and `attend`, for whose last step
    there is `average`. One that reads tokens, or CTC, defines `told`, `forced_state` and `use_ctc`.

    Args:
        query_size: size of the speller's query.
        value_size: size of one encoded state.

    >>> import las, torch
    >>> attention = las.LocationAttention(query_size=256, value_size=64)
    >>> encoded, num_states = torch.randn(2, 13, 64), torch.tensor([13, 8])
    >>> memory = attention.prepare(encoded, num_states)
    >>> state = attention.initial_state(memory)
    >>> context, weights, state = attention.attend(torch.randn(2, 1, 256), memory, state)
    >>> context.shape, weights.shape
    (torch.Size([2, 1, 64]), torch.Size([2, 1, 13]))
    >>> weights[1, 0, 8:]
    tensor([0., 0., 0., 0., 0.], grad_fn=<SliceBackward0>)
    """

    def __init_subclass__(cls) -> None:
        if hasattr(cls, "accumulate"):
            raise TypeError(f"{cls.__name__}.accumulate is not called: `attend` returns the state for the next token")

    def __init__(self, query_size: int, value_size: int) -> None:
        super().__init__()
        self.query_size = query_size
        self.value_size = value_size

    def prepare_keys(self, encoded: Encoded) -> Keys:
        """Return the part of the energy that does not depend on the query; here the encoded states as they are."""
        return encoded

    def energy(self, query: Query, keys: Keys, weights: Weights) -> Weights:
        """Score of each state for each query before the softmax; `weights` are those of the token before."""
        raise TypeError(f"{type(self).__name__} must define energy, or attend in its place")

    def prepare(self, encoded: Encoded, num_states: Lengths) -> AttentionMemory:
        """Keys and values for all later queries, zero in padding: padded states are never attended to."""
        mask = mask_of(num_states, encoded.shape[1], encoded.device)
        encoded = encoded.masked_fill(~mask.unsqueeze(-1), 0.0)
        return AttentionMemory(self.prepare_keys(encoded), encoded, mask)

    def initial_state(self, memory: AttentionMemory) -> State:
        """Return the state before the first token, with one beam; here weights of zero."""
        batch, states = memory.mask.shape
        return memory.keys.new_zeros(batch, 1, states)

    def attend(self, query: Query, memory: AttentionMemory, state: State) -> tuple[Context, Weights, State]:
        """Context, weights (0 in padding) and next state for each query, from the state after the token before."""
        context, weights = self.average(self.energy(query, memory.keys, state), memory)
        return context, weights, weights

    def use_ctc(self, head: nn.Module | None) -> None:
        """Keep the CTC head of the model, None without one, for an attention that reads it; called once."""

    def forced_state(self, memory: AttentionMemory, targets: Int[Tensor, "batch tokens"]) -> State:
        """Return the state before the first token of teacher forcing, which knows all tokens."""
        return self.initial_state(memory)

    def told(self, tokens: Int[Tensor, "batch beam"], memory: AttentionMemory, state: State) -> State:
        """Return the state once the tokens of the step before are known, before `attend`; the boundary is the first."""
        return state

    @staticmethod
    def average(energy: Weights, memory: AttentionMemory) -> tuple[Context, Weights]:
        """Context and weights of energies: their softmax over the true states, and the mean of the values by it."""
        weights = masked_softmax(energy, memory.mask.unsqueeze(1))
        return torch.matmul(weights, memory.values), weights
