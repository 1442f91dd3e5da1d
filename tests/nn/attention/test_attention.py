"""Every option of configs/attention/, against the contract and, where it is known, against its equation."""

import numpy as np
import pytest
import torch
from options import attention as attention_of
from options import names
from parameters import moved
from torch import Tensor

from las.nn.attention.base import Attention, AttentionMemory, State
from las.nn.ctc import CTC
from las.nn.nested import mapped, tensors

QUERY, VALUE, KEY, BATCH, BEAM, STATES = 3, 6, 4, 3, 2, 6
NUM_STATES = torch.tensor([6, 4, 1])
MASK = torch.arange(STATES) < NUM_STATES.unsqueeze(1)
MONOTONIC = ("ctc_triggered", "mocha")
"""Attentions that do not look at all states; their equations are in files of their own."""
every_attention = pytest.mark.parametrize("name", names("attention"))


def make(name: str, **options: object) -> Attention:
    """The attention of an option in float64, known sizes made small, every parameter moved from where it starts."""
    torch.manual_seed(1)
    attention = moved(attention_of(name, **options)(QUERY, VALUE).double(), 1.0)
    attention.use_ctc(CTC(VALUE, 5).double())
    return attention


def material() -> tuple[Tensor, Tensor]:
    """Queries and encoded states."""
    generator = torch.Generator().manual_seed(2)
    query = torch.randn(BATCH, BEAM, QUERY, generator=generator, dtype=torch.float64)
    encoded = torch.randn(BATCH, STATES, VALUE, generator=generator, dtype=torch.float64)
    return query, encoded


def spread(state: State) -> State:
    """A state of one beam in each of `BEAM`."""
    return mapped(state, lambda part: part.expand(-1, BEAM, *part.shape[2:]))


def remembered(attention: Attention, memory: AttentionMemory, rows: slice = slice(None)) -> State:
    """What an attention remembers after a token, whose queries are those of some rows."""
    query = torch.randn(BATCH, BEAM, QUERY, generator=torch.Generator().manual_seed(3), dtype=torch.float64)[rows]
    return attention.attend(query, memory, spread(attention.initial_state(memory)))[2]


@every_attention
def test_a_query_attends_as_if_it_were_alone(name: str) -> None:
    """Without other beams and the padding of its batch, by weights that are a distribution over the true states.

    One that stops may find no state, so that its weights sum to less.
    """
    attention = make(name)
    query, encoded = material()
    memory = attention.prepare(encoded, NUM_STATES)
    assert memory.keys.shape[:2] == (BATCH, STATES) and memory.keys.dim() == 3
    assert all(part.shape[:2] == (BATCH, 1) for part in tensors(attention.initial_state(memory)))
    state = remembered(attention, memory)
    together = attention.attend(query, memory, state)
    context, weights, _ = together
    total = torch.ones(BATCH, BEAM, dtype=torch.float64)
    torch.testing.assert_close(weights.sum(-1).clamp(min=float(name == "mocha")), total)
    seen = MASK.unsqueeze(1).expand_as(weights)
    assert not weights[~seen].any() and (name in MONOTONIC or (weights[seen] > 0).all())
    for beam in range(BEAM):
        one = slice(beam, beam + 1)
        alone = attention.attend(query[:, one], memory, mapped(state, lambda part, one=one: part[:, one]))
        expected = [part[:, one] for part in tensors(together)]
        torch.testing.assert_close(expected, [*tensors(alone)], rtol=1e-9, atol=1e-12)
    for row, length in enumerate(NUM_STATES.tolist()):
        one = slice(row, row + 1)
        memory = attention.prepare(encoded[one, :length], NUM_STATES[one])
        of_row, _, _ = attention.attend(query[one], memory, remembered(attention, memory, one))
        torch.testing.assert_close(context[one], of_row, rtol=1e-9, atol=1e-12)


@every_attention
def test_padded_states_reach_neither_result_nor_gradient(name: str) -> None:
    attention = make(name)
    query, encoded = material()
    results = []
    for poison in (0.0, float("nan")):
        padded = encoded.masked_fill(~MASK.unsqueeze(-1), poison).requires_grad_()
        memory = attention.prepare(padded, NUM_STATES)
        context, weights, state = attention.attend(query, memory, remembered(attention, memory))
        gradients = torch.autograd.grad(context.square().sum(), [padded, *attention.parameters()])
        results.append([context, weights, *tensors(state), *gradients])
    torch.testing.assert_close(results[1], results[0], rtol=0, atol=0)


@every_attention
def test_an_utterance_without_states_gives_zeros_and_no_nan(name: str) -> None:
    attention = make(name)
    query, encoded = material()
    memory = attention.prepare(encoded, torch.tensor([6, 0, 1]))
    context, weights, _ = attention.attend(query, memory, spread(attention.initial_state(memory)))
    assert not context[1].any() and not weights[1].any() and context[0].any()
    gradients = torch.autograd.grad(context.sum(), list(attention.parameters()))
    assert all(gradient.isfinite().all() for gradient in gradients)


ATTENDED = ("additive", "location", "weight_feedback", "dot", "multi_head")
"""The attentions whose equations are written out below."""


def attended(
    name: str, p: dict[str, np.ndarray], query: np.ndarray, encoded: np.ndarray, history: list[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Weights and context of one query on one utterance, element by element from the equations.

    `history` are the weights of all tokens before. Of two heads each has one half of keys, query and encoded states;
    their weights are averaged.
    """
    heads = 2 if name == "multi_head" else 1
    queries = np.split(p["query.weight"] @ query, heads)
    keys, parts = (np.split(rows, heads, 1) for rows in (encoded @ p["key.weight"].T, encoded))
    found = []
    for of_query, of_keys in zip(queries, keys, strict=True):
        energies = []
        for s in range(len(encoded)):
            if name in ("dot", "multi_head"):
                energies.append(of_query @ of_keys[s] / np.sqrt(KEY / heads))
                continue
            meeting = of_query + of_keys[s] + p["key.bias"]
            if name == "location" and history:
                around = [history[-1][s + d] if 0 <= s + d < len(encoded) else 0.0 for d in (-1, 0, 1)]
                meeting = meeting + p["location.weight"] @ (p["filters.weight"][:, 0] @ np.array(around))
            if name == "weight_feedback":
                half_inverse_fertility = 0.5 / (1 + np.exp(-encoded[s] @ p["inverse_fertility.weight"][0]))
                accumulated = sum(weights[s] for weights in history) * half_inverse_fertility
                meeting = meeting + p["feedback.weight"][:, 0] * accumulated
            energies.append(p["score.weight"][0] @ np.tanh(meeting))
        found.append(np.exp(energies) / np.exp(energies).sum())
    return np.mean(found, 0), np.concatenate([part @ values for part, values in zip(found, parts, strict=True)])


@pytest.mark.parametrize("name", ATTENDED)
def test_attention_equals_its_equation_over_several_tokens(name: str) -> None:
    attention = make(name)
    query, encoded = material()
    memory = attention.prepare(encoded, NUM_STATES)
    p = {key: parameter.detach().numpy() for key, parameter in attention.named_parameters()}
    state, history = spread(attention.initial_state(memory)), []
    for token in range(4):
        queries = query * (token + 1)
        context, weights, state = attention.attend(queries, memory, state)
        assert not any(part.masked_select(~MASK.unsqueeze(1)).any() for part in tensors(state))
        for row, length in enumerate(NUM_STATES.tolist()):
            for beam in range(BEAM):
                before = [old[row, beam, :length] for old in history]
                given = queries[row, beam].numpy(), encoded[row, :length].numpy()
                expected_weights, expected_context = attended(name, p, *given, before)
                np.testing.assert_allclose(weights[row, beam, :length].detach().numpy(), expected_weights, rtol=1e-9)
                np.testing.assert_allclose(context[row, beam].detach().numpy(), expected_context, rtol=1e-9)
        history.append(weights.detach().numpy())


def test_what_is_not_called_any_more_is_refused() -> None:
    """An attention of an earlier release would otherwise compute something else without a word."""
    with pytest.raises(TypeError, match=r"Old\.accumulate"):
        type("Old", (Attention,), {"accumulate": lambda self, memory, weights, accumulated: weights})
