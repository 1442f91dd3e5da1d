"""The lattice of a transducer and its loss (Graves 2012): -log p(tokens | states), summed over all alignments.

A path stands at (t, u): t states are left behind, u tokens are written. It either takes the blank, to (t + 1, u), or
token u + 1, to (t, u + 1); the blank at the last state after the last token ends it. With the log-probabilities
blank(t, u) and token(t, u) of these arcs (Graves 2012, equations 16 to 18; all in logarithms):

    alpha(t, u) = logadd(alpha(t - 1, u) + blank(t - 1, u), alpha(t, u - 1) + token(t, u - 1))
    beta(t, u)  = logadd(blank(t, u) + beta(t + 1, u), token(t, u) + beta(t, u + 1))

Both are computed one anti-diagonal t + u after the other, each for all utterances and places at once. The gradient of
log p by the log-probability of an arc is the probability that a path takes it (equation 20):
exp(alpha + arc + beta - log p).
"""

import math
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from las.nn.normalisation import Lengths

BLANK = 0


class Arcs(NamedTuple):
    """Log-probabilities of the two arcs from each place of the lattice; the last column has no token."""

    blank: Float[Tensor, "batch states tokens1"]
    token: Float[Tensor, "batch states tokens1"]


def loss(arcs: Arcs, num_states: Lengths, num_tokens: Lengths) -> Float[Tensor, ""]:
    """Return -log p(tokens | states), summed over the batch, in fp32 or more.

    Padding has no effect. An utterance without states has probability zero; it adds nothing.
    """
    return -cast(Tensor, _LogLikelihood.apply(*arcs, num_states, num_tokens)[0]).sum()


def occupancies(arcs: Arcs, num_states: Lengths, num_tokens: Lengths) -> Arcs:
    """Return the probabilities that a path of these tokens takes each arc."""
    _, *taken = lattice(arcs, num_states, num_tokens)
    return Arcs(*taken)


class _LogLikelihood(torch.autograd.Function):
    """Log-likelihoods [batch] of arcs, whose gradients are the occupancies, all that is kept for the backward pass."""

    @staticmethod
    def forward(ctx: Any, blank: Tensor, token: Tensor, num_states: Tensor, num_tokens: Tensor) -> tuple[Tensor]:
        log_probs, *taken = lattice(Arcs(blank, token), num_states, num_tokens)
        ctx.save_for_backward(*taken)
        return (log_probs,)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        blank, token = (gradient.view(-1, 1, 1) * taken for taken in ctx.saved_tensors)
        return blank, token, None, None


@torch.no_grad()
def lattice(arcs: Arcs, num_states: Lengths, num_tokens: Lengths) -> tuple[Tensor, Tensor, Tensor]:
    """Return the log-likelihoods [batch], 0 for an impossible utterance, and the occupancies of both arcs."""
    blank, token = (_on_diagonals(arc.to(torch.promote_types(arc.dtype, torch.float32))) for arc in arcs)
    device, (count, _, columns) = blank.device, blank.shape
    num_states, num_tokens = (each.to(device, non_blocking=True) for each in (num_states, num_tokens))
    places = torch.arange(columns, device=device)
    states = torch.arange(count, device=device).view(-1, 1, 1) - places  # t of each diagonal and u
    exists = (states >= 0) & (states < num_states.unsqueeze(1))
    blank = blank.masked_fill(~(exists & (places <= num_tokens.unsqueeze(1))), -math.inf)
    token = token.masked_fill(~(exists & (places < num_tokens.unsqueeze(1))), -math.inf)
    is_end = (places == num_tokens.unsqueeze(1)) & (states == num_states.unsqueeze(1))

    before = torch.full_like(blank, -math.inf)
    before[0, :, 0] = 0.0
    for diagonal in range(1, count):
        stay = before[diagonal - 1] + blank[diagonal - 1]
        write = (before[diagonal - 1] + token[diagonal - 1])[:, :-1]
        torch.logaddexp(stay, torch.nn.functional.pad(write, (1, 0), value=-math.inf), out=before[diagonal])
    after = torch.full_like(blank, -math.inf).masked_fill(is_end, 0.0)
    for diagonal in range(count - 2, -1, -1):
        stay = blank[diagonal] + after[diagonal + 1]
        write = token[diagonal] + torch.nn.functional.pad(after[diagonal + 1][:, 1:], (0, 1), value=-math.inf)
        after[diagonal] = torch.logaddexp(torch.logaddexp(stay, write), after[diagonal])
    log_probs = after[0, :, 0]
    possible = log_probs > -math.inf
    log_probs = log_probs.masked_fill(~possible, 0.0)

    blank[:-1] += after[1:]
    token[:-1, :, :-1] += after[1:, :, 1:]
    of_blank, of_token = (
        _off_diagonals((arc + before - log_probs.unsqueeze(1)).exp() * possible.unsqueeze(1), arcs.blank.shape[1])
        for arc in (blank, token)
    )
    return log_probs, of_blank.to(arcs.blank.dtype), of_token.to(arcs.token.dtype)


def _on_diagonals(arcs: Float[Tensor, "batch states columns"]) -> Float[Tensor, "diagonals batch columns"]:
    """Rearrange so that row d holds the places with t + u = d; there is a row more than that of the last place."""
    states, columns = arcs.shape[1:]
    row = torch.arange(states + columns, device=arcs.device).unsqueeze(1)
    state = (row - torch.arange(columns, device=arcs.device)).clamp(0, states - 1)
    return arcs.gather(1, state.expand(len(arcs), -1, -1)).transpose(0, 1).contiguous()


def _off_diagonals(
    rows: Float[Tensor, "diagonals batch columns"], states: int
) -> Float[Tensor, "batch states columns"]:
    """Undo `_on_diagonals`."""
    columns = rows.shape[2]
    row = torch.arange(states, device=rows.device).unsqueeze(1) + torch.arange(columns, device=rows.device)
    return rows.transpose(0, 1).gather(1, row.expand(rows.shape[1], -1, -1))
