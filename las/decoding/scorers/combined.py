"""All scorers and constraints of a search on one batch of utterances, behind one call."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from las.decoding.beam_expansion import possible
from las.decoding.scorers.base import (
    BatchConstraint,
    BatchScorer,
    Constraint,
    Scorer,
    SearchStep,
    State,
)
from las.nn.kernels.cpp.tensors import score_type
from las.runtime.errors import ArgumentError, ConfigError, suggest

DECODER = "las"
"""The decoder's own name among the scorers."""

PLACES = (
    *("ctc", "lm", "second_lm", "internal_lm", "word_lm", "hot_words", "length_reward", "coverage"),
    *("end_threshold", "min_length", "repetition", "lexicon"),
)
"""Names of scorers and constraints in the package's options of `search`. Scores are added in this order, which their
rounding depends on; those of other names follow as they are given."""


class CombinedScores(NamedTuple):
    """Scores of every next symbol of every beam.

    `total` is the weighted sum, -inf for symbols that a strict constraint forbids; `allowed` equals it but for symbols
    that the other constraints forbid, which are -inf;
    `by_scorer` are the scores of each scorer without its weight, the decoder's first.
    """

    total: Float[Tensor, "batch beam vocab"]
    allowed: Float[Tensor, "batch beam vocab"]
    by_scorer: list[Tensor]

    def of(
        self, parents: Int[Tensor, "batch new_beam"], tokens: Int[Tensor, "batch new_beam"]
    ) -> Float[Tensor, "scorers batch new_beam"]:
        """Return the unweighted scores of these symbols after these beams."""
        chosen = parents * self.total.shape[-1] + tokens
        selected = (
            # A scorer gives one number for all symbols, or one for each.
            scores.squeeze(-1).gather(1, parents) if scores.shape[-1] == 1 else scores.flatten(1).gather(1, chosen)
            for scores in (scores.expand(-1, self.total.shape[1], -1) for scores in self.by_scorer)
        )
        return torch.stack(list(selected))


class ScorerSet(NamedTuple):
    """The scorers and constraints that the config made, by name."""

    scorers: dict[str, Scorer]
    constraints: dict[str, Constraint]

    @property
    def names(self) -> list[str]:
        return [DECODER, *self.scorers]

    def on(self, decoder: Any, num_states: Int[Tensor, " batch"]) -> "CombinedScorer":
        """All scorers and constraints on a decoder's utterances, which have `num_states` encoded states."""
        return CombinedScorer(
            1.0 - sum(scorer.share for scorer in self.scorers.values()),
            [scorer.weight for scorer in self.scorers.values()],
            [scorer.on(decoder, num_states) for scorer in self.scorers.values()],
            [constraint.on(decoder, num_states) for constraint in self.constraints.values()],
        )


def scorer_set(components: Mapping[str, Scorer | Constraint | None]) -> ScorerSet:
    """Sort scorers and constraints by name into a set; None and scorers of weight 0 are left out.

    Raises ArgumentError for a value that is neither, ConfigError if the scorers replace the decoder's whole weight.
    """
    for name, component in components.items():
        if name == DECODER:
            raise ArgumentError(f"{name}: this is the name of the speller's own score, choose another one")
        if not isinstance(component, Scorer | Constraint) and (component is not None or name not in PLACES):
            raise ArgumentError(
                f"{name}={component}: there is no such key, and this is no scorer or constraint.{suggest(name, PLACES)}"
            )
    by_place = sorted(components, key=lambda name: PLACES.index(name) if name in PLACES else len(PLACES))
    ordered = {name: components[name] for name in by_place}
    scorers = {name: each for name, each in ordered.items() if isinstance(each, Scorer) and each.weight}
    if (total_share := sum(scorer.share for scorer in scorers.values())) >= 1:
        raise ConfigError(
            f"search: scorers take {total_share:g} of the speller's weight of 1, which leaves nothing for the speller"
        )
    return ScorerSet(scorers, {name: each for name, each in ordered.items() if isinstance(each, Constraint)})


class CombinedScorer(NamedTuple):
    """The decoder, all scorers and all constraints on a batch.

    `decoder_weight` is the decoder's weight, `weights` are those of the scorers. A state is the tuple of the states of
    the scorers, then of the constraints.
    """

    decoder_weight: float
    weights: list[float]
    scorers: list[BatchScorer]
    constraints: list[BatchConstraint]

    @property
    def on_host(self) -> bool:
        return any(component.on_host for component in (*self.scorers, *self.constraints))

    def select_utterances(self, rows: Int[Tensor, " selected"]) -> "CombinedScorer":
        return self._replace(
            scorers=[scorer.select_utterances(rows) for scorer in self.scorers],
            constraints=[constraint.select_utterances(rows) for constraint in self.constraints],
        )

    def start(self) -> State:
        return tuple(component.start() for component in (*self.scorers, *self.constraints))

    def score(self, state: State, step: SearchStep) -> tuple[CombinedScores, State]:
        """Return the scores of every next symbol, and the new state. The total of an impossible symbol is -inf."""
        total, by_scorer, new_states = step.log_probs, [step.log_probs], []
        if self.scorers:
            total = self.decoder_weight * total.to(score_type(total.device))
        for weight, scorer, scorer_state in zip(self.weights, self.scorers, state, strict=False):
            scores, new_state = scorer.score(scorer_state, step)
            total = total + weight * scores.to(total.dtype)
            by_scorer.append(scores)
            new_states.append(new_state)
        if self.scorers:
            total = possible(total)
        constraint_states = state[len(self.scorers) :]
        total = self._masked(total, step, constraint_states, strict=True)
        allowed = self._masked(total, step, constraint_states, strict=False)
        if allowed is not total:
            allowed = torch.where(allowed.amax(-1, keepdim=True) > -math.inf, allowed, total)
        return CombinedScores(total, allowed, by_scorer), (*new_states, *constraint_states)

    def _masked(self, scores: Tensor, step: SearchStep, states: State, strict: bool) -> Tensor:
        """Return the scores with -inf for the symbols that the constraints forbid, the strict ones or the others."""
        for constraint, state in zip(self.constraints, states, strict=True):
            if constraint.is_strict == strict:
                scores = scores.masked_fill(constraint.forbidden(state, step), -math.inf)
        return scores

    def advance(self, state: State, tokens: Int[Tensor, "batch beam"]) -> State:
        components = (*self.scorers, *self.constraints)
        return tuple(component.advance(part, tokens) for component, part in zip(components, state, strict=True))

    def score_upper_bound(self, state: State, steps_left: Int[Tensor, "batch beam"]) -> Tensor | float:
        """Return an upper bound of what all scorers can still add, weighted; that of the decoder is 0."""
        bounds = (
            weight * scorer.score_upper_bound(part, steps_left)
            for weight, scorer, part in zip(self.weights, self.scorers, state, strict=False)
        )
        return sum(bounds, 0.0)
