"""Expansion of the hypotheses of a search by one symbol, and the record of its steps.

`BeamExpansion` is written in torch's operations and runs anywhere; on a CPU `CompiledBeamExpansion` in C++ (`beams.h`)
takes its place.
"""

import ctypes
import math
from collections.abc import Iterator, Sequence
from itertools import groupby, repeat
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from las.decoding.base import CanSearch, Decoder, Hypothesis
from las.nn.kernels.choice import Compiled, Differences
from las.nn.kernels.cpp.tensors import Bools, Doubles, Int64s, Structure, call, dense, score_type

SHARED = 1 << 13
"""Scores of symbols from which on threads share the utterances."""


def possible(log_probs: Tensor) -> Tensor:
    """Log-probabilities with -inf (impossible) in place of invalid values, NaN and +inf."""
    return log_probs.nan_to_num(-math.inf, -math.inf, -math.inf)


class BeamState(NamedTuple):
    """The hypotheses under construction. `lengths` counts the end symbol, `tokens` are their last symbols.

    A score of -inf marks a hypothesis that is impossible or does not exist (there were fewer continuations than
    beams). No continuation can make it possible, so it counts as finished, its last symbol as its end.
    """

    tokens: Int[Tensor, "batch beam"]
    scores: Float[Tensor, "batch beam"]
    ranks: Float[Tensor, "batch beam"]
    lengths: Int[Tensor, "batch beam"]
    finished: Bool[Tensor, "batch beam"]


def first_beams(sos: int, num_states: Int[Tensor, " batch"]) -> BeamState:
    """One beam per utterance that holds the start symbol only."""
    shape, device = (len(num_states), 1), num_states.device
    scores = torch.zeros(shape, dtype=score_type(device), device=device)
    return BeamState(
        tokens=torch.full(shape, sos, device=device),
        scores=scores,
        ranks=scores,
        lengths=torch.zeros(shape, dtype=torch.long, device=device),
        finished=torch.zeros(shape, dtype=torch.bool, device=device),
    )


class BeamExpansion(NamedTuple):
    """Expansion of all beams by one symbol; the `size` continuations of the best rank become the new beams.

    `eos` ends a hypothesis; `exponent` is that of the length normalisation.
    """

    eos: int
    size: int
    exponent: float

    def ranks(self, scores: Float[Tensor, "*shape"], lengths: Int[Tensor, "*lengths"]) -> Float[Tensor, "*shape"]:
        return scores / lengths.to(scores.dtype) ** self.exponent if self.exponent else scores

    def extend(
        self,
        beams: BeamState,
        symbol_scores: Float[Tensor, "batch beam vocab"],
        end_scores: Float[Tensor, "batch beam"],
        at_limit: Bool[Tensor, "batch 1"],
    ) -> tuple[BeamState, Int[Tensor, "batch new_beam"]]:
        """Return the best continuations of all beams, and the index of the beam that each of them continues.

        `symbol_scores` are added to the score of a hypothesis. `at_limit` marks utterances that have reached the length
        limit: only the end symbol may follow there, at `end_scores`. A finished hypothesis is continued by the end
        symbol as well, at no cost, so that it stays as it is.
        """
        closed = beams.finished | at_limit
        symbol_scores = symbol_scores.masked_fill(closed.unsqueeze(-1), -math.inf)
        end_scores = torch.where(closed, end_scores.masked_fill(beams.finished, 0.0), symbol_scores[:, :, self.eos])
        symbol_scores[:, :, self.eos] = end_scores
        scores = beams.scores.unsqueeze(-1) + symbol_scores
        lengths = beams.lengths + (~beams.finished).long()
        candidates = self.ranks(scores, lengths.unsqueeze(-1)).flatten(1)
        ranks, chosen = stable_topk(candidates, min(self.size, candidates.shape[1]))
        vocab = symbol_scores.shape[-1]
        parents, tokens, scores = chosen // vocab, chosen % vocab, scores.flatten(1).gather(1, chosen)
        finished = (tokens == self.eos) | (scores == -math.inf)
        return BeamState(tokens, scores, ranks, lengths.gather(1, parents), finished), parents

    def is_final(
        self, beams: BeamState, nbest: int, max_tokens: Int[Tensor, "batch 1"], upper_bound: Tensor | float
    ) -> Bool[Tensor, " batch"]:
        """Mask of the utterances whose `nbest` list no further step can change.

        Either no beam is open, or the `nbest` best are finished and rank above every rank that an open beam can still
        reach. Its score can grow by `upper_bound` [batch, beam] at most; normalised, that ranks highest at the greatest
        possible length, or at the least one if it is positive.
        """
        all_finished = beams.finished.all(dim=1)
        if beams.finished.shape[1] < nbest:
            return all_finished
        highest = beams.scores + upper_bound
        lengths = torch.where(highest > 0, beams.lengths + 1, max_tokens + 1)
        rank_bound = self.ranks(highest, lengths).masked_fill(beams.finished, -math.inf).amax(dim=1)
        best_finished = beams.finished[:, :nbest].all(dim=1)
        return all_finished | (best_finished & (beams.ranks[:, nbest - 1] > rank_bound))


def stable_topk(values: Float[Tensor, "rows candidates"], count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` largest values of each row and their indices, largest first, ties in order of index.

    `torch.topk` specifies neither the order nor the choice among equals, and a stable sort of all candidates is slow.
    So the choice of `torch.topk` is used without ties at the threshold; otherwise the leftmost equal values are taken.
    """
    top = values.topk(count, dim=1)
    threshold, indices = top.values[:, -1:], top.indices
    # On a GPU always: testing for ties would make the host wait.
    if values.device.type != "cpu" or (values >= threshold).sum() > indices.numel():
        above, equal = values > threshold, values == threshold
        num_ties = count - above.sum(dim=1, keepdim=True)
        selected = above | (equal & (equal.cumsum(dim=1) <= num_ties))
        index = torch.arange(values.shape[1], device=values.device)
        indices = torch.where(selected, index, values.shape[1]).topk(count, dim=1, largest=False).indices
    indices = indices.sort(dim=1).values
    ordered, order = values.gather(1, indices).sort(dim=1, descending=True, stable=True)
    return ordered, indices.gather(1, order)


class ExpansionStructure(Structure):
    """The structure `Expansion` of `beams.h`, field by field."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("batch", "beams", "vocab", "kept", "eos")),
        ("exponent", ctypes.c_double),
        *((name, ctypes.c_void_p) for name in ("symbol_scores", "end_scores")),
        *(("scores", Doubles), ("lengths", Int64s), ("finished", Bools), ("at_limit", Bools)),
        *((name, Int64s) for name in ("new_tokens", "parents", "new_lengths")),
        *(("new_scores", Doubles), ("new_ranks", Doubles), ("new_finished", Bools)),
    )


class CompiledBeamExpansion(BeamExpansion):
    """Expansion of all beams in C++, on a CPU."""

    def extend(
        self,
        beams: BeamState,
        symbol_scores: Float[Tensor, "batch beam vocab"],
        end_scores: Float[Tensor, "batch beam"],
        at_limit: Bool[Tensor, "batch 1"],
    ) -> tuple[BeamState, Int[Tensor, "batch new_beam"]]:
        """Return the result of `BeamExpansion.extend`; scores of beams are in float64."""
        batch, count, vocab = symbol_scores.shape
        dtype = symbol_scores.dtype if symbol_scores.dtype in (torch.float32, torch.float64) else torch.float64
        inputs = {"symbol_scores": symbol_scores.to(dtype), "end_scores": end_scores.to(dtype), "at_limit": at_limit}
        inputs |= {"scores": beams.scores.double(), "lengths": beams.lengths.long(), "finished": beams.finished}
        inputs = {name: dense(part) for name, part in inputs.items()}
        kept = min(self.size, count * vocab)
        tokens, parents, lengths = inputs["lengths"].new_empty(3, batch, kept)
        scores, ranks = inputs["scores"].new_empty(2, batch, kept)
        new = BeamState(tokens, scores, ranks, lengths, inputs["finished"].new_empty(batch, kept))
        structure = ExpansionStructure(batch, count, vocab, kept, self.eos, self.exponent)
        structure.point(**inputs, parents=parents, **{f"new_{name}": part for name, part in new._asdict().items()})
        call("expand", dtype, structure, symbol_scores.numel() >= SHARED)
        return new, parents


def expansion_on(device: torch.device, eos: int, size: int, exponent: float) -> BeamExpansion:
    """Return the expansion that is fastest on a device."""
    refusal = BEAMS.refusal(torch.empty(0, dtype=score_type(device), device=device))
    return (BeamExpansion if refusal else CompiledBeamExpansion)(eos, size, exponent)


def _trial() -> Differences:
    """Three steps of three utterances, of which one is at its limit."""
    scores = torch.linspace(-9, 9, 3 * 4 * 5, dtype=torch.float64).sin().mul(3).view(3, 4, 5).log_softmax(-1)
    at_limit, results = torch.tensor([[False], [False], [True]]), []
    for kind in (CompiledBeamExpansion, BeamExpansion):
        beams = first_beams(0, torch.ones(3, dtype=torch.long))
        for step in range(3):
            of_beams = scores[:, : beams.tokens.shape[1]].roll(step, 2)
            beams, parents = kind(0, 4, 0.7).extend(beams, of_beams, of_beams[:, :, 0], at_limit)
        results.append([*beams, parents])
    return [("the expansion", ours, right) for ours, right in zip(*results, strict=True)]


BEAMS = Compiled("beams", _trial, 1e-9)


class BeamStep(NamedTuple):
    """One step: the new symbol of each beam, the beam it continues, its score by each scorer (unweighted)."""

    tokens: Int[Tensor, "batch beam"]
    parents: Int[Tensor, "batch beam"]
    scores: Float[Tensor, "scorers batch beam"]


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
        self.end(torch.arange(len(beams.tokens), device=beams.tokens.device), beams, nbest)

    def select_utterances(self, rows: Int[Tensor, " selected"]) -> None:
        """Continue with only these of the utterances that are still in the batch."""
        self._rows = self._rows[rows]

    def hypotheses(self, limits: list[int], names: list[str]) -> list[list[Hypothesis]]:
        """Return the hypotheses of each utterance, by its limit of tokens and the names of the scorers, in the order of
        their beams when it ended.
        """
        shape = (self._batch, max(len(ends) for ends in self._ends.values()))
        beams = np.broadcast_to(np.arange(shape[1]), shape).copy()
        tokens = np.zeros((len(self._steps), *shape), dtype=np.int64)
        scores = np.zeros((len(names), len(self._steps), *shape))
        for index, (rows, chosen, parents, symbol_scores) in reversed([*enumerate(self._on_host())]):
            # Beams that an utterance does not have are filled as well, and never read.
            current = np.minimum(beams[rows], chosen.shape[1] - 1)
            tokens[index, rows] = np.take_along_axis(chosen, current, 1)
            scores[:, index, rows] = np.take_along_axis(symbol_scores, current[None], 2)
            beams[rows] = np.take_along_axis(parents, current, 1)

        return [
            [
                hypothesis(tokens[:length, row, beam], scores[:, :length, row, beam], (score, rank), limits[row], names)
                for beam, (score, rank, length) in enumerate(self._ends[row])
            ]
            for row in range(self._batch)
        ]

    def _on_host(self) -> Iterator[tuple[NDArray[Any], ...]]:
        """Yield the rows, tokens, parents and scores of each step in the host's memory.

        Steps of one shape are copied at once, as each copy waits for a GPU.
        """
        for _, group in groupby(self._steps, key=lambda step: (id(step[0]), step[1].tokens.shape)):
            rows, steps = zip(*group, strict=True)
            columns = (torch.stack(column).numpy(force=True) for column in zip(*steps, strict=True))
            yield from zip(repeat(rows[0].numpy(force=True)), *columns, strict=False)


def hypothesis(
    tokens: NDArray[np.int64],
    scores: NDArray[np.float64],
    end: tuple[float, float],
    limit: int,
    names: Sequence[str],
) -> Hypothesis:
    """Return the hypothesis of these tokens, the end symbol among them.

    Args:
        scores: of each token by each scorer, unweighted, [scorers, tokens].
        end: score and rank.
        limit: greatest number of tokens without the end.
        names: of the scorers.
    """
    score, rank = end
    return Hypothesis(
        tokens=tokens[:-1].tolist(),
        score=score,
        normalised_score=rank,
        finished_by="dead_end" if score == -math.inf else "max_length" if len(tokens) > limit else "eos",
        scores=dict(zip(names, scores.sum(1).tolist(), strict=True)),
        confidences=np.exp(scores[0, :-1]).tolist(),
    )


def compiled_search(
    decoder: Decoder, limits: list[int], expansion: BeamExpansion, nbest: int, name: str
) -> list[list[Hypothesis]] | None:
    """Return the n-best lists of a whole search without scorers in C++ (`hypotheses.h`); None where there is none.

    `name` is the decoder's among the scorers.
    """
    if not isinstance(expansion, CompiledBeamExpansion) or not isinstance(decoder, CanSearch):
        return None
    if (found := decoder.search(limits, (expansion.eos, expansion.size, expansion.exponent), nbest)) is None:
        return None
    tokens, lengths, symbol_scores, *ends = (part.numpy() for part in found)
    nbest_lists = []
    for row, limit in enumerate(limits):
        columns = zip(lengths[row].tolist(), *(column[row].tolist() for column in ends), strict=True)
        hypotheses = [
            hypothesis(
                tokens[row, beam, :length], symbol_scores[row, beam, None, :length], (score, rank), limit, [name]
            )
            for beam, (length, score, rank) in enumerate(columns)
            if length
        ]
        nbest_lists.append([each for each in hypotheses if each.score > -math.inf] or hypotheses[:1])
    return nbest_lists
