"""CTC against the sum over all paths, and what it leaves out."""

import itertools
import math

import pytest
import torch
from torch import Tensor

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
