"""The interfaces of searches, of tokens, of frames and of words by frames: what they take, what they return."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from las.data.loader import Batch
from las.data.tokenizers import Tokenizer
from las.decoding.scorers.base import State
from las.hmm.lexicon import Lexicon
from las.hmm.topology import StateNumbering, Topology
from las.nn.acoustic_model import FrameModel, FrameScores
from las.nn.kernels.cpp.speller import Hypotheses
from las.nn.model import Trainable
from las.runtime.errors import ConfigError


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
class CanBePadded(Protocol):
    """A decoder that gives a decoder of the same results whose tensors have one of few sizes."""

    def padded(self) -> "Decoder": ...


@runtime_checkable
class CanSearch(Protocol):
    """A decoder with a compiled search of its own, without scorers.

    `expansion` is the fields of a `BeamExpansion`. The result is None where the search cannot be used.
    """

    def search(self, limits: Sequence[int], expansion: tuple[int, int, float], nbest: int) -> Hypotheses | None: ...


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
    """A search for the best hypotheses of a batch. One of states of phones is a `FrameSearch`, any other of tokens."""

    nbest: int

    def bind(self, tokens: Tokenizer, has_ctc: bool) -> None:
        """Prepare for a recogniser of these tokens. Raises ConfigError or DataError where it does not fit."""

    def __call__(self, decoder: Any, num_states: Tensor) -> list[list[Hypothesis]]:
        """Return the n-best lists of a batch, from the pair returned by `model.search_inputs(...)`."""


class FrameSearch:
    """Base class of searches over the states of phones, with the scores of a `FrameModel`, which has their bigram."""

    nbest: int

    def bind(self, tokens: Tokenizer, has_ctc: bool) -> None:
        """Do nothing: the tokens are phones of the model."""

    def __call__(self, decoder: FrameScores, num_states: Tensor) -> list[list[Hypothesis]]:
        """Return the n-best lists of a batch, from the pair returned by `model.search_inputs(...)`."""
        raise TypeError(f"{type(self).__name__} must define __call__")


class WordSpan(NamedTuple):
    """A word with its first frame and the one after its last."""

    word: str
    start: int
    end: int
    posterior: float
    """Geometric mean of the posteriors of its states, over its frames."""


class WordSearch(FrameSearch, ABC):
    """Base class of searches over frames for the words of a dictionary, for a model of its phones."""

    @property
    @abstractmethod
    def words(self) -> tuple[str, ...]:
        """Words that may be found: token i is `words[i - 1]`."""

    @abstractmethod
    def prepare(self, lexicon: Lexicon, states: StateNumbering, cache: Path | None = None) -> None:
        """Prepare for a dictionary and the states of its phones; `cache` is a folder where graphs are kept."""

    @abstractmethod
    def times(self, decoder: FrameScores, num_states: Tensor, tokens: list[list[int]]) -> list[list[WordSpan]]:
        """Return the words of each utterance with their frames, on the best path of these tokens."""


def is_of_frames(part: object, base: type) -> bool:
    """Return whether a loss or a search is one of frames, which its base class says.

    Raises ConfigError for a class that says it by the attribute `predicts` of earlier releases.
    """
    if not isinstance(part, base) and getattr(part, "predicts", "tokens") != "tokens":
        kind = type(part).__name__
        raise ConfigError(
            f"{kind}.predicts is no longer read: make {kind} a subclass of {base.__module__}.{base.__name__}"
        )
    return isinstance(part, base)


def require_search(search: Search, model: Trainable) -> None:
    """Raise ConfigError for a search that does not belong to what a model predicts."""
    of_frames = isinstance(model, FrameModel)
    if is_of_frames(search, FrameSearch) != of_frames:
        kinds = ("frames", "tokens") if of_frames else ("tokens", "frames")
        options = "search=phone_bigram, or for words search=word_graph" if of_frames else "search=greedy or search=beam"
        raise ConfigError(
            f"search: this model predicts {kinds[0]}, and the search is over {kinds[1]}: choose {options}"
        )


def prepare(
    search: Search,
    tokens: Tokenizer,
    lexicon: Lexicon | None,
    states: StateNumbering | None,
    has_ctc: bool,
    cache: Path | None,
) -> None:
    """Prepare a search for a model of tokens, or of the phones of a dictionary.

    Args:
        search: any.
        tokens: of the corpus.
        lexicon: whose phones the model knows; None for a model that knows the tokens.
        states: of the phones of the dictionary; None for those of monophones.
        has_ctc: whether the model has a CTC head.
        cache: folder where graphs of words are kept.

    Raises ConfigError or DataError where they do not fit.
    """
    search.bind(tokens, has_ctc)
    if isinstance(search, WordSearch):
        if lexicon is None:
            raise ConfigError(
                "search=word_graph: this model was trained without a dictionary of words: choose search=phone_bigram"
            )
        search.prepare(lexicon, Topology.of_lexicon(lexicon) if states is None else states, cache)
    elif lexicon is not None:
        raise ConfigError(
            "search: this model knows the phones of a dictionary, and the search finds no words: choose "
            "search=word_graph"
        )


def tokens_of(search: Search, tokens: Tokenizer) -> Tokenizer:
    """Return the tokens that hypotheses of a prepared search are of: words, or those of the model."""
    return Tokenizer(search.words) if isinstance(search, WordSearch) else tokens
