"""What a search did, step by step: who came from whom, so that no step copies the histories of its hypotheses."""

import math
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor


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
