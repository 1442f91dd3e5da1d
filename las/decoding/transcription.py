"""Transcriptions of audio files and their JSON."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Float16
from torch import Tensor

from las.data.audio.streaming import MIX, Channel
from las.decoding.word_timing import TimedToken, TimedWord

NOTHING = torch.zeros(0, 0, dtype=torch.float16)
"""Attention weights that were dropped: one shared tensor, as thousands of small ones would fragment the heap."""


@dataclass(frozen=True)
class SegmentTranscript:
    """The transcript of one segment of audio; times are in seconds from the start of the whole audio.

    `score` is the log-probability of the tokens, the end of the sentence included.
    """

    tokens: tuple[TimedToken, ...]
    words: tuple[TimedWord, ...]
    score: float
    finished_by: str
    half_weights: Float16[Tensor, "tokens states"]
    """Attention weights in half precision; the last row is that of the end symbol."""

    @property
    def weights(self) -> Float[Tensor, "tokens states"]:
        """Attention weights in single precision."""
        return self.half_weights.float()

    def outline(self) -> "SegmentTranscript":
        """Copy without tokens, words and attention, to bound memory: `Transcription` has the words."""
        return replace(self, tokens=(), words=(), half_weights=NOTHING)

    @property
    def symbols(self) -> list[str]:
        """Symbols of the rows of the attention weights."""
        return [*(token.symbol for token in self.tokens), "(end)"]


@dataclass(frozen=True)
class Transcription:
    """The transcription of one file: the stitched `words` of all segments, and the segments that are not silent.

    >>> import las
    >>> transcription = las.load("run").transcribe("audio.wav")
    >>> transcription.id, transcription.duration_s, transcription.state_ms
    ('audio.wav', 0.3, 40.0)
    >>> [word.text for word in transcription.words]
    ['sil', 'aa', 'iy', 'sil']
    """

    id: str
    duration_s: float
    words: tuple[TimedWord, ...]
    pieces: tuple[SegmentTranscript, ...]
    state_ms: float
    channel: Channel = MIX
    """Counted from 0, or the mean of all."""

    def __repr__(self) -> str:
        text = self.text if len(self.text) <= 80 else f"{self.text[:80]}..."
        return (
            f"Transcription({self.id!r}, {self.duration_s:.2f} s, {len(self.words)} words: {text!r}, "
            f"score={self.score:.2f}, finished_by={self.finished_by})"
        )

    @property
    def text(self) -> str:
        """The words, separated by spaces."""
        return " ".join(word.text for word in self.words)

    @property
    def tokens(self) -> tuple[TimedToken, ...]:
        """The tokens of all words."""
        return tuple(token for word in self.words for token in word.tokens)

    @property
    def score(self) -> float:
        """The log-probability, summed over all segments."""
        return sum((piece.score for piece in self.pieces), 0.0)

    @property
    def finished_by(self) -> str:
        """The end of decoding: `eos` if the model ended all segments, else the other reason; `silence` without any."""
        reasons = sorted({piece.finished_by for piece in self.pieces} - {"eos"})
        return reasons[0] if reasons else "eos" if self.pieces else "silence"

    def to_state(self) -> dict[str, Any]:
        """The transcription without attention as JSON data, for another process; `from_state` reads it."""
        pieces = [(piece.score, piece.finished_by) for piece in self.pieces]
        words = [(word.text, [astuple(token) for token in word.tokens]) for word in self.words]
        return {
            "id": self.id,
            "times": (self.duration_s, self.state_ms),
            "words": words,
            "pieces": pieces,
            "channel": self.channel,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> "Transcription":
        """The transcription of `to_state`, its segments in outline."""
        duration_s, state_ms = state["times"]
        words = [TimedWord(text, tuple(TimedToken(*each) for each in tokens)) for text, tokens in state["words"]]
        pieces = [SegmentTranscript((), (), score, reason, NOTHING) for score, reason in state["pieces"]]
        return cls(state["id"], duration_s, tuple(words), tuple(pieces), state_ms, state["channel"])

    def to_json(self) -> str:
        """The transcription as one line of JSON."""
        return "".join(self.json_parts())

    def json_parts(self) -> Iterator[str]:
        """The line of JSON in parts, one per word or token, to bound memory for hours of audio."""
        values: dict[str, Any] = {
            "id": self.id,
            "text": self.text,
            "score": round(self.score, 4),
            "finished_by": self.finished_by,
            "duration_s": round(self.duration_s, 4),
        }
        yield f"{_line(values)[:-1]}, "
        yield from _listed("words", ({"text": word.text} | _times(word) for word in self.words))
        yield ", "
        tokens = (token for word in self.words for token in word.tokens)
        yield from _listed("tokens", ({"symbol": token.symbol} | _times(token) for token in tokens))
        yield "}"


def _line(values: dict[str, Any]) -> str:
    return json.dumps(values, ensure_ascii=False)


def _listed(name: str, values: Iterable[dict[str, Any]]) -> Iterator[str]:
    """A JSON list with its key, in parts."""
    yield f'"{name}": ['
    for number, each in enumerate(values):
        yield f"{', ' if number else ''}{_line(each)}"
    yield "]"


def _times(timed: TimedWord | TimedToken) -> dict[str, float]:
    return {
        "start_s": round(timed.start_s, 3),
        "end_s": round(timed.end_s, 3),
        "confidence": round(timed.confidence, 4),
    }
