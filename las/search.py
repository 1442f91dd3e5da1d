"""Greedy and beam search over anything that can start and step.

A decoder gives the log-probabilities of the next symbol; a search gives, for every utterance of the batch, its best
complete hypotheses. Three promises hold for both searches:

- every hypothesis is complete: its score contains the end symbol, so it equals the teacher-forced log-probability of
  its tokens, also when the length limit left no other choice;
- the result of an utterance does not depend on the other utterances of its batch;
- no utterance is left without a hypothesis, whatever the decoder returns.

Scores are summed in float64: sums of float32 log-probabilities are then exact enough that two ways of adding the same
numbers agree, and near ties are decided by the model instead of by rounding.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from las.errors import ConfigError

State = Any  # nested (named) tuples of tensors, each [batch, beam, ...]


@runtime_checkable
class Decoder(Protocol):
    """What a search needs: `model.Decoder`, or a toy in a test.

    `sos` is fed first, `eos` ends a sequence; they may be the same symbol. `start()` is the state before the first
    symbol, one beam per utterance (tensors [batch, 1, ...]). `step(tokens, state)` takes the symbols chosen last,
    [batch, beam], and gives log-probabilities [batch, beam, vocab], none above 0, and the next state. A state is a
    value: nested tuples or named tuples of tensors [batch, beam, ...].
    """

    sos: int
    eos: int

    def start(self) -> State: ...

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]: ...


@dataclass(frozen=True)
class Hypothesis:
    """One complete decoded sequence.

    `tokens` leaves the boundary symbols out; `score` is the natural log-probability of the tokens and the end symbol;
    `normalised_score` is what it was ranked by; `finished_by` is `max_length` where the end symbol was forced.
    """

    tokens: list[int]
    score: float
    normalised_score: float
    finished_by: Literal["eos", "max_length"]


class Beams(NamedTuple):
    """The hypotheses under construction. `lengths` counts the end symbol.

    A score of -inf marks a hypothesis that is impossible or does not exist (there were fewer continuations than
    seats). Nothing can save it, so it counts as finished, its last symbol as its end.
    """

    tokens: Int[Tensor, "batch beam steps"]
    scores: Float[Tensor, "batch beam"]
    ranks: Float[Tensor, "batch beam"]
    lengths: Int[Tensor, "batch beam"]
    finished: Bool[Tensor, "batch beam"]


class Continuations(NamedTuple):
    """The best next symbols of each beam, best first, with the score of the hypothesis each of them makes."""

    tokens: Int[Tensor, "batch beam count"]
    scores: Float[Tensor, "batch beam count"]


class Greedy:
    """The most probable symbol at every step.

    The number of tokens is at most `max_length_ratio` times the number of encoded states (rounded up, at least 1), and
    at most `max_length` where that is given. Ties go to the lower token.
    """

    def __init__(self, max_length_ratio: float = 1.0, max_length: int | None = None) -> None:
        self.limits = _Limits(max_length_ratio, max_length)

    @torch.no_grad()
    def __call__(self, decoder: Decoder, num_states: Int[Tensor, " batch"]) -> list[list[Hypothesis]]:
        """One hypothesis per utterance. `num_states` lies on the decoder's device."""
        limits = self.limits(num_states)
        beams, state = _first(decoder, num_states), decoder.start()
        for step in range(int(limits.max()) + 1):
            log_probs, state = decoder.step(beams.tokens[:, :, -1], state)
            best = _continuations(beams, log_probs, step >= limits, decoder.eos, count=1)
            scores, lengths = best.scores.squeeze(-1), beams.lengths + (~beams.finished).long()
            beams = _extended(beams.tokens, best.tokens.squeeze(-1), scores, scores, lengths, decoder.eos)
            if beams.finished.all():
                break
        return _hypotheses(beams, limits, nbest=1)


class Beam:
    """Beam search, all beams of all utterances as one batch.

    Hypotheses are ranked by score / length ** `length_normalisation`; the length counts the end symbol, 0 ranks by the
    log-probability itself. Finished hypotheses keep their seats and compete with the others. The beam grows from one
    to `size` seats as continuations allow, so that a beam as wide as the space searches all of it; a beam of one is
    `Greedy`. At most `nbest` hypotheses are returned per utterance; limits and ties are those of `Greedy`, ties between
    beams go to the one that ranked higher before.
    """

    def __init__(
        self,
        size: int = 8,
        length_normalisation: float = 1.0,
        nbest: int = 1,
        max_length_ratio: float = 1.0,
        max_length: int | None = None,
    ) -> None:
        if size < 1:
            raise ConfigError(f"search.size={size}: a beam needs at least one hypothesis, for example search.size=8.")
        if not 1 <= nbest <= size:
            raise ConfigError(f"search.nbest={nbest} does not fit a beam of {size}: choose 1 to {size}.")
        if not 0 <= length_normalisation < math.inf:
            raise ConfigError(
                f"search.length_normalisation={length_normalisation} must be 0 or more: 0 ranks by the log-probability,"
                " 1 by the log-probability per symbol."
            )
        self.size = size
        self.length_normalisation = length_normalisation
        self.nbest = nbest
        self.limits = _Limits(max_length_ratio, max_length)

    @torch.no_grad()
    def __call__(self, decoder: Decoder, num_states: Int[Tensor, " batch"]) -> list[list[Hypothesis]]:
        """The `nbest` best hypotheses per utterance, best first. `num_states` lies on the decoder's device."""
        limits = self.limits(num_states)
        beams, state = _first(decoder, num_states), decoder.start()
        for step in range(int(limits.max()) + 1):
            log_probs, state = decoder.step(beams.tokens[:, :, -1], state)
            # No more than `size` continuations of one beam can be among the best of all.
            count = min(self.size, log_probs.shape[-1])
            best = _continuations(beams, log_probs, step >= limits, decoder.eos, count)
            beams, parents = self._select(beams, best, decoder.eos)
            if self._settled(beams, limits).all():
                break
            state = reorder(state, parents)
        return _hypotheses(beams, limits, self.nbest)

    def _normalised(self, scores: Tensor, lengths: Tensor) -> Tensor:
        return scores / lengths.to(scores.dtype) ** self.length_normalisation

    def _select(self, beams: Beams, best: Continuations, eos: int) -> tuple[Beams, Tensor]:
        """The best continuations of all and the beam each comes from, [batch, seats]."""
        lengths = beams.lengths + (~beams.finished).long()
        ranks = self._normalised(best.scores, lengths.unsqueeze(-1))
        ranks, chosen = _best(ranks.flatten(1), min(self.size, ranks[0].numel()))
        parents = chosen // best.tokens.shape[-1]
        tokens, scores = best.tokens.flatten(1).gather(1, chosen), best.scores.flatten(1).gather(1, chosen)
        history, lengths = reorder((beams.tokens, lengths), parents)
        return _extended(history, tokens, scores, ranks, lengths, eos), parents

    def _settled(self, beams: Beams, limits: Tensor) -> Bool[Tensor, " batch"]:
        """Whether more steps cannot change an utterance's n-best list: no beam is open, or the best are finished and
        ahead of the highest rank any open beam can reach, its score today at its greatest possible length."""
        done = beams.finished.all(dim=1)
        if beams.finished.shape[1] < self.nbest:
            return done
        reachable = self._normalised(beams.scores, limits + 1)
        ceiling = reachable.masked_fill(beams.finished, -math.inf).amax(dim=1)
        ahead = beams.finished[:, : self.nbest].all(dim=1) & (beams.ranks[:, self.nbest - 1] > ceiling)
        return done | ahead


def reorder(state: State, parents: Int[Tensor, "batch seats"]) -> State:
    """The state whose beam s of utterance b is the old beam `parents[b, s]`; tensors are [batch, beam, ...]."""
    if isinstance(state, Tensor):
        rows = torch.arange(parents.shape[0], device=parents.device).unsqueeze(1)
        return state[rows, parents]
    if isinstance(state, tuple):
        parts = [reorder(part, parents) for part in state]
        return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)
    raise TypeError(f"a decoder state is made of tensors in (named) tuples, but contains a {type(state).__name__}")


class _Limits:
    """How many tokens each utterance may have, [batch, 1]."""

    def __init__(self, max_length_ratio: float, max_length: int | None) -> None:
        if not 0 < max_length_ratio < math.inf:
            raise ConfigError(f"search.max_length_ratio={max_length_ratio} must be above 0, for example 1.0.")
        if max_length is not None and max_length < 1:
            raise ConfigError(f"search.max_length={max_length} must be at least 1, or null for no limit of its own.")
        self.ratio = max_length_ratio
        self.most = math.inf if max_length is None else max_length

    def __call__(self, num_states: Tensor) -> Int[Tensor, "batch 1"]:
        # Rounded before ceil: 0.07 * 100 means 7, in binary it is a little more.
        lengths = [math.ceil(round(self.ratio * count, 6)) for count in num_states.tolist()]
        limits = [[int(max(1, min(length, self.most)))] for length in lengths]
        return torch.tensor(limits, device=num_states.device)


def _first(decoder: Decoder, num_states: Tensor) -> Beams:
    """One beam per utterance that holds the start symbol only."""
    shape, device = (len(num_states), 1), num_states.device
    scores = torch.zeros(shape, dtype=_score_type(device), device=device)
    return Beams(
        tokens=torch.full((*shape, 1), decoder.sos, device=device),
        scores=scores,
        ranks=scores,
        lengths=torch.zeros(shape, dtype=torch.long, device=device),
        finished=torch.zeros(shape, dtype=torch.bool, device=device),
    )


def _score_type(device: torch.device) -> torch.dtype:
    return torch.float32 if device.type == "mps" else torch.float64  # Metal has no float64


def _continuations(beams: Beams, log_probs: Tensor, full: Tensor, eos: int, count: int) -> Continuations:
    """The best next symbols of every beam; `full` [batch, 1] says where the length limit is reached.

    A finished hypothesis continues with the end symbol only, at no cost; a full one with the end symbol only, at its
    cost. Values that are not log-probabilities (NaN, +inf) count as impossible.
    """
    log_probs = torch.where(log_probs < math.inf, log_probs, -math.inf)  # NaN is not below infinity either
    values, tokens = (best.view(*log_probs.shape[:2], count) for best in _best(log_probs.flatten(0, 1), count))
    ending = log_probs[:, :, eos].masked_fill(beams.finished, 0.0).unsqueeze(-1)
    closed = (beams.finished | full).unsqueeze(-1)
    first = torch.arange(count, device=tokens.device) == 0
    gains = torch.where(closed, ending.masked_fill(~first, -math.inf), values)
    return Continuations(tokens.masked_fill(closed, eos), beams.scores.unsqueeze(-1) + gains.to(beams.scores.dtype))


def _extended(history: Tensor, tokens: Tensor, scores: Tensor, ranks: Tensor, lengths: Tensor, eos: int) -> Beams:
    finished = (tokens == eos) | (scores == -math.inf)
    return Beams(torch.cat([history, tokens.unsqueeze(-1)], dim=-1), scores, ranks, lengths, finished)


def _best(values: Float[Tensor, "rows candidates"], count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest values of each row and their places, largest first, equal values in order of place.

    `torch.topk` promises neither an order among equals nor which of them it takes, and a stable sort of all candidates
    is slow: its choice stands where it had none, and else equals are taken from the left.
    """
    found = values.topk(count, dim=1)
    threshold, places = found.values[:, -1:], found.indices
    if (values >= threshold).sum() > places.numel():
        above, equal = values > threshold, values == threshold
        room = count - above.sum(dim=1, keepdim=True)
        places = (above | (equal & (equal.cumsum(dim=1) <= room))).nonzero()[:, 1].view(places.shape)
    places = places.sort(dim=1).values
    ordered, order = values.gather(1, places).sort(dim=1, descending=True, stable=True)
    return ordered, places.gather(1, order)


def _hypotheses(beams: Beams, limits: Tensor, nbest: int) -> list[list[Hypothesis]]:
    """Up to `nbest` hypotheses per utterance: impossible ones (log-probability -inf) only where all are."""
    results = []
    columns = (beams.tokens[:, :, 1:], beams.scores, beams.ranks, beams.lengths, limits.squeeze(1))
    for tokens, scores, ranks, lengths, limit in zip(*(column.tolist() for column in columns), strict=True):
        possible = [seat for seat, score in enumerate(scores[:nbest]) if score > -math.inf]
        results.append(
            [
                Hypothesis(
                    tokens=tokens[seat][: lengths[seat] - 1],
                    score=scores[seat],
                    normalised_score=ranks[seat],
                    finished_by="max_length" if lengths[seat] > limit else "eos",
                )
                for seat in possible or [0]
            ]
        )
    return results
