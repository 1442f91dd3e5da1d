"""The beams of a search and the record of its steps, from which the hypotheses are read at the end."""

import math
from collections.abc import Iterator
from itertools import groupby, repeat
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from las.decoding.base import Hypothesis
from las.decoding.beam_expansion import BeamState


class BeamStep(NamedTuple):
    """One step: the new symbol of each beam, the beam it continues, its score by each scorer (unweighted)."""

    tokens: Int[Tensor, "batch beam"]
    parents: Int[Tensor, "batch beam"]
    scores: Float[Tensor, "scorers batch beam"]


class HostStep(NamedTuple):
    """A `BeamStep` in the host's memory."""

    tokens: NDArray[np.int64]
    parents: NDArray[np.int64]
    scores: NDArray[np.float64]


class BacktracedHypothesis(NamedTuple):
    """One hypothesis: its symbols with the end, their scores by scorer [scorers, symbols], weighted score and rank."""

    tokens: list[int]
    symbol_scores: NDArray[np.float64]
    score: float
    rank: float


class Backtrace:
    """All steps of a search, from which the hypotheses are read at the end, so that no step copies histories.

    After `select_utterances` the following steps have only the selected utterances.
    """

    def __init__(self, num_states: Int[Tensor, " batch"]) -> None:
        self._batch = len(num_states)
        self._rows = torch.arange(self._batch, device=num_states.device)
        self._steps: list[tuple[Tensor, BeamStep]] = []
        self._ends: dict[int, list[tuple[float, float, int]]] = {}

    def add(self, step: BeamStep) -> None:
        """Record one step of the utterances that are still in the batch."""
        self._steps.append((self._rows, step))

    def end(self, rows: Int[Tensor, " ended"], beams: BeamState, nbest: int) -> None:
        """Record the `nbest` final beams of some of the utterances that are still in the batch.

        Impossible hypotheses (score -inf) are dropped, except one for an utterance that has no others.
        """
        columns = (beams.scores, beams.ranks, beams.lengths)
        ends = (self._rows[rows], *(column[:, :nbest][rows] for column in columns))
        for row, *values in zip(*(column.tolist() for column in ends), strict=True):
            hypotheses = list(zip(*values, strict=True))
            self._ends[row] = [each for each in hypotheses if each[0] > -math.inf] or hypotheses[:1]

    def end_all(self, beams: BeamState, nbest: int) -> None:
        """Record the final beams of all utterances that are still in the batch."""
        self.end(torch.arange(len(beams.tokens), device=beams.tokens.device), beams, nbest)

    def select_utterances(self, rows: Int[Tensor, " selected"]) -> None:
        """Continue with only these of the utterances that are still in the batch."""
        self._rows = self._rows[rows]

    def hypotheses(self, limits: list[int], names: list[str]) -> list[list[Hypothesis]]:
        """The hypotheses of each utterance, by its limit of tokens and the names of the scorers."""
        return [
            [
                Hypothesis(
                    tokens=each.tokens[:-1],
                    score=each.score,
                    normalised_score=each.rank,
                    finished_by=_finished_by(each, limit),
                    scores=dict(zip(names, each.symbol_scores.sum(1).tolist(), strict=True)),
                    confidences=np.exp(each.symbol_scores[0, :-1]).tolist(),
                )
                for each in hypotheses
            ]
            for hypotheses, limit in zip(self._traced(), limits, strict=True)
        ]

    def _traced(self) -> list[list[BacktracedHypothesis]]:
        """The symbols and scores of the hypotheses of every utterance, in the order of their beams when it ended."""
        shape = (self._batch, max(len(ends) for ends in self._ends.values()))
        beams = np.broadcast_to(np.arange(shape[1]), shape).copy()
        tokens = np.zeros((len(self._steps), *shape), dtype=np.int64)
        scores = np.zeros((len(self._steps[0][1].scores), len(self._steps), *shape))
        for index, (rows, step) in reversed([*enumerate(self._on_host())]):
            # Beams that an utterance does not have are filled as well, and never read.
            current = np.minimum(beams[rows], step.tokens.shape[1] - 1)
            tokens[index, rows] = np.take_along_axis(step.tokens, current, 1)
            scores[:, index, rows] = np.take_along_axis(step.scores, current[None], 2)
            beams[rows] = np.take_along_axis(step.parents, current, 1)
        return [
            [
                BacktracedHypothesis(tokens[:length, row, beam].tolist(), scores[:, :length, row, beam], score, rank)
                for beam, (score, rank, length) in enumerate(self._ends[row])
            ]
            for row in range(self._batch)
        ]

    def _on_host(self) -> Iterator[tuple[NDArray[np.int64], "HostStep"]]:
        """The rows and the arrays of each step. Steps of one shape are copied at once, as each copy waits for a GPU."""
        for _, group in groupby(self._steps, key=lambda step: (id(step[0]), step[1].tokens.shape)):
            rows, steps = zip(*group, strict=True)
            columns = (torch.stack(column).numpy(force=True) for column in zip(*steps, strict=True))
            yield from zip(repeat(rows[0].numpy(force=True)), map(HostStep, *columns), strict=False)


def _finished_by(hypothesis: BacktracedHypothesis, limit: int) -> Literal["eos", "max_length", "dead_end"]:
    if hypothesis.score == -math.inf:
        return "dead_end"
    return "max_length" if len(hypothesis.tokens) > limit else "eos"
