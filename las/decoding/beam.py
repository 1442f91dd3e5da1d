"""The hypotheses that a search has under construction, and how they go on.

What a search did, step by step: who came from whom, so that no step copies the histories of its hypotheses.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from las.decoding.scorers.base import score_type


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


class Move(NamedTuple):
    """One step: the symbol of each seat, the seat it came from, and what each scorer gave for it (unweighted)."""

    tokens: Int[Tensor, "batch seats"]
    parents: Int[Tensor, "batch seats"]
    gains: Float[Tensor, "scorers batch seats"]


class Path(NamedTuple):
    """One hypothesis read back: its symbols, the end among them, what each scorer gave for each, [scorers, symbols],
    its score and what it was ranked by."""

    tokens: list[int]
    gains: NDArray[np.float64]
    score: float
    rank: float


class Trail:
    """The moves of a batch of utterances, some of which may leave it early."""

    def __init__(self, num_states: Int[Tensor, " batch"]) -> None:
        self._batch = len(num_states)
        self._rows = torch.arange(self._batch, device=num_states.device)
        self._moves: list[tuple[Tensor, Move]] = []
        self._ends: dict[int, list[tuple[float, float, int]]] = {}

    def add(self, move: Move) -> None:
        """One more step of the utterances that are still there."""
        self._moves.append((self._rows, move))

    def end(
        self,
        rows: Int[Tensor, " some"],
        scores: Float[Tensor, "left seats"],
        ranks: Float[Tensor, "left seats"],
        lengths: Int[Tensor, "left seats"],
    ) -> None:
        """Some of those that are still there have ended. Their impossible hypotheses (score -inf) count only where all
        of an utterance's are."""
        columns = (self._rows[rows], *(part[rows] for part in (scores, ranks, lengths)))
        for row, *seats in zip(*(column.tolist() for column in columns), strict=True):
            ends = list(zip(*seats, strict=True))
            self._ends[row] = [end for end in ends if end[0] > -math.inf] or ends[:1]

    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        """Go on with these only of those that are still there."""
        self._rows = self._rows[rows]

    def paths(self) -> list[list[Path]]:
        """The hypotheses of every utterance, in the order of their seats when it ended."""
        shape = (self._batch, max(len(ends) for ends in self._ends.values()))
        seats = np.broadcast_to(np.arange(shape[1]), shape).copy()
        tokens = np.zeros((len(self._moves), *shape), dtype=np.int64)
        gains = np.zeros((len(self._moves[0][1].gains), len(self._moves), *shape))
        for step in reversed(range(len(self._moves))):
            rows, move = self._moves[step][0].numpy(force=True), self._moves[step][1]
            # Seats that an utterance does not have are filled as well, and never read.
            here = np.minimum(seats[rows], move.tokens.shape[1] - 1)
            tokens[step, rows] = np.take_along_axis(move.tokens.numpy(force=True), here, 1)
            gains[:, step, rows] = np.take_along_axis(move.gains.numpy(force=True), here[None], 2)
            seats[rows] = np.take_along_axis(move.parents.numpy(force=True), here, 1)
        return [
            [
                Path(tokens[:length, row, seat].tolist(), gains[:, :length, row, seat], score, rank)
                for seat, (score, rank, length) in enumerate(self._ends[row])
            ]
            for row in range(self._batch)
        ]
