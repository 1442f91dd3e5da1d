"""Spellers and encoded utterances for tests."""

from typing import Any

import torch
from options import attention as attention_of
from options import part
from parameters import moved
from torch import Tensor

from las.nn.kernels import choice
from las.nn.speller import Speller

VOCAB, VALUE, HIDDEN, STATES = 6, 6, 7, 8

ATTENTIONS = ("additive", "dot", "location", "weight_feedback")  # the plain loop computes the others
CELLS = ("lstm", "ba2016", "zeineldeen2020_global", "zeineldeen2020_joined_cell", "tf_addons", "tf_contrib", "haste")

NUM_STATES = torch.tensor([8, 5, 1])

TARGETS, NUM_TOKENS = torch.tensor([[3, 1, 5, 2], [4, 4, 0, 0], [1, 2, 3, 0]]), torch.tensor([4, 2, 3])


def make(attention: str = "location", cell: str = "lstm", **options: Any) -> Speller:
    """In float64, every parameter moved away from where it starts, in evaluation mode."""
    torch.manual_seed(1)
    sizes = {"num_layers": 2, "hidden_size": HIDDEN, "embedding_size": 3} | options
    speller = Speller(VOCAB, VALUE, cell=part("cell", cell), attention=attention_of(attention), **sizes)
    return moved(speller, 0.3).double().eval()


def material() -> Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(3, STATES, VALUE, generator=generator, dtype=torch.float64)


def results(speller: Speller, encoded: Tensor, seed: int = 7) -> list[Tensor]:
    """Logits, weights, and the gradients of a function of both towards the states and every parameter."""
    encoded = encoded.clone().requires_grad_()
    torch.manual_seed(seed)
    found = speller(speller.attention.prepare(encoded, NUM_STATES), TARGETS.to(encoded.device))
    wanted = found.logits.sin().sum() + (found.weights.square() * torch.arange(STATES, device=encoded.device)).sum()
    gradients = torch.autograd.grad(wanted, [encoded, *speller.parameters()])
    return [found.logits.detach(), found.weights.detach(), *gradients]


def plain(speller: Speller, encoded: Tensor) -> list[Tensor]:
    with choice.use_kernel("plain"):
        return results(speller, encoded)
