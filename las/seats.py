"""The hypotheses that a search has under construction, and how they go on."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from las.scorers.base import score_type


class Beams(NamedTuple):
    """The hypotheses under construction. `lengths` counts the end symbol, `tokens` are their last symbols.

    A score of -inf marks a hypothesis that is impossible or does not exist (there were fewer continuations than
    seats). Nothing can save it, so it counts as finished, its last symbol as its end.
    """

    tokens: Int[Tensor, "batch beam"]
    scores: Float[Tensor, "batch beam"]
    ranks: Float[Tensor, "batch beam"]
    lengths: Int[Tensor, "batch beam"]
    finished: Bool[Tensor, "batch beam"]


class Continuations(NamedTuple):
    """The best next symbols of each beam, best first, with the score of the hypothesis each of them makes."""

    tokens: Int[Tensor, "batch beam count"]
    scores: Float[Tensor, "batch beam count"]


def first(sos: int, num_states: Int[Tensor, " batch"]) -> Beams:
    """One beam per utterance that holds the start symbol only."""
    shape, device = (len(num_states), 1), num_states.device
    scores = torch.zeros(shape, dtype=score_type(device), device=device)
    return Beams(
        tokens=torch.full(shape, sos, device=device),
        scores=scores,
        ranks=scores,
        lengths=torch.zeros(shape, dtype=torch.long, device=device),
        finished=torch.zeros(shape, dtype=torch.bool, device=device),
    )


def continuations(beams: Beams, gains: Tensor, full: Tensor, eos: int, count: int) -> Continuations:
    """The best next symbols of every beam; `full` [batch, 1] says where the length limit is reached.

    A finished hypothesis continues with the end symbol only, at no cost; a full one with the end symbol only, at its
    cost.
    """
    values, tokens = (each.view(*gains.shape[:2], count) for each in best(gains.flatten(0, 1), count))
    ending = gains[:, :, eos].masked_fill(beams.finished, 0.0).unsqueeze(-1)
    closed = (beams.finished | full).unsqueeze(-1)
    first = torch.arange(count, device=tokens.device) == 0
    gained = torch.where(closed, ending.masked_fill(~first, -math.inf), values)
    return Continuations(tokens.masked_fill(closed, eos), beams.scores.unsqueeze(-1) + gained.to(beams.scores.dtype))


def extended(tokens: Tensor, scores: Tensor, ranks: Tensor, lengths: Tensor, eos: int) -> Beams:
    """Hypotheses after one more symbol; the end and what is impossible finish them."""
    return Beams(tokens, scores, ranks, lengths, (tokens == eos) | (scores == -math.inf))


def best(values: Float[Tensor, "rows candidates"], count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest values of each row and their places, largest first, equal values in order of place.

    `torch.topk` promises neither an order among equals nor which of them it takes, and a stable sort of all candidates
    is slow: its choice stands where it had none, and else equals are taken from the left.
    """
    found = values.topk(count, dim=1)
    threshold, places = found.values[:, -1:], found.indices
    # Asking whether there was a choice would make the host wait for a GPU.
    if values.device.type != "cpu" or (values >= threshold).sum() > places.numel():
        above, equal = values > threshold, values == threshold
        room = count - above.sum(dim=1, keepdim=True)
        taken = above | (equal & (equal.cumsum(dim=1) <= room))
        index = torch.arange(values.shape[1], device=values.device)
        places = torch.where(taken, index, values.shape[1]).topk(count, dim=1, largest=False).indices
    places = places.sort(dim=1).values
    ordered, order = values.gather(1, places).sort(dim=1, descending=True, stable=True)
    return ordered, places.gather(1, order)
