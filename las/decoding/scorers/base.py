"""The interface of scorers and constraints, which take part in a beam search besides the decoder.

A `Scorer` is built from the config. Its method `on` returns a `BatchScorer` for one batch of utterances, which takes
part in every step of the search: `score` gives scores of all possible next symbols, `advance` takes the chosen ones. A
`Constraint` works alike, but it only forbids symbols. The state is a value that the search reorders with its beams,
like the decoder's; data that all beams of an utterance share belong to the `BatchScorer` itself.
"""

import math
from typing import Any, NamedTuple, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from las.data.tokenizers import Tokenizer
from las.nn.kernels.graphs.parts import Replayable
from las.nn.nested import mapped
from las.runtime.errors import ArgumentError, ConfigError

Bound = TypeVar("Bound")
Component = TypeVar("Component", bound="BatchComponent")
State = Any  # nested (named) tuples of tensors, each [batch, beam, ...]


class SearchStep(NamedTuple):
    """The decoder's distribution of the next symbol.

    `log_probs` are natural, impossible symbols -inf; `weights` is its attention, None for a decoder without.
    """

    log_probs: Float[Tensor, "batch beam vocab"]
    weights: Float[Tensor, "batch beam states"] | None


class BatchComponent(Replayable):
    """Base of batch scorers and batch constraints; one without state overrides none of these methods.

    What a step reads are its attributes and arguments, so that a captured step serves other batches (`Replayable`).
    """

    on_host = False
    """True if a step computes on the host, so that no GPU can replay it."""

    def start(self) -> State:
        """Return the state before the first symbol, one beam per utterance."""
        return ()

    def advance(self, state: State, tokens: Int[Tensor, "batch beam"]) -> State:
        """Return the state after one more symbol."""
        return state

    def select_utterances(self: Component, rows: Int[Tensor, " selected"]) -> Component:
        """Return a copy of this component for a subset of its utterances, given by their indices."""
        return self


class BatchScorer(BatchComponent):
    """A scorer on a batch of utterances."""

    def score(self, state: State, step: SearchStep) -> tuple[Float[Tensor, "batch beam symbols"], State]:
        """Return a score for every next symbol, [batch, beam, vocab] or one for all, [batch, beam, 1], and the new
        state.
        """
        raise TypeError(f"{type(self).__name__} must define score")

    def score_upper_bound(self, state: State, steps_left: Int[Tensor, "batch beam"]) -> Tensor | float:
        """Return an upper bound of what it can still add to each hypothesis, [batch, beam] or one number, unweighted.

        `steps_left` is the number of symbols that may still follow, the end included. The default 0 is correct for
        log-probabilities.
        """
        return 0.0


class BatchConstraint(BatchComponent):
    """A constraint on a batch of utterances.

    Where nothing else is possible, or at the length limit, the search allows forbidden symbols again, except those of
    a constraint that `is_strict`: a hypothesis that only these could continue is given up.
    """

    is_strict = False

    def forbidden(self, state: State, step: SearchStep) -> Bool[Tensor, "batch beam vocab"]:
        """Mask of the symbols that must not come next."""
        raise TypeError(f"{type(self).__name__} must define forbidden")


class SearchComponent:
    """Base class of scorers and constraints as built from the config, before there is any audio.

    A search calls `bind` once, and `on` for each batch. What `on` returns is asked, symbol by symbol, for `score` (or
    `forbidden`) and then `advance`; its `start` gives the first state, and `select_utterances` drops utterances.
    """

    def bind(self, tokens: Tokenizer, has_ctc: bool) -> None:
        """Prepare for a recogniser of these tokens; `has_ctc` if it was trained with CTC.

        Raises ConfigError or DataError if the component does not fit the recogniser.
        """


class Scorer(SearchComponent):
    """Base class of scores per symbol that are multiplied by `weight` and added; a subclass defines `on`.

    A weight of 0 leaves the scorer out.
    """

    def __init__(self, weight: float = 1.0) -> None:
        if not math.isfinite(weight):
            raise ArgumentError(f"weight={weight} must be a number, for example 0.5")
        self.weight = weight

    @property
    def share(self) -> float:
        """The share of the decoder's own weight of 1 that this scorer replaces."""
        return 0.0

    def on(self, decoder: Any, num_states: Int[Tensor, " batch"]) -> BatchScorer:
        """Return the scorer of a decoder's utterances, which have `num_states` encoded states."""
        raise TypeError(f"{type(self).__name__} must define on")


class Constraint(SearchComponent):
    """Base class of rules that forbid symbols; a subclass defines `on`."""

    def on(self, decoder: Any, num_states: Int[Tensor, " batch"]) -> BatchConstraint:
        """Return the constraint on a decoder's utterances, which have `num_states` encoded states."""
        raise TypeError(f"{type(self).__name__} must define on")


def reorder(state: State, parents: Int[Tensor, "batch beam"]) -> State:
    """Return the state whose beam k of utterance b is the old beam `parents[b, k]`; tensors are [batch, beam, ...]."""
    if len(parents) == 1:  # fewer operations for one utterance, whose steps are little else
        return mapped(state, lambda tensor: tensor.index_select(1, parents[0]))
    chosen: dict[int, Tensor] = {}

    def reordered(tensor: Tensor) -> Tensor:
        beams = tensor.shape[1]
        if beams not in chosen:
            rows = torch.arange(parents.shape[0], device=parents.device).unsqueeze(1)
            chosen[beams] = (rows * beams + parents).view(-1)
        return tensor.flatten(0, 1).index_select(0, chosen[beams]).view(*parents.shape, *tensor.shape[2:])

    return mapped(state, reordered)


def select_utterances(state: State, rows: Int[Tensor, " selected"]) -> State:
    """Return the state of a subset of the utterances, given by their indices."""
    return mapped(state, lambda tensor: tensor[rows])


def check_weight(weight: float, below: float = math.inf) -> None:
    """Raise ArgumentError for a weight that no scorer of probabilities can have."""
    if not 0 <= weight < below:
        limit = "" if below == math.inf else f" and below {below:g}"
        raise ArgumentError(f"weight={weight} must be 0 or more{limit}, for example 0.3")


def require_bound(bound: Bound | None, name: object, advice: str = "") -> Bound:
    """Return what `bind` has made of a file or a list. Raises ConfigError where it was not called."""
    if bound is None:
        raise ConfigError(
            f"{name}: a search with it must be told the tokens: {advice}call search.bind(tokenizer, has_ctc)"
        )
    return bound
