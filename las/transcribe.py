"""Audio to text with a trained checkpoint: the same path as in training, from the waveform to the tokens."""

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from las import audio, build, checkpoint, progress, tokens
from las.errors import DataError, StorageError
from las.evaluation import Search
from las.model import ListenAttendSpell
from las.search import Hypothesis

AUDIO_SUFFIXES = (".wav", ".flac", ".sph", ".ogg", ".mp3", ".aiff", ".au")


@dataclass(frozen=True)
class TimedToken:
    """A symbol and when it was said, read off the attention: an estimate, not a forced alignment."""

    symbol: str
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Transcription:
    """What was heard in one file. `score` is the log-probability of the tokens, the end of the sentence included."""

    id: str
    text: str
    score: float
    finished_by: str
    duration_s: float
    tokens: tuple[TimedToken, ...]
    weights: Tensor
    """Attention, [tokens + 1, states]; the last row is the end's."""
    state_ms: float

    def to_json(self) -> str:
        """One line of hypotheses.jsonl."""
        values: dict[str, Any] = {
            "id": self.id,
            "text": self.text,
            "score": round(self.score, 4),
            "finished_by": self.finished_by,
            "duration_s": round(self.duration_s, 4),
            "tokens": [
                {k: round(v, 3) if isinstance(v, float) else v for k, v in asdict(t).items()} for t in self.tokens
            ],
        }
        return json.dumps(values, ensure_ascii=False)


class Transcriber:
    """A trained model with its tokens and a search; `las.load` makes one from a run folder."""

    def __init__(
        self, model: ListenAttendSpell, tokens: tokens.Tokens, sample_rate: int, search: Search, config: build.Config
    ) -> None:
        self.model = model.eval()
        self.tokens = tokens
        self.sample_rate = sample_rate
        self.search = search
        self.config = config

    @torch.no_grad()
    def transcribe(self, path: str | Path) -> Transcription:
        """The text of one audio file of any rate and number of channels (the first is used).

        Raises DataError naming the file when it cannot be read or is shorter than one analysis window.
        """
        waveform = audio.load(path, sample_rate=self.sample_rate)
        window = self.model.features.frame_length
        if len(waveform) < window:
            raise DataError(
                f"{path}: {len(waveform) / self.sample_rate:.4f} s is shorter than one analysis window "
                f"({window / self.sample_rate:.3f} s)"
            )
        return self._transcribe(str(path), waveform)

    def _transcribe(self, name: str, waveform: Tensor) -> Transcription:
        device = self.model.device
        num_samples = torch.tensor([len(waveform)], device=device)
        decoder, num_states = self.model.decoder(waveform.unsqueeze(0).to(device), num_samples)
        best: Hypothesis = self.search(decoder, num_states)[0][0]
        spelling = self.model.speller(decoder.memory, torch.tensor([best.tokens], dtype=torch.long, device=device))
        weights = spelling.weights[0].cpu()
        duration_s = len(waveform) / self.sample_rate
        return Transcription(
            id=name,
            text=self.tokens.decode(best.tokens),
            score=best.score,
            finished_by=best.finished_by,
            duration_s=duration_s,
            tokens=tuple(
                TimedToken(self.tokens.symbols[token], start_s, end_s)
                for token, (start_s, end_s) in zip(
                    best.tokens, token_times(weights, self.model.state_ms / 1000, duration_s), strict=True
                )
            ),
            weights=weights,
            state_ms=self.model.state_ms,
        )

    def transcribe_all(self, paths: Iterable[str | Path]) -> Iterator[Transcription]:
        """One file after another."""
        for path in paths:
            yield self.transcribe(path)


def token_times(weights: Tensor, state_s: float, duration_s: float) -> list[tuple[float, float]]:
    """Start and end of each token from its attention: borders lie halfway between neighbouring tokens' states.

    The states are the path of greatest weight that never goes back, so that one diffuse row cannot pull others along.
    `weights` is [tokens + 1, states]. Times tile the utterance.
    """
    if weights.shape[0] < 2:
        return []
    logs = weights[:-1].clamp(min=torch.finfo(weights.dtype).tiny).log()
    score, came_from = logs[0], []
    for row in logs[1:]:
        before, index = score.cummax(0)
        came_from.append(index)
        score = row + before
    path = [int(score.argmax())]
    for index in reversed(came_from):
        path.append(int(index[path[-1]]))
    centres = [min((state + 0.5) * state_s, duration_s) for state in reversed(path)]
    borders = [0.0, *((a + b) / 2 for a, b in itertools.pairwise(centres)), duration_s]
    return list(itertools.pairwise(borders))


def load(path: str | Path, search: Search | None = None, device: str = "cpu") -> Transcriber:
    """A transcriber from a run folder (its best checkpoint) or one checkpoint directory.

    Raises StorageError when no checkpoint there can be read, ConfigError when its config names a class that is not
    one of this package's. `search` is the run's own unless given.
    """
    found, complaints = checkpoint.find(Path(path))
    for complaint in complaints:
        progress.say(complaint)
    try:
        corpus, plans = found.state["corpus"], (found.config["model"], found.config["search"])
        kind, sample_rate = tokens.from_state(corpus["tokens"]), int(corpus["sample_rate"])
        model: ListenAttendSpell = build.build(plans[0], where="model")(sample_rate, kind.size)
        model.load_state_dict(found.model)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise StorageError(f"{found.directory}: its parts do not fit together ({error!r})") from error
    if search is None:
        search = build.build(plans[1], where="search")
    return Transcriber(model.to(device), kind, sample_rate, search, found.config)


def find_audio(names: str | Sequence[str]) -> list[Path]:
    """Audio files from names of files and folders (searched below, sorted).

    Raises DataError for a name that does not exist and a folder without audio.
    """
    found: list[Path] = []
    for name in [names] if isinstance(names, str) else names:
        path = Path(name)
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.suffix.lower() in AUDIO_SUFFIXES)
            if not inside:
                raise DataError(f"{path}: no audio in this folder (looked for {', '.join(AUDIO_SUFFIXES)})")
            found += inside
        elif path.exists():
            found.append(path)
        else:
            raise DataError(f"{path}: there is no such audio file or folder")
    return found
