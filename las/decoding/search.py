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

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from las.data.tokenizers import Tokenizer
from las.decoding import beam
from las.decoding.beam import Backtrace, BacktracedHypothesis, BeamExpansion, BeamState, BeamStep
from las.decoding.scorers import combined
from las.decoding.scorers.base import Constraint, Scorer, SearchStep, State, kept, reorder
from las.runtime.errors import ArgumentError


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


@runtime_checkable
class HasAttention(Protocol):
    """A decoder that shows where it looked: the weights [batch, beam, states] in one of its states."""

    def weights(self, state: State) -> Tensor: ...


@runtime_checkable
class CanDropUtterances(Protocol):
    """A decoder that can go on with some of its utterances, `rows` [kept] of them."""

    def keep(self, rows: Tensor) -> "Decoder": ...


STEPS_BETWEEN_LOOKS = 8
"""Steps of a GPU after which it is asked whether all is done."""

SHARE_LEFT = 0.75
"""Once no more of the utterances than this are left, the others are taken out of the tensors."""


@dataclass(frozen=True)
class Hypothesis:
    """One complete decoded sequence.

    `tokens` leaves the boundary symbols out; `score` is the natural log-probability of the tokens and the end symbol,
    with the weighted scores of other scorers where there are any; `normalised_score` is what it was ranked by;
    `finished_by` is `max_length` where the end symbol was forced, `dead_end` where nothing was possible any more.
    `scores` are those of each scorer by its name, without its weight (`las` is the decoder); `confidences` are the
    decoder's probabilities of each token.
    """

    tokens: list[int]
    score: float
    normalised_score: float
    finished_by: Literal["eos", "max_length", "dead_end"]
    scores: dict[str, float] = field(default_factory=dict)
    confidences: list[float] = field(default_factory=list)


class GreedySearch:
    """The most probable symbol at every step.

    The number of tokens is at most `max_length_ratio` times the number of encoded states (rounded up, at least 1), and
    at most `max_length` where that is given. Ties go to the lower token.
    """

    nbest = 1

    def __init__(self, max_length_ratio: float = 1.0, max_length: int | None = None) -> None:
        self.limits = _Limits(max_length_ratio, max_length)

    def __repr__(self) -> str:
        return f"GreedySearch(max_length_ratio={self.limits.ratio:g}, max_length={self.limits.most})"

    def bind(self, tokens: Tokenizer, has_ctc: bool) -> None:
        """There are no scorers that want to know."""

    @torch.no_grad()
    def __call__(self, decoder: Decoder, num_states: Int[Tensor, " batch"]) -> list[list[Hypothesis]]:
        """One hypothesis per utterance. `num_states` lies on the decoder's device."""
        limits, trail, rules = self.limits(num_states), Backtrace(num_states), BeamExpansion(decoder.eos, 1, 0.0)
        beams, state, full = beam.first(decoder.sos, num_states), decoder.start(), _column(limits, num_states)
        for step in range(max(limits) + 1):
            log_probs, state = decoder.step(beams.tokens, state)
            log_probs = combined.possible(log_probs)
            beams, parents = rules.extend(beams, log_probs, log_probs[:, :, decoder.eos], step >= full)
            gains = log_probs.gather(2, beams.tokens.unsqueeze(-1))
            trail.add(BeamStep(beams.tokens, parents, gains.movedim(2, 0)))
            if _is_time_to_look(step, num_states) and beams.finished.all():
                break
        return _hypotheses(trail, beams, limits, [combined.DECODER], nbest=1)


class BeamSearch:
    """Beam search, all beams of all utterances as one batch.

    Hypotheses are ranked by score / length ** `length_normalisation`; the length counts the end symbol, 0 ranks by the
    score itself. Finished hypotheses keep their seats and compete with the others. The beam grows from one to `size`
    seats as continuations allow, so that a beam as wide as the space searches all of it; a beam of one is
    `GreedySearch`. At most `nbest` hypotheses are returned per utterance; limits and ties are those of `GreedySearch`,
    ties between beams go to the one that ranked higher before.

    Scorers add to the score of every symbol, guards forbid symbols (`las.decoding.scorers`, configs/scorer):

        score = (1 - weight of ctc) log p(decoder) + sum over scorers of weight * score
    """

    def __init__(
        self,
        size: int = 8,
        length_normalisation: float = 1.0,
        nbest: int = 1,
        max_length_ratio: float = 1.0,
        max_length: int | None = None,
        *,
        ctc: Scorer | None = None,
        lm: Scorer | None = None,
        second_lm: Scorer | None = None,
        length_reward: Scorer | None = None,
        coverage: Scorer | None = None,
        end_threshold: Constraint | None = None,
        min_length: Constraint | None = None,
        repetition: Constraint | None = None,
    ) -> None:
        if size < 1:
            raise ArgumentError(f"size={size}: a beam needs at least one hypothesis, for example size=8.")
        if not 1 <= nbest <= size:
            raise ArgumentError(f"nbest={nbest} does not fit a beam of {size}: choose 1 to {size}.")
        if not 0 <= length_normalisation < math.inf:
            raise ArgumentError(
                f"length_normalisation={length_normalisation} must be 0 or more: 0 ranks by the log-probability,"
                " 1 by the log-probability per symbol."
            )
        self.size = size
        self.length_normalisation = length_normalisation
        self.nbest = nbest
        self.limits = _Limits(max_length_ratio, max_length)
        self.parts = combined.parts(
            dict(ctc=ctc, lm=lm, second_lm=second_lm, length_reward=length_reward, coverage=coverage),
            dict(end_threshold=end_threshold, min_length=min_length, repetition=repetition),
        )

    def __repr__(self) -> str:
        scorers = [f"{name}={scorer.weight:g}" for name, scorer in self.parts.scorers.items()]
        options = f"size={self.size}, length_normalisation={self.length_normalisation:g}, nbest={self.nbest}"
        return f"BeamSearch({', '.join([options, *scorers, *self.parts.guards])})"

    def bind(self, tokens: Tokenizer, has_ctc: bool) -> None:
        """Tell scorers what the recogniser writes; raises ConfigError or DataError where that does not fit."""
        for part in (*self.parts.scorers.values(), *self.parts.guards.values()):
            part.bind(tokens, has_ctc)

    def reweighted(self, weights: Mapping[str, float], length_normalisation: float) -> "BeamSearch":
        """The same search with other weights for some of its scorers, which stay as they were bound."""
        scorers = {name: copy.copy(scorer) for name, scorer in self.parts.scorers.items()}
        for name, weight in weights.items():
            scorers[name].weight = weight
        other = copy.copy(self)
        other.length_normalisation, other.parts = length_normalisation, combined.parts(scorers, self.parts.guards)
        return other

    @torch.no_grad()
    def __call__(self, decoder: Decoder, num_states: Int[Tensor, " batch"]) -> list[list[Hypothesis]]:
        """The `nbest` best hypotheses per utterance, best first. `num_states` lies on the decoder's device."""
        limits, trail = self.limits(num_states), Backtrace(num_states)
        judges, full = self.parts.on(decoder, num_states), _column(limits, num_states)
        rules = BeamExpansion(decoder.eos, self.size, self.length_normalisation)
        beams, state = beam.first(decoder.sos, num_states), (decoder.start(), judges.start())
        for step in range(max(limits) + 1):
            log_probs, spelled = decoder.step(beams.tokens, state[0])
            judged, scored = judges.judge(
                SearchStep(combined.possible(log_probs), _weights(decoder, spelled)), state[1]
            )
            beams, parents = rules.extend(beams, judged.allowed, judged.gains[:, :, decoder.eos], step >= full)
            trail.add(BeamStep(beams.tokens, parents, judged.of(parents, beams.tokens)))
            state = reorder((spelled, scored), parents)
            if _is_time_to_look(step, num_states):
                settled = self._settled(rules, beams, full, judges.room(state[1], full + 1 - beams.lengths))
                left = (~settled).nonzero().squeeze(1)
                if not len(left):
                    break
                if isinstance(decoder, CanDropUtterances) and len(left) <= SHARE_LEFT * len(settled):
                    trail.end(settled.nonzero().squeeze(1), *_ends(beams, self.nbest))
                    trail.keep(left)
                    decoder, judges, full = decoder.keep(left), judges.keep(left), full[left]
                    beams, state = kept((beams, state), left)
            state = (state[0], judges.advance(state[1], beams.tokens))
        return _hypotheses(trail, beams, limits, self.parts.names, self.nbest)

    def _settled(
        self, rules: BeamExpansion, beams: BeamState, limits: Tensor, room: Tensor | float
    ) -> Bool[Tensor, " batch"]:
        """Whether more steps cannot change an utterance's n-best list: no beam is open, or the best are finished and
        ahead of the highest rank any open beam can reach: with all that scorers can still add, at its greatest
        possible length, or at the least if it is positive."""
        done = beams.finished.all(dim=1)
        if beams.finished.shape[1] < self.nbest:
            return done
        most = beams.scores + room
        lengths = torch.where(most > 0, beams.lengths + 1, limits + 1)
        ceiling = rules.ranks(most, lengths).masked_fill(beams.finished, -math.inf).amax(dim=1)
        ahead = beams.finished[:, : self.nbest].all(dim=1) & (beams.ranks[:, self.nbest - 1] > ceiling)
        return done | ahead


class _Limits:
    """How many tokens each utterance may have."""

    def __init__(self, max_length_ratio: float, max_length: int | None) -> None:
        if not 0 < max_length_ratio < math.inf:
            raise ArgumentError(f"max_length_ratio={max_length_ratio} must be above 0, for example 1.0.")
        if max_length is not None and max_length < 1:
            raise ArgumentError(f"max_length={max_length} must be at least 1, or null for no limit of its own.")
        self.ratio = max_length_ratio
        self.most = math.inf if max_length is None else max_length

    def __call__(self, num_states: Tensor) -> list[int]:
        # Rounded before ceil: 0.07 * 100 means 7, in binary it is a little more.
        lengths = [math.ceil(round(self.ratio * count, 6)) for count in num_states.tolist()]
        return [int(max(1, min(length, self.most))) for length in lengths]


def _column(limits: list[int], num_states: Tensor) -> Int[Tensor, "batch 1"]:
    return torch.tensor(limits, device=num_states.device).unsqueeze(1)


def _is_time_to_look(step: int, num_states: Tensor) -> bool:
    """Whether to ask if all is done: on a GPU the host waits for the answer, and a few steps too many cost less."""
    return num_states.device.type == "cpu" or step % STEPS_BETWEEN_LOOKS == 0


def _weights(decoder: Decoder, state: State) -> Tensor | None:
    return decoder.weights(state) if isinstance(decoder, HasAttention) else None


def _ends(beams: BeamState, nbest: int) -> tuple[Tensor, Tensor, Tensor]:
    """What `Backtrace.end` asks for."""
    return beams.scores[:, :nbest], beams.ranks[:, :nbest], beams.lengths[:, :nbest]


def _hypotheses(
    trail: Backtrace, beams: BeamState, limits: list[int], names: list[str], nbest: int
) -> list[list[Hypothesis]]:
    """Up to `nbest` per utterance; those that are still there end now."""
    trail.end(torch.arange(len(beams.tokens), device=beams.tokens.device), *_ends(beams, nbest))
    return [
        [
            Hypothesis(
                tokens=path.tokens[:-1],
                score=path.score,
                normalised_score=path.rank,
                finished_by=_finished_by(path, limit),
                scores=dict(zip(names, path.gains.sum(1).tolist(), strict=True)),
                confidences=np.exp(path.gains[0, :-1]).tolist(),
            )
            for path in paths
        ]
        for paths, limit in zip(trail.paths(), limits, strict=True)
    ]


def _finished_by(path: BacktracedHypothesis, limit: int) -> Literal["eos", "max_length", "dead_end"]:
    if path.score == -math.inf:
        return "dead_end"
    return "max_length" if len(path.tokens) > limit else "eos"
