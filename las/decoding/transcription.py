"""What was heard in a file, and the JSON line that says so."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Float16
from torch import Tensor

from las.decoding.word_timing import TimedToken, TimedWord

NOTHING = torch.zeros(0, 0, dtype=torch.float16)
"""Attention that was not kept: one for all, as thousands of small tensors would keep the heap from shrinking."""


@dataclass(frozen=True)
class SegmentTranscript:
    """What was heard in one piece of audio; times are those of the whole audio.

    `score` is the log-probability of the tokens, the end of the sentence included.
    """

    tokens: tuple[TimedToken, ...]
    words: tuple[TimedWord, ...]
    score: float
    finished_by: str
    half_weights: Float16[Tensor, "tokens states"]
    """Attention; the last row is the end's."""

    @property
    def weights(self) -> Float[Tensor, "tokens states"]:
        """Attention, to compute with."""
        return self.half_weights.float()

    def outline(self) -> "SegmentTranscript":
        """Score and end alone: hours of audio have many pieces, and what was said is in the words of the whole."""
        return replace(self, tokens=(), words=(), half_weights=NOTHING)

    @property
    def symbols(self) -> list[str]:
        """One for each row of the attention."""
        return [*(token.symbol for token in self.tokens), "(end)"]


@dataclass(frozen=True)
class Transcription:
    """What was heard in one file: `words` of all pieces, stitched; a piece of silence is not among them."""

    id: str
    duration_s: float
    words: tuple[TimedWord, ...]
    pieces: tuple[SegmentTranscript, ...]
    state_ms: float

    def __repr__(self) -> str:
        text = self.text if len(self.text) <= 80 else f"{self.text[:80]}..."
        return (
            f"Transcription({self.id!r}, {self.duration_s:.2f} s, {len(self.words)} words: {text!r}, "
            f"score={self.score:.2f}, finished_by={self.finished_by})"
        )

    @property
    def text(self) -> str:
        """The words with spaces between them."""
        return " ".join(word.text for word in self.words)

    @property
    def tokens(self) -> tuple[TimedToken, ...]:
        """Those of the words."""
        return tuple(token for word in self.words for token in word.tokens)

    @property
    def score(self) -> float:
        """Log-probability, all pieces added."""
        return sum((piece.score for piece in self.pieces), 0.0)

    @property
    def finished_by(self) -> str:
        """`eos` where the model ended every piece itself, else what ended one of them, or `silence`."""
        reasons = sorted({piece.finished_by for piece in self.pieces} - {"eos"})
        return reasons[0] if reasons else "eos" if self.pieces else "silence"

    def to_json(self) -> str:
        """One line of JSON."""
        return "".join(self.json_parts())

    def json_parts(self) -> Iterator[str]:
        """The same, word by word: so that hours of audio make no heap of small objects."""
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
    """A list of JSON with its name."""
    yield f'"{name}": ['
    for number, each in enumerate(values):
        yield f"{', ' if number else ''}{_line(each)}"
    yield "]"


def _times(of: TimedWord | TimedToken) -> dict[str, float]:
    return {"start_s": round(of.start_s, 3), "end_s": round(of.end_s, 3), "confidence": round(of.confidence, 4)}
