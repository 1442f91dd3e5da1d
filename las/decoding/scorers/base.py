"""The contract of scorers and guards: what runs beside the decoder inside one search.

A `Scorer` is made from the config. `on` gives its `Scoring` of one batch of utterances, which sees every step of the
search: `score` gives every symbol that may come next a number, `advance` is told what was chosen. A `Guard` likewise,
but it only says which symbols may not come next. State is a value that the search reorders with its beams, as it does
with the decoder's; what all beams of an utterance share belongs to the `Scoring` itself.
"""

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from las.data.tokenizers import Tokens
from las.runtime.errors import ArgumentError

State = Any  # nested (named) tuples of tensors, each [batch, beam, ...]


class Step(NamedTuple):
    """What the decoder says of the next symbol.

    `log_probs` are natural, impossible symbols -inf; `weights` is its attention, None if it has none to show.
    """

    log_probs: Float[Tensor, "batch beam vocab"]
    weights: Float[Tensor, "batch beam states"] | None


class Companion:
    """What scorings and guardings of a batch have in common; one without memory needs none of these."""

    def start(self) -> State:
        """The state before the first symbol, one beam per utterance."""
        return ()

    def advance(self, state: State, tokens: Int[Tensor, "batch beam"]) -> State:
        """The state after one more symbol."""
        return state

    def keep(self, rows: Int[Tensor, " kept"]) -> "Companion":
        """The same of some of the utterances."""
        return self


class Scoring(Companion):
    """A scorer on a batch of utterances."""

    def score(self, state: State, step: Step) -> tuple[Float[Tensor, "batch beam symbols"], State]:
        """A number for every next symbol, [batch, beam, vocab] or [batch, beam, 1], and the state that has seen it."""
        raise TypeError(f"{type(self).__name__} must define score")

    def room(self, state: State, left: Int[Tensor, "batch beam"]) -> Tensor | float:
        """The most that it can add to each hypothesis by `left` more symbols (end included): 0 for probabilities."""
        return 0.0

    def keep(self, rows: Int[Tensor, " kept"]) -> "Scoring":
        return self


class Guarding(Companion):
    """A guard on a batch of utterances."""

    def forbidden(self, state: State, step: Step) -> Bool[Tensor, "batch beam vocab"]:
        """The symbols that may not come next. Where nothing else is possible, the search allows them again."""
        raise TypeError(f"{type(self).__name__} must define forbidden")

    def keep(self, rows: Int[Tensor, " kept"]) -> "Guarding":
        return self


class Part:
    """What the config makes, before there is any audio."""

    def bind(self, tokens: Tokens, has_ctc: bool) -> None:
        """Be told what the recogniser writes, and whether it was trained with CTC; raises ConfigError or DataError if
        that does not fit."""


class Scorer(Part):
    """A number per symbol that is multiplied by `weight` and added; a weight of 0 leaves it out."""

    def __init__(self, weight: float) -> None:
        self.weight = weight

    @property
    def share(self) -> float:
        """How much of the decoder's own weight of 1 it takes over."""
        return 0.0

    def on(self, decoder: Any, num_states: Int[Tensor, " batch"]) -> Scoring:
        """Its scoring of the utterances of a decoder."""
        raise TypeError(f"{type(self).__name__} must define on")


class Guard(Part):
    """A rule that forbids symbols."""

    def on(self, decoder: Any, num_states: Int[Tensor, " batch"]) -> Guarding:
        """Its guarding of the utterances of a decoder."""
        raise TypeError(f"{type(self).__name__} must define on")


def reorder(state: State, parents: Int[Tensor, "batch seats"]) -> State:
    """The state whose beam s of utterance b is the old beam `parents[b, s]`; tensors are [batch, beam, ...]."""
    rows = torch.arange(parents.shape[0], device=parents.device).unsqueeze(1)

    def moved(part: Tensor) -> Tensor:
        chosen = (rows * part.shape[1] + parents).flatten()
        return part.flatten(0, 1).index_select(0, chosen).unflatten(0, parents.shape)

    return mapped(state, moved)


def kept(state: State, rows: Int[Tensor, " kept"]) -> State:
    """The state of some of the utterances."""
    return mapped(state, lambda part: part[rows])


def mapped(state: State, change: Any) -> State:
    """The state with every tensor changed."""
    if isinstance(state, Tensor):
        return change(state)
    if isinstance(state, tuple):
        parts = [mapped(part, change) for part in state]
        return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)
    raise TypeError(f"a decoder state is made of tensors in (named) tuples, but contains a {type(state).__name__}")


def score_type(device: torch.device) -> torch.dtype:
    """What scores are summed in."""
    return torch.float32 if device.type == "mps" else torch.float64  # Metal has no float64


def check_weight(weight: float, below: float = math.inf) -> None:
    """Raise ArgumentError for a weight that no scorer of probabilities can have."""
    if not 0 <= weight < below:
        limit = "" if below == math.inf else f" and below {below:g}"
        raise ArgumentError(f"weight={weight} must be 0 or more{limit}, for example 0.3")
