"""CTC against the sum over all paths, and what it leaves out."""

import itertools
import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import Tensor, nn

from las.nn import ctc
from las.nn.ctc import CTCOutput

VOCAB = 4


def by_all_paths(log_probs: Tensor, target: list[int]) -> float:
    """-log of the sum over every path of states that spells the target."""
    total = 0.0
    for path in itertools.product(range(VOCAB), repeat=len(log_probs)):
        spelled = [token for token, _ in itertools.groupby(path) if token != ctc.BLANK]
        if spelled == target:
            total += math.exp(sum(float(log_probs[state, token]) for state, token in enumerate(path)))
    return -math.log(total) if total else math.inf


def material(states: int = 5) -> Tensor:
    generator = torch.Generator().manual_seed(4)
    return torch.log_softmax(torch.randn(3, states, VOCAB, generator=generator, dtype=torch.float64), -1)


def test_equals_the_sum_over_all_paths() -> None:
    log_probs = material()
    targets, num_tokens = torch.tensor([[1, 2, 3], [2, 2, 0], [3, 0, 0]]), torch.tensor([3, 2, 1])
    num_states = torch.tensor([5, 4, 2])
    expected = sum(
        by_all_paths(log_probs[row, : num_states[row]], targets[row, : num_tokens[row]].tolist()) for row in range(3)
    )
    assert float(ctc.loss(CTCOutput(log_probs, num_states), targets, num_tokens)) == pytest.approx(expected, rel=1e-5)


@given(
    sizes=st.tuples(st.integers(1, 4), st.integers(1, 9), st.integers(2, 5), st.integers(1, 5)), seed=st.integers(0, 99)
)
def test_likelihoods_with_lengths_anywhere_are_those_of_torch(sizes: tuple[int, int, int, int], seed: int) -> None:
    """And gradients, with utterances of no states, no tokens, and more tokens than states have room for."""
    (batch, states, vocab, tokens), generator = sizes, torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(batch, states, vocab, generator=generator, dtype=torch.float64)
    targets = torch.randint(1, vocab, (batch, tokens), generator=generator)
    num_tokens, num_states = (torch.randint(0, most + 1, (batch,), generator=generator) for most in (tokens, states))
    shares = torch.rand(batch, generator=generator, dtype=torch.float64)

    def by_torch(log_probs: Tensor) -> Tensor:
        given = log_probs.transpose(0, 1), targets, num_states, num_tokens
        return nn.functional.ctc_loss(*given, blank=ctc.BLANK, reduction="none", zero_infinity=True)

    def ours(log_probs: Tensor) -> Tensor:
        return -ctc.log_likelihoods(log_probs, targets, num_states, num_tokens)

    results = []
    for losses in (by_torch, ours):
        given = logits.clone().requires_grad_()
        found = losses(given.log_softmax(-1))
        results.append([found, *torch.autograd.grad((shares * found).sum(), given)])
    torch.testing.assert_close(*results, rtol=1e-9, atol=1e-9)


def test_padded_states_do_not_count() -> None:
    log_probs = material().requires_grad_()
    targets, num_tokens, num_states = torch.tensor([[1], [2], [3]]), torch.tensor([1, 1, 1]), torch.tensor([3, 5, 1])
    (gradient,) = torch.autograd.grad(ctc.loss(CTCOutput(log_probs, num_states), targets, num_tokens), log_probs)
    assert not gradient[0, 3:].any() and not gradient[2, 1:].any() and gradient[1].any(-1).all()


def test_an_utterance_that_no_path_can_spell_adds_nothing() -> None:
    log_probs = material()[:2].requires_grad_()
    targets, num_tokens = torch.tensor([[1, 1], [1, 2]]), torch.tensor([2, 2])
    num_states = torch.tensor([2, 2])
    found = ctc.loss(CTCOutput(log_probs, num_states), targets, num_tokens)
    alone = ctc.loss(CTCOutput(log_probs[1:], num_states[1:]), targets[1:], num_tokens[1:])
    torch.testing.assert_close(found, alone)
    (gradient,) = torch.autograd.grad(found, log_probs)
    assert gradient.isfinite().all() and not gradient[0].any()
