"""The interface of a search: the decoder that it steps, the hypotheses that it returns, the length limit."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from torch import Tensor

from las.data.loader import Batch
from las.data.tokenizers import Tokenizer
from las.decoding.scorers.base import State
from las.nn.trainable import Trainable
from las.runtime.errors import ArgumentError, ConfigError

SEARCHES = {"tokens": "search=greedy or search=beam", "frames": "search=phone_bigram, or for words search=word_graph"}
"""Cards of searches by what a model predicts, for messages."""


@runtime_checkable
class Decoder(Protocol):
    """Next-symbol distributions of a batch of utterances: `las.nn.model.Decoder`, or a toy in a test.

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
    """A decoder whose states contain attention weights, [batch, beam, states]."""

    def weights(self, state: State) -> Tensor: ...


@runtime_checkable
class CanDropUtterances(Protocol):
    """A decoder that can continue with a subset of its utterances, given by their indices `rows` [selected]."""

    def select_utterances(self, rows: Tensor) -> "Decoder": ...


@runtime_checkable
class Recogniser(Protocol):
    """A trained model with its search, whatever kind of model it is, as `las decode` uses it for a split."""

    tokens: Tokenizer

    def recognise(self, batches: Iterable[tuple[int, Batch]]) -> Iterator[dict[str, Any]]:
        """Recognise all utterances; yields for each one JSON data with at least `id`, `text` and `score`."""


@dataclass(frozen=True)
class Hypothesis:
    """One complete decoded sequence.

    `tokens` leaves the boundary symbols out; `score` is the natural log-probability of the tokens and the end symbol,
    with the weighted scores of other scorers if there are any; `normalised_score` is the score after length
    normalisation, which ranks hypotheses; `finished_by` is `max_length` if the end symbol was forced, `dead_end` if no
    continuation was possible.
    `scores` are those of each scorer by its name, without its weight (`las` is the decoder); `confidences` are the
    decoder's probabilities of each token.

    >>> from las import Hypothesis
    >>> hypothesis = Hypothesis([3, 1, 2], score=-4.2, normalised_score=-1.05, finished_by="eos", scores={"las": -4.2})
    >>> hypothesis.score / (len(hypothesis.tokens) + 1)
    -1.05
    """

    tokens: list[int]
    score: float
    normalised_score: float
    finished_by: Literal["eos", "max_length", "dead_end"]
    scores: dict[str, float] = field(default_factory=dict)
    confidences: list[float] = field(default_factory=list)


@runtime_checkable
class Search(Protocol):
    """A search for the best hypotheses of a batch, over the tokens of a decoder or over states of phones."""

    nbest: int
    predicts: str
    """Kind of what it searches for, that of `Trainable.predicts`."""

    def bind(self, tokens: Tokenizer, has_ctc: bool) -> None:
        """Prepare for a recogniser of these tokens. Raises ConfigError or DataError where it does not fit."""

    def __call__(self, decoder: Any, num_states: Tensor) -> list[list[Hypothesis]]:
        """The n-best lists of a batch; `decoder` and `num_states` are what the model's `decoder` gives."""


def require_search(search: Search, model: Trainable) -> None:
    """Raise ConfigError for a search that does not belong to what a model predicts."""
    if search.predicts != model.predicts:
        raise ConfigError(
            f"search: this model predicts {model.predicts}, and the search is over {search.predicts}: choose "
            f"{SEARCHES[model.predicts]}"
        )


class LengthLimit:
    """The greatest number of tokens of each utterance: `ratio` per encoded state, rounded up, and `max_length`.

    At least one token is always allowed. Raises ArgumentError for a limit that allows none.
    """

    def __init__(self, ratio: float, max_length: int | None) -> None:
        if not 0 < ratio < math.inf:
            raise ArgumentError(f"max_length_ratio={ratio} must be above 0, for example 1.0.")
        if max_length is not None and max_length < 1:
            raise ArgumentError(f"max_length={max_length} must be at least 1, or null for no limit of its own.")
        self.ratio = ratio
        self.max_length = math.inf if max_length is None else max_length

    def __call__(self, num_states: Tensor) -> list[int]:
        """The limits of utterances with `num_states` [batch] encoded states."""
        # Rounded before ceil: in binary, 0.07 * 100 is a little more than 7.
        lengths = [math.ceil(round(self.ratio * count, 6)) for count in num_states.tolist()]
        return [int(max(1, min(length, self.max_length))) for length in lengths]
