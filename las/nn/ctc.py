"""Connectionist temporal classification (Graves et al. 2006), alone or next to a speller (Kim et al. 2017).

A linear layer on every encoded state gives log-probabilities of the tokens and of the blank, which is id 0: the
sentence boundary never occurs inside a sentence, so its id is free. The loss is

    -log p(tokens | states) = -log sum over alignments of the tokens of prod_s p_s(path_s)

Next to a speller it drives the listener towards a monotonic alignment, which attention alone has to learn.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from las.config.build import require
from las.nn.dropout import Dropout
from las.nn.normalisation import Lengths, mask_of, reverse
from las.runtime.errors import ConfigError

BLANK = 0


class CTCOutput(NamedTuple):
    """CTC log-probabilities of every encoded state, and the number of states of each utterance."""

    log_probs: Float[Tensor, "batch states vocab"]
    num_states: Lengths


class CTC(nn.Module):
    """A linear layer from encoded states to log-probabilities of tokens and blank.

    Args:
        value_size: size of one encoded state.
        vocab_size: number of output symbols, the boundary (here the blank, id 0) included.
        dropout: dropout probability of the states while training.
    """

    def __init__(self, value_size: int, vocab_size: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        require("dropout", dropout, 0.0, 1.0)
        self.dropout = Dropout(dropout)
        self.output = nn.Linear(value_size, vocab_size)

    def forward(self, encoded: Float[Tensor, "batch states value"]) -> Float[Tensor, "batch states vocab"]:
        """Log-probabilities of tokens and blank at every state."""
        return torch.log_softmax(self.output(self.dropout(encoded)), dim=-1)


class IntermediateCTC(nn.Module):
    """CTC on the rows above a lower layer of the listener, while training (Lee and Watanabe 2021).

    It has a linear layer of its own: rows of a pyramid differ in size from layer to layer.

    Args:
        sizes: of a row above each layer of the listener.
        vocab_size: number of output symbols, the blank included.
        layer: counted from 0.
        dropout: dropout probability of the rows.
    """

    def __init__(self, sizes: Sequence[int], vocab_size: int, *, layer: int = 0, dropout: float = 0.0) -> None:
        super().__init__()
        require("layer", layer, 0, len(sizes) - 1)
        self.layer, self.ctc = layer, CTC(sizes[layer], vocab_size, dropout=dropout)

    def forward(self, levels: Sequence[tuple[Tensor, Lengths]]) -> CTCOutput:
        """Return the output for the rows above each layer, with their numbers (`Listener.forward`)."""
        rows, num_rows = levels[self.layer]
        return CTCOutput(self.ctc(rows), num_rows)


def loss(output: CTCOutput, targets: Int[Tensor, "batch tokens"], num_tokens: Lengths) -> Float[Tensor, ""]:
    """Return the loss -log p(tokens | states), summed over the batch, in fp32.

    A target needs a state for each token and one between two that are equal. An utterance with fewer states has
    probability zero; it adds nothing (training filters them out beforehand).
    """
    if output.num_states.device.type != "cpu":  # which torch's function would wait for
        log_probs = output.log_probs.to(torch.promote_types(output.log_probs.dtype, torch.float32))
        return -log_likelihoods(log_probs, targets, output.num_states, num_tokens).sum()
    by_state = output.log_probs.float().transpose(0, 1)
    return nn.functional.ctc_loss(
        by_state, targets, output.num_states, num_tokens, blank=BLANK, reduction="sum", zero_infinity=True
    )


def log_likelihoods(
    log_probs: Float[Tensor, "batch states vocab"],
    targets: Int[Tensor, "batch tokens"],
    num_states: Lengths,
    num_tokens: Lengths,
) -> Float[Tensor, " batch"]:
    """Return log p(tokens | states) of each utterance, 0 where it is impossible, with lengths on any device.

    The host starts a few operations for each state and does not wait for their results. Differentiable once.
    """
    return cast(Tensor, _LogLikelihood.apply(log_probs, targets, num_states, num_tokens))


class _LogLikelihood(torch.autograd.Function):
    """Log-likelihoods [batch] by `occupancies`, which are their gradients."""

    @staticmethod
    def forward(ctx: Any, log_probs: Tensor, targets: Tensor, num_states: Tensor, num_tokens: Tensor) -> Tensor:
        log_likelihoods, of_blank, of_tokens = occupancies(log_probs, targets, num_states, num_tokens)
        ctx.vocab_size = log_probs.shape[-1]
        ctx.save_for_backward(of_blank, of_tokens, targets)
        return log_likelihoods

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        of_blank, of_tokens, targets = ctx.saved_tensors
        found = of_blank.new_zeros(*of_blank.shape, ctx.vocab_size)
        found.scatter_add_(2, targets.unsqueeze(1).expand_as(of_tokens), of_tokens)
        found[..., BLANK] = of_blank
        return gradient.view(-1, 1, 1) * found, None, None, None


@torch.no_grad()
def occupancies(
    log_probs: Float[Tensor, "batch states vocab"],
    targets: Int[Tensor, "batch tokens"],
    num_states: Lengths,
    num_tokens: Lengths,
) -> tuple[Float[Tensor, " batch"], Float[Tensor, "batch states"], Float[Tensor, "batch states tokens"]]:
    """Return log-likelihoods, 0 where there is no path, and the probabilities that a path has the blank at a state, and
    each token there.

    beta, what follows a place, is alpha of the utterance read backwards: both come from one loop (Graves et al. 2006,
    equations 6 to 16; here both count the emission of their own place).
    """
    states, places = num_states.clamp(max=log_probs.shape[1]), 2 * num_tokens + 1
    read = _emissions(log_probs, targets)
    ahead, behind = _alphas([read, _emissions(reverse(log_probs, states), reverse(targets, num_tokens))])
    behind = reverse(reverse(behind, states).transpose(1, 2), places).transpose(1, 2)
    last = (states - 1).clamp(min=0).view(-1, 1, 1).expand(-1, 1, ahead.shape[2])
    is_end = mask_of(places, ahead.shape[2]) & ~mask_of(places - 2, ahead.shape[2])
    log_likelihoods = ahead.gather(1, last).squeeze(1).masked_fill(~is_end, -math.inf).logsumexp(1)
    possible = (log_likelihoods > -math.inf) & (states > 0)
    log_likelihoods = log_likelihoods.masked_fill(~possible, 0.0)
    exists = mask_of(states * possible, ahead.shape[1]).unsqueeze(2) & mask_of(places, ahead.shape[2]).unsqueeze(1)
    exists = exists & (read.at_places > -math.inf)  # elsewhere all three terms are infinite
    taken = (ahead + (behind - read.at_places) - log_likelihoods.view(-1, 1, 1)).exp().masked_fill(~exists, 0.0)
    return log_likelihoods, taken[..., ::2].sum(2), taken[..., 1::2]


class _Emissions(NamedTuple):
    """Log-probabilities of blank, first token, blank, second token, ..., blank, and where a path may skip a blank."""

    at_places: Float[Tensor, "batch states places"]
    skips: Bool[Tensor, "batch places"]


def _emissions(log_probs: Float[Tensor, "batch states vocab"], targets: Int[Tensor, "batch tokens"]) -> _Emissions:
    labels = targets.new_full((len(targets), 2 * targets.shape[1] + 1), BLANK)
    labels[:, 1::2] = targets
    skips = torch.zeros_like(labels, dtype=torch.bool)
    skips[:, 1:2] = True  # from before the first blank
    skips[:, 3::2] = labels[:, 3::2] != labels[:, 1:-2:2]
    return _Emissions(log_probs.gather(2, labels.unsqueeze(1).expand(-1, log_probs.shape[1], -1)), skips)


def _alphas(read: Sequence[_Emissions]) -> Sequence[Float[Tensor, "batch states places"]]:
    """Return the log-probabilities of all beginnings of paths that end at each state and place."""
    emissions, skips = (torch.cat(parts) for parts in zip(*read, strict=True))
    closed = torch.zeros_like(emissions[:, 0]).masked_fill(~skips, -math.inf)
    # Two columns stand before the first place; a path begins in the second.
    alphas = emissions.new_full((emissions.shape[1] + 1, len(emissions), emissions.shape[2] + 2), -math.inf)
    alphas[0, :, 1] = 0.0
    for before, after, emission in zip(alphas, alphas[1:], emissions.unbind(1), strict=False):
        entered = torch.logaddexp(before[:, 2:], before[:, 1:-1])
        torch.add(torch.logaddexp(entered, before[:, :-2] + closed), emission, out=after[:, 2:])
    return alphas[1:, :, 2:].transpose(0, 1).chunk(len(read))


def align(log_probs: Float[Tensor, "states vocab"], tokens: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first state of each token and the one after its last, on the best path of these tokens (Viterbi).

    Args:
        log_probs: output of CTC for one utterance, without padding.
        tokens: none of them the blank.

    Raises ValueError where the states are too few to write the tokens.
    """
    labels = np.full(2 * len(tokens) + 1, BLANK)
    labels[1::2] = tokens
    # A token may follow the one before it without a blank between, unless they are equal.
    skips = np.zeros(len(labels), dtype=bool)
    skips[3::2] = labels[3::2] != labels[1:-2:2]
    emissions = log_probs.double().numpy(force=True)[:, labels]
    scores, steps = np.full(len(labels), -np.inf), np.zeros(emissions.shape, dtype=np.int64)
    scores[0] = 0.0  # enters the first blank or, one further on, the first token
    for state, emission in enumerate(emissions):
        stay, next_one = scores, np.append(-np.inf, scores[:-1])
        skip = np.where(skips, np.append([-np.inf, -np.inf], scores[:-2])[: len(labels)], -np.inf)
        choices = np.stack([stay, next_one, skip])
        steps[state] = choices.argmax(0)
        scores = choices.max(0) + emission
    place = len(labels) - 1 if len(labels) == 1 or scores[-1] >= scores[-2] else len(labels) - 2
    if scores[place] == -np.inf:
        raise ValueError(f"{len(tokens)} tokens cannot be aligned with {len(emissions)} states")
    path = np.empty(len(emissions), dtype=np.int64)
    for state in range(len(emissions) - 1, -1, -1):
        path[state] = place
        place -= steps[state, place]
    bounds = np.searchsorted(path, [2 * np.arange(len(tokens)) + 1, 2 * np.arange(len(tokens)) + 2])
    return list(zip(*bounds.tolist(), strict=True))


def no_ctc_error() -> ConfigError:
    """Return the error for a search with CTC and a model without it."""
    return ConfigError(
        "search.ctc: this model was trained without CTC, so it has no CTC scores. "
        "Search without it (search=beam), or train with loss=joint_ctc"
    )
