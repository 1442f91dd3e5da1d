"""Monotonic chunkwise attention against all of its paths, one by one."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from las.nn.attention.mocha import MonotonicChunkwiseAttention, expected_stops, first_stops, over_chunks
from las.nn.normalisation import mask_of


def energies(*shape: int, seed: int, scale: float = 2.0) -> Tensor:
    return scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def first(batch: int, states: int) -> Tensor:
    """The state before the first token."""
    return torch.eye(1, states, dtype=torch.float64).expand(batch, 1, states)


def stops_of(energy: Tensor) -> Tensor:
    """The probability of each stop of each token [tokens, states], of energies [tokens, states]."""
    state, found = first(1, energy.shape[1]), []
    for row in energy:
        state = expected_stops(row.view(1, 1, -1), torch.ones(1, 1, len(row), dtype=torch.bool), state)
        found.append(state[0, 0])
    return torch.stack(found)


def of_all_paths(stop: Tensor) -> Tensor:
    """The same by summing over paths t_1 <= t_2 <= ..., in which a token stops at a state or behind the last."""
    tokens, states = stop.shape
    rows = [[stop.new_zeros(()) for _ in range(states)] for _ in range(tokens)]
    for path in itertools.combinations_with_replacement(range(states + 1), tokens):
        probability, begin = stop.new_ones(()), 0
        for token, place in enumerate(path):
            for state in range(begin, place):
                probability = probability * (1 - stop[token, state])
            if place < states:
                probability = probability * stop[token, place]
            begin = place
        for token, place in enumerate(path):
            if place < states:
                rows[token][place] = rows[token][place] + probability
    return torch.stack([torch.stack(row) for row in rows])


def chunks_by_hand(stops: Tensor, energy: Tensor, size: int) -> Tensor:
    """Weights [states] of one token."""
    weights = torch.zeros_like(stops)
    for state, probability in enumerate(stops):
        begin = max(state - size + 1, 0)
        weights[begin : state + 1] += probability * energy[begin : state + 1].softmax(0)
    return weights


@given(tokens=st.integers(1, 4), states=st.integers(1, 5), seed=st.integers(0, 999), scale=st.sampled_from([0.5, 4.0]))
@settings(max_examples=40)
def test_expected_stops_and_their_gradients_are_those_of_all_paths(
    tokens: int, states: int, seed: int, scale: float
) -> None:
    energy = energies(tokens, states, seed=seed, scale=scale).requires_grad_()
    found, expected = stops_of(energy), of_all_paths(torch.sigmoid(energy))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
    of_stops = energies(tokens, states, seed=seed + 1)
    gradients = [torch.autograd.grad((of_stops * stops).sum(), energy)[0] for stops in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-8, atol=1e-11)


@given(states=st.integers(1, 9), size=st.integers(1, 11), seed=st.integers(0, 999))
def test_chunks_end_at_their_stops(states: int, size: int, seed: int) -> None:
    stops, energy = energies(2, 1, states, seed=seed).softmax(-1), energies(2, 1, states, seed=seed + 1, scale=40.0)
    by_hand = [chunks_by_hand(stops[row, 0], energy[row, 0], size) for row in range(2)]
    torch.testing.assert_close(over_chunks(stops, energy, size)[:, 0], torch.stack(by_hand))


@pytest.mark.parametrize("scale", [0.1, 10.0, 1e4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_long_utterances_and_sure_decisions_are_as_the_recursion_has_them(scale: float, dtype: torch.dtype) -> None:
    """Chiu & Raffel, equation 9, state by state, with products of 2000 probabilities; gradients are finite."""
    states = 2000
    energy = (energies(3, states, seed=1, scale=scale) - scale).to(dtype).requires_grad_()
    before = [first(1, states)[0, 0], *stops_of(energy)]
    for row, earlier, later in zip(energy.detach().double().sigmoid(), before, before[1:], strict=False):
        reached, expected = 0.0, []
        for stop, begun in zip(row.tolist(), earlier.tolist(), strict=True):
            reached += begun
            expected.append(stop * reached)
            reached *= 1 - stop
        torch.testing.assert_close(later.double(), torch.tensor(expected).double(), rtol=1e-4, atol=1e-7)
    assert torch.autograd.grad(before[-1][::2].sum(), energy)[0].isfinite().all()


def test_decisions_are_the_limit_of_expectations_and_end_with_the_true_states() -> None:
    """Also of a stop that stays where it is, and of tokens behind the last stop."""
    energy, mask = 1e3 * energies(4, 5, 7, seed=3), mask_of(torch.tensor([7, 4, 1, 0]), 7).unsqueeze(1)
    soft = hard = first(4, 7) * mask
    places = []
    for token in range(5):
        row = energy[:, token : token + 1]
        soft, hard = expected_stops(row, mask, soft), first_stops((row > 0) & mask, hard)
        torch.testing.assert_close(soft, hard)
        assert ((hard == 0) | (hard == 1)).all() and (hard.sum(-1) <= 1).all() and not hard[~mask].any()
        places.append(torch.where(hard.any(-1), hard.argmax(-1), 7)[:, 0])
    assert all((one <= other).all() for one, other in itertools.pairwise(places))
    assert (places[-1] == 7).any() and any((one == other).any() for one, other in itertools.pairwise(places))


def test_the_noise_is_of_training_and_decisions_of_everything_else() -> None:
    torch.manual_seed(1)
    attention = MonotonicChunkwiseAttention(3, 5, key_size=4, offset=0.0, noise=1.0)
    memory, query = attention.prepare(torch.randn(2, 9, 5), torch.tensor([9, 6])), torch.randn(2, 1, 3)
    state = attention.initial_state(memory)
    one, other = (attention.attend(query, memory, state)[1] for _ in range(2))
    assert not torch.equal(one, other) and (one.sum(-1) < 1).all()
    attention.eval()
    context, weights, stops = attention.attend(query, memory, state)
    assert torch.equal(weights, attention.attend(query, memory, state)[1])
    assert set(stops.sum(-1).flatten().tolist()) <= {0.0, 1.0} and ((weights > 0).sum(-1) <= 2).all()
    torch.testing.assert_close(context, weights @ memory.values)
    energy = attention.stop.energy(query, memory.keys[..., :4], state)
    length = attention.stop.score.weight.norm() / attention.stop.gain
    torch.testing.assert_close(
        energy * length,
        attention.stop.score(
            torch.tanh(memory.keys[:, None, :, :4] + attention.stop.query(query).unsqueeze(2))
        ).squeeze(-1),
    )
