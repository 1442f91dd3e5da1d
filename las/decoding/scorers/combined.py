"""All scorers and guards of a search on one batch of utterances, as one."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from las.decoding.scorers.base import Guard, Guarding, Scorer, Scoring, State, Step, score_type
from las.runtime.errors import ConfigError

DECODER = "las"
"""The decoder's own name among the scorers."""


class Judged(NamedTuple):
    """What a hypothesis gains by each next symbol: together and weighted, the same with what guards forbid impossible,
    and scorer by scorer without weights."""

    gains: Float[Tensor, "batch beam vocab"]
    allowed: Float[Tensor, "batch beam vocab"]
    by_scorer: list[Tensor]

    def of(
        self, parents: Int[Tensor, "batch seats"], tokens: Int[Tensor, "batch seats"]
    ) -> Float[Tensor, "scorers batch seats"]:
        """What each scorer gave for these symbols after these beams."""
        chosen = parents * self.gains.shape[-1] + tokens
        found = (
            # One number for all symbols, or one for each.
            scores.squeeze(-1).gather(1, parents) if scores.shape[-1] == 1 else scores.flatten(1).gather(1, chosen)
            for scores in (scores.expand(-1, self.gains.shape[1], -1) for scores in self.by_scorer)
        )
        return torch.stack(list(found))


class Parts(NamedTuple):
    """What the config made, by name."""

    scorers: dict[str, Scorer]
    guards: dict[str, Guard]

    @property
    def names(self) -> list[str]:
        """The decoder first."""
        return [DECODER, *self.scorers]

    def on(self, decoder: Any, num_states: Int[Tensor, " batch"]) -> "Panel":
        """All of them on a batch."""
        scorings = [scorer.on(decoder, num_states) for scorer in self.scorers.values()]
        guardings = [guard.on(decoder, num_states) for guard in self.guards.values()]
        weights = [scorer.weight for scorer in self.scorers.values()]
        return Panel(1.0 - sum(scorer.share for scorer in self.scorers.values()), weights, scorings, guardings)


def parts(scorers: Mapping[str, Scorer | None], guards: Mapping[str, Guard | None]) -> Parts:
    """Those that are there. Raises ConfigError where nothing would be left of the decoder's own weight."""
    present = {name: scorer for name, scorer in scorers.items() if scorer is not None and scorer.weight}
    if (taken := sum(scorer.share for scorer in present.values())) >= 1:
        raise ConfigError(f"search: scorers take {taken:g} of the speller's weight of 1, which leaves nothing of it")
    return Parts(present, {name: guard for name, guard in guards.items() if guard is not None})


class Panel:
    """`weight` is that of the decoder, `weights` are those of the scorings; a state is a tuple of theirs."""

    def __init__(self, weight: float, weights: list[float], scorings: list[Scoring], guardings: list[Guarding]) -> None:
        self.weight = weight
        self.weights = weights
        self.scorings = scorings
        self.guardings = guardings

    def keep(self, rows: Int[Tensor, " kept"]) -> "Panel":
        """The same of some of the utterances."""
        scorings = [scoring.keep(rows) for scoring in self.scorings]
        return Panel(self.weight, self.weights, scorings, [guarding.keep(rows) for guarding in self.guardings])

    def start(self) -> State:
        """Of one beam per utterance."""
        return tuple(each.start() for each in (*self.scorings, *self.guardings))

    def judge(self, step: Step, state: State) -> tuple[Judged, State]:
        """What each next symbol is worth; impossible ones -inf, whatever a scorer said."""
        gains, by_scorer, seen = step.log_probs, [step.log_probs], []
        if self.scorings:
            gains = self.weight * gains.to(score_type(gains.device))
        for weight, scoring, part in zip(self.weights, self.scorings, state, strict=False):
            scores, after = scoring.score(part, step)
            gains = gains + weight * scores.to(gains.dtype)
            by_scorer.append(scores)
            seen.append(after)
        guarded = state[len(seen) :]
        if self.scorings:
            gains = possible(gains)
        return Judged(gains, self._allowed(gains, step, guarded), by_scorer), (*seen, *guarded)

    def _allowed(self, gains: Tensor, step: Step, state: State) -> Tensor:
        """Forbidden symbols are impossible, unless nothing else is possible."""
        if not self.guardings:
            return gains
        allowed = gains
        for guarding, part in zip(self.guardings, state, strict=True):
            allowed = allowed.masked_fill(guarding.forbidden(part, step), -math.inf)
        return torch.where(allowed.amax(-1, keepdim=True) > -math.inf, allowed, gains)

    def advance(self, state: State, tokens: Int[Tensor, "batch beam"]) -> State:
        """After the symbols that were chosen."""
        everyone = (*self.scorings, *self.guardings)
        return tuple(each.advance(part, tokens) for each, part in zip(everyone, state, strict=True))

    def room(self, state: State, left: Int[Tensor, "batch beam"]) -> Tensor | float:
        """The most that all scorers can still add, weighted; the decoder adds nothing."""
        rooms = (
            weight * each.room(part, left)
            for weight, each, part in zip(self.weights, self.scorings, state, strict=False)
        )
        return sum(rooms, 0.0)


def possible(log_probs: Tensor) -> Tensor:
    """Values that are not log-probabilities (NaN, +inf) count as impossible."""
    return torch.where(log_probs < math.inf, log_probs, -math.inf)  # NaN is not below infinity either
