"""Recordings in all forms that a transcriber takes, and its transcriptions: words with their times, and JSON.

Words are stitched across segments.
"""

import glob
import itertools
import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float16
from torch import Tensor

from las.data.audio import files, streaming
from las.data.audio.streaming import MIX, Channel, Readable, Recording
from las.data.tokenizers import Tokenizer
from las.runtime import distributed, progress
from las.runtime.errors import ArgumentError, DataError
from las.storage import folders

Audio = str | Path | Readable | np.ndarray | Tensor
"""A file, by its path or open for reading bytes, or samples [samples] or [channels, samples]."""
SAME_S = 0.6
"""Words of two segments can be the same only if their times differ by less, in seconds: the times are estimates."""
NOTHING = torch.zeros(0, 0, dtype=torch.float16)
"""Attention weights that were dropped: one shared tensor, as thousands of small ones would fragment the heap."""


@dataclass(frozen=True, slots=True)
class TimedToken:
    """A symbol, its times in seconds, and its probability given the previous tokens.

    The times are estimated from attention, or a forced alignment by CTC where the model has no attention.
    """

    symbol: str
    start_s: float
    end_s: float
    confidence: float


class TimedWord(NamedTuple):
    """A word and its tokens; its `confidence` is the geometric mean of theirs."""

    text: str
    tokens: tuple[TimedToken, ...]

    @property
    def start_s(self) -> float:
        return self.tokens[0].start_s

    @property
    def end_s(self) -> float:
        return self.tokens[-1].end_s

    @property
    def centre_s(self) -> float:
        return (self.start_s + self.end_s) / 2

    @property
    def confidence(self) -> float:
        logs = [math.log(max(token.confidence, 1e-30)) for token in self.tokens]
        return math.exp(sum(logs) / len(logs))


def of_tokens(timed: Sequence[TimedToken], ids: Sequence[int], tokens: Tokenizer) -> list[TimedWord]:
    """Return the words of a token sequence, each with its tokens; tokens that only separate words belong to none.

    A token belongs to the last word of the text decoded up to it, which works for any tokenizer.
    """
    groups: list[list[TimedToken]] = []
    previous_text = ""
    for count, token in enumerate(timed, start=1):
        text = tokens.decode(ids[:count]).rstrip()
        if len(text) > len(previous_text):
            num_new_words = len(text.split()) - len(groups)
            groups += [[] for _ in range(num_new_words)]
            groups[-1].append(token)
        previous_text = text
    return [TimedWord(text, tuple(group)) for text, group in zip(previous_text.split(), groups, strict=True)]


def stitch(left: Sequence[TimedWord], right: Sequence[TimedWord], border_s: float, overlap_s: float) -> list[TimedWord]:
    """Return the words of two segments without duplicates; they overlap by `overlap_s` on either side of `border_s`.

    Of the words that both segments have in common, the one nearest to the border joins them: the words before it are
    taken from the left segment, those after it from the right. Where they have none in common, a word is taken from
    the segment on whose side of the border its centre lies. Without overlap the words are concatenated.
    """
    if not overlap_s:
        return [*left, *right]
    first = next((i for i, word in enumerate(left) if word.end_s > border_s - overlap_s), len(left))
    last = next((i for i, word in enumerate(right) if word.start_s >= border_s + overlap_s), len(right))
    common = agreement(left[first:], right[:last])
    if not common:
        return [
            *(word for word in left if word.centre_s < border_s),
            *(word for word in right if word.centre_s >= border_s),
        ]
    i, j = min(common, key=lambda pair: abs(left[first + pair[0]].centre_s + right[pair[1]].centre_s - 2 * border_s))
    return [*left[: first + i + 1], *right[j + 1 :]]


def agreement(left: Sequence[TimedWord], right: Sequence[TimedWord]) -> list[tuple[int, int]]:
    """Return the best common subsequence of words at about the same times, as pairs of indices into both.

    A pair counts the more, the closer its times are: 1 for equal times, 0 from a difference of `SAME_S`. The sum is
    maximised by dynamic programming.
    """
    best: dict[tuple[int, int], float] = {}
    for i, j in itertools.product(range(len(left) + 1), range(len(right) + 1)):
        best[i, j] = max(best.get((i - 1, j), 0.0), best.get((i, j - 1), 0.0))
        if i and j:
            one, other = left[i - 1], right[j - 1]
            alike = max(1 - abs(one.centre_s - other.centre_s) / SAME_S, 0.0) if one.text == other.text else 0.0
            best[i, j] = max(best[i, j], best[i - 1, j - 1] + alike)
    pairs, i, j = [], len(left), len(right)
    while i and j:
        if best[i, j] == best[i - 1, j]:
            i -= 1
        elif best[i, j] == best[i, j - 1]:
            j -= 1
        else:
            i, j = i - 1, j - 1
            pairs.append((i, j))
    return pairs[::-1]


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
    """Weights of states for each token in half precision (`SpeechModel.spell`), those of the end last."""

    @property
    def weights(self) -> Float[Tensor, "tokens states"]:
        return self.half_weights.float()

    def outline(self) -> "SegmentTranscript":
        """Copy without tokens, words and attention, to bound memory: `Transcription` has the words."""
        return replace(self, tokens=(), words=(), half_weights=NOTHING)

    @property
    def symbols(self) -> list[str]:
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
        return " ".join(word.text for word in self.words)

    @property
    def tokens(self) -> tuple[TimedToken, ...]:
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
        """Return the transcription without attention as JSON data, for another process; `from_state` reads it."""
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
        """Return the transcription of `to_state`, its segments in outline."""
        duration_s, state_ms = state["times"]
        words = [TimedWord(text, tuple(TimedToken(*each) for each in tokens)) for text, tokens in state["words"]]
        pieces = [SegmentTranscript((), (), score, reason, NOTHING) for score, reason in state["pieces"]]
        return cls(state["id"], duration_s, tuple(words), tuple(pieces), state_ms, state["channel"])

    def to_json(self) -> str:
        return "".join(self.json_parts())

    def json_parts(self) -> Iterator[str]:
        """Yield the line of JSON in parts, one per word or token, to bound memory for hours of audio."""
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
    """Yield a JSON list with its key, in parts."""
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


class OpenedRecordings(NamedTuple):
    """Recordings as `transcribe_all` takes them; file objects are copies, whose names are known by their paths."""

    audio: list[str | Path | Recording]
    names: dict[str, str]

    def display(self, text: str) -> str:
        """Return a text with the names of file objects in place of the paths of their copies."""
        for path, name in self.names.items():
            text = text.replace(path, name)
        return text


@contextmanager
def opened(audio: Sequence[Audio], sample_rate: int | None) -> Iterator[OpenedRecordings]:
    """Copy file objects to temporary files, removed after the body; arrays are called `audio<number in the list>`.

    Raises ArgumentError for samples without a rate, a rate without samples, and file objects that give no bytes.
    """
    with ExitStack() as stack:
        copies: list[str | Path | np.ndarray | Tensor] = []
        names = {}
        for number, each in enumerate(audio):
            if not isinstance(each, Readable):
                copies.append(each)
                continue
            if not isinstance(each.read(0), bytes):
                raise ArgumentError(f"{each!r} gives no bytes: open the file as open('x.wav', 'rb')")
            copies.append(stack.enter_context(streaming.spooled(each)))
            name = getattr(each, "name", None)
            names[str(copies[-1])] = name if isinstance(name, str) else f"audio{number}"
        yield OpenedRecordings(_named(copies, sample_rate), names)


def _named(audio: Sequence[str | Path | np.ndarray | Tensor], sample_rate: int | None) -> list[str | Path | Recording]:
    """Files as they are, samples with their rate and `audio<number in the list>` for a name."""
    if sample_rate is None:
        for each in audio:
            if not isinstance(each, (str, Path)):
                raise ArgumentError("sample_rate=None: samples do not say it: transcribe(samples, sample_rate=16000)")
        return [each for each in audio if isinstance(each, (str, Path))]
    if sample_rate < 1:
        raise ArgumentError(f"sample_rate={sample_rate} must be at least 1, for example 16000")
    if audio and all(isinstance(each, (str, Path)) for each in audio):
        raise ArgumentError(f"sample_rate={sample_rate} is for arrays and tensors: files know theirs, leave it out")
    return [
        each if isinstance(each, (str, Path)) else Recording(each, sample_rate, f"audio{number}")
        for number, each in enumerate(audio)
    ]


def find_audio(names: str | Sequence[str]) -> list[Path]:
    """Find audio files by names of files, folders (searched recursively, sorted) and patterns with `*`, `?` or `[...]`,
    each of them once.

    Raises DataError for a folder without audio, and for a name that neither exists nor matches as a pattern.
    """
    paths: list[Path] = []
    for name in [names] if isinstance(names, str) else names:
        path = Path(name)
        if path.is_dir():
            found = folders.search(path)
            inside = [each for each in found.files if each.suffix.lower() in files.SUFFIXES]
            if not inside:
                raise DataError("\n".join([f"{path}: {files.NOT_FOUND}", *found.remarks()]))
            _say(found.remarks())
            paths += inside
        elif path.exists():
            paths.append(path)
        elif matches := _matches(name):
            paths += matches
        else:
            raise DataError(f"{path}: there is no such audio file or folder")
    return list(dict.fromkeys(paths))


def _matches(pattern: str) -> list[Path]:
    """Files that match a pattern, sorted; of several paths to one folder, as links make them, the shortest is taken."""
    found = sorted(map(Path, glob.glob(pattern, recursive=True)), key=lambda path: (len(path.parts), path))
    by_place = {(os.path.realpath(path.parent), path.name): path for path in reversed(found)}
    if twice := len(found) - len(by_place):
        _say([f"{pattern}: left out, in folders that are read under another path: {twice:,}"])
    return sorted(by_place.values())


def _say(remarks: list[str]) -> None:
    with distributed.only_main_prints():
        for remark in remarks:
            progress.say(remark)
