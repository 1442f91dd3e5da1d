"""Monotonic chunkwise attention (Chiu & Raffel 2018; Raffel et al. 2017): a stop that only moves forwards, and a chunk.

For token i and state s, with the query q and two perceptrons like `additive`'s:

    stop_s  = sigmoid(g v . tanh(W q + V encoded_s + b) / |v| + r + noise)
    u_s     = v' . tanh(W' q + V' encoded_s + b')

Decoding, from the state t of the stop before: the first state s >= t with stop_s > 1/2 is the next stop, and

    weight_l = softmax of u over the states l from s - chunk_size + 1 to s

Where no state is left to stop at, no state has a weight, for this token and all that follow. Training takes the
expectation of these weights, with the probability a_i(s) that the stop of token i is s (equations 9 and 13 there):

    a_i(s)   = stop_s sum over t <= s of a_{i-1}(t) prod over t <= l < s of (1 - stop_l)
    weight_l = sum over s = l ... l + chunk_size - 1 of a_i(s) softmax(u over the chunk of s)_l

The sum is one of logarithms, in fp64: products of hundreds of probabilities lie below what any type holds. The noise,
while training, drives stops towards 0 and 1, where decoding equals what was trained.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from las.config.build import require
from las.nn.attention.additive import AdditiveAttention
from las.nn.attention.base import Attention, AttentionMemory, Context, Encoded, Keys, Query, State, Weights


class StopEnergy(AdditiveAttention):
    """Energies of stops: a perceptron whose vector has the learned length `gain`, plus the learned `offset`."""

    def __init__(self, query_size: int, value_size: int, *, key_size: int, offset: float) -> None:
        super().__init__(query_size, value_size, key_size=key_size)
        self.gain = nn.Parameter(torch.tensor(key_size**-0.5))
        self.offset = nn.Parameter(torch.tensor(float(offset)))

    def energy(self, query: Query, keys: Keys, weights: Weights) -> Weights:
        return self.gain * super().energy(query, keys, weights) / self.score.weight.norm() + self.offset


class MonotonicChunkwiseAttention(Attention):
    """Soft attention over a chunk of states before a stop, by expectation while training and by decisions otherwise.

    The state is the probability of each state to be the last stop, 1 at the first state before the first token.

    Args:
        key_size: size of the space in which query and states are compared, once for stops and once within chunks.
        chunk_size: states of a chunk; 1 is monotonic attention without chunks (Raffel et al. 2017).
        noise: standard deviation of normal noise that is added to the energies of stops while training.
        offset: value at which r starts: below 0, so that stops are rare at first; the lower, the longer utterances are.
    """

    def __init__(
        self,
        query_size: int,
        value_size: int,
        *,
        key_size: int = 128,
        chunk_size: int = 2,
        noise: float = 1.0,
        offset: float = -1.0,
    ) -> None:
        super().__init__(query_size, value_size)
        require("chunk_size", chunk_size, 1)
        require("noise", noise, 0.0)
        self.stop = StopEnergy(query_size, value_size, key_size=key_size, offset=offset)
        self.chunk = AdditiveAttention(query_size, value_size, key_size=key_size)
        self.chunk_size, self.noise = chunk_size, noise

    def prepare_keys(self, encoded: Encoded) -> Keys:
        return torch.cat([self.stop.prepare_keys(encoded), self.chunk.prepare_keys(encoded)], dim=-1)

    def initial_state(self, memory: AttentionMemory) -> State:
        first = memory.mask & (torch.arange(memory.mask.shape[1], device=memory.mask.device) == 0)
        return first.unsqueeze(1).to(torch.promote_types(memory.keys.dtype, torch.float32))

    def stopped_at_last(self, memory: AttentionMemory) -> State:
        """Return the state of a stream that asks its newest encoded state, the last one, whether it is a stop."""
        return self.initial_state(memory).roll(-1, dims=-1)

    def attend(self, query: Query, memory: AttentionMemory, state: State) -> tuple[Context, Weights, State]:
        of_stops, of_chunks = memory.keys.chunk(2, dim=-1)
        energy, mask = self.stop.energy(query, of_stops, state), memory.mask.unsqueeze(1)
        if self.training:
            energy = energy + self.noise * torch.randn_like(energy) if self.noise else energy
            stops = expected_stops(energy, mask, state)
        else:
            stops = first_stops((energy > 0) & mask, state)
        weights = over_chunks(stops, self.chunk.energy(query, of_chunks, state), self.chunk_size)
        return torch.matmul(weights.to(memory.values.dtype), memory.values), weights, stops


def expected_stops(energy: Weights, mask: Tensor, before: Weights) -> Weights:
    """Return the probability that each state is the next stop, from those that it was the stop before."""
    wide = energy.double()
    passing = functional.logsigmoid(-wide).masked_fill(~mask, 0.0).cumsum(-1)
    passed = functional.pad(passing[..., :-1], (1, 0))
    begun = before.double().clamp(min=torch.finfo(torch.double).tiny).log()
    reached = passed + (begun - passed).logcumsumexp(-1)
    return (reached + functional.logsigmoid(wide)).exp().masked_fill(~mask, 0.0).to(before.dtype)


def first_stops(may_stop: Tensor, before: Weights) -> Weights:
    """Return 1 at the first state that is not before the last stop and may be one, 0 elsewhere."""
    candidates = may_stop & (before.cumsum(-1) > 0)
    return (candidates & (candidates.cumsum(-1) == 1)).to(before.dtype)


def over_chunks(stops: Weights, energy: Weights, size: int) -> Weights:
    """Spread the weight of each stop over the `size` states that end there, by the softmax of their energies."""
    earlier = functional.pad(energy, (size - 1, 0), value=torch.finfo(energy.dtype).min)
    shares = stops.unsqueeze(-1) * earlier.unfold(-1, size, 1).softmax(-1)
    # A state is the last of its own chunk, the one before the last of the next chunk, ...
    later = functional.pad(shares, (0, 0, 0, size - 1)).unfold(-2, size, 1)
    return later.flip(-1).diagonal(dim1=-2, dim2=-1).sum(-1)
