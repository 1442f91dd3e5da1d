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


class Rules(NamedTuple):
    """How hypotheses go on: `eos` ends them, `size` seats are there for each utterance, the best rank takes them."""

    eos: int
    size: int
    exponent: float

    def ranks(self, scores: Float[Tensor, "*shape"], lengths: Int[Tensor, "*lengths"]) -> Float[Tensor, "*shape"]:
        """score / length ** exponent."""
        return scores / lengths.to(scores.dtype) ** self.exponent if self.exponent else scores

    def extend(
        self,
        beams: Beams,
        gains: Float[Tensor, "batch beam vocab"],
        ending: Float[Tensor, "batch beam"],
        full: Bool[Tensor, "batch 1"],
    ) -> tuple[Beams, Int[Tensor, "batch seats"]]:
        """The best continuations of all, and the beam each of them comes from.

        `gains` are what each next symbol adds to a score. Where `full` says that the length limit is reached, the end
        symbol alone may come, for `ending`; after a finished hypothesis as well, for nothing.
        """
        closed = beams.finished | full
        gains = gains.masked_fill(closed.unsqueeze(-1), -math.inf)
        gains[:, :, self.eos] = torch.where(closed, ending.masked_fill(beams.finished, 0.0), gains[:, :, self.eos])
        scores = beams.scores.unsqueeze(-1) + gains
        lengths = beams.lengths + (~beams.finished).long()
        every_rank = self.ranks(scores, lengths.unsqueeze(-1)).flatten(1)
        ranks, chosen = best(every_rank, min(self.size, every_rank.shape[1]))
        parents = chosen // gains.shape[-1]
        tokens, scores = chosen % gains.shape[-1], scores.flatten(1).gather(1, chosen)
        finished = (tokens == self.eos) | (scores == -math.inf)
        return Beams(tokens, scores, ranks, lengths.gather(1, parents), finished), parents


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
