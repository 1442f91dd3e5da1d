"""suite=streaming: how long after its end a word is shown, and the real-time factor, while utterances come in.

Each utterance of a split, with a second of silence behind it, comes in at the speed at which it was spoken, a tenth of
a second at a time. A piece is computed when it has come and those before it are done, by a clock that counts the
measured times of computation. A word is shown when it, and all words before it, stand among final and pending words and
do not change any more. Its latency is that time less its end on the best path of CTC.
"""

import copy
import itertools
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch

from benchmarks import inputs, timing
from benchmarks.decoding import split_of
from benchmarks.records import SPREAD_S, Group, Row, TableColumn, number, text
from benchmarks.settings import Settings
from las.config.build import build
from las.decoding.evaluation import Search
from las.decoding.search import BeamSearch
from las.decoding.stream import Stream
from las.decoding.transcriber import Transcriber, load
from las.decoding.transcription import TimedWord
from las.runtime.errors import ConfigError

PIECE_S, SILENCE_S = 0.1, 1.0

COLUMNS = (
    TableColumn("search", text("implementation")),
    TableColumn("cell", text("cell")),
    TableColumn("words", number("words", 0)),
    TableColumn("latency, mean ms", number("latency_ms", 0)),
    TableColumn("90th percentile", number("latency_p90_ms", 0)),
    TableColumn("seconds", number("seconds", 3)),
    SPREAD_S,
    TableColumn("real-time factor", number("rtf", 4)),
)


class Shown(NamedTuple):
    """A word that was shown, and when, in seconds from the beginning of its utterance."""

    word: TimedWord
    at_s: float


def measure(settings: Settings) -> Iterator[Group]:
    """Measure greedy search and the beam of the config. Raises ConfigError without a checkpoint."""
    config = settings.config
    if config["checkpoint"] is None:
        raise ConfigError("suite=streaming needs a model that does not wait: checkpoint=runs/...")
    transcriber = load(config["checkpoint"], "greedy", str(settings.device))
    search: Search = build(config["search"], where="search")
    others = {f"beam{search.size}": BeamSearch(search.size)} if isinstance(search, BeamSearch) else {}
    description, _, single = split_of(transcriber, settings)
    silence = torch.zeros(round(SILENCE_S * transcriber.sample_rate))
    waveforms = [torch.cat([batch.waveforms[0], silence]) for batch in single]
    audio_s = sum(map(len, waveforms)) / transcriber.sample_rate
    passes = {name: StreamingPass(transcriber, each, waveforms) for name, each in others.items()}
    passes = {"greedy": StreamingPass(transcriber, transcriber.search, waveforms)} | passes
    works = {key: timing.Work(each.run) for key, each in passes.items()}
    times = timing.alternate(works, settings.repeats, settings.budget_s, settings.device, "passes over the utterances")
    card = inputs.card(transcriber.model)
    rows = [settings.row(key, card, description) | _result(times[key], each, audio_s) for key, each in passes.items()]
    yield Group(description, rows)


class StreamingPass:
    """A search over all utterances of a split while they come in."""

    def __init__(self, transcriber: Transcriber, search: Search, waveforms: list[torch.Tensor]) -> None:
        self.transcriber, self.waveforms = copy.copy(transcriber), waveforms
        self.transcriber.search = search
        self.shown: list[Shown] = []

    def run(self) -> None:
        self.shown = [each for waveform in self.waveforms for each in shown(Stream(self.transcriber), waveform)]


def shown(stream: Stream, waveform: torch.Tensor) -> list[Shown]:
    """The words of an utterance that comes in as it was spoken, with the times at which they are shown."""
    final: list[TimedWord] = []
    screens: list[tuple[float, list[str]]] = []  # what is on the screen from a time on
    come_s = done_s = 0.0
    for piece in itertools.chain(waveform.split(round(PIECE_S * stream.sample_rate)), [None]):
        come_s += 0.0 if piece is None else len(piece) / stream.sample_rate
        started = time.perf_counter()
        result = stream.finish() if piece is None else stream.feed(piece)
        done_s = max(come_s, done_s) + time.perf_counter() - started
        final += result.final
        screens.append((done_s, [word.text for word in (*final, *result.pending)]))
    return [Shown(word, since(screens, final, count)) for count, word in enumerate(final, start=1)]


def since(screens: list[tuple[float, list[str]]], final: list[TimedWord], count: int) -> float:
    """The time from which on the first words, so many, are those of the end."""
    words = [word.text for word in final[:count]]
    first = len(screens) - 1
    while first and screens[first - 1][1][:count] == words:
        first -= 1
    return screens[first][0]


def _result(times: list[float], streaming: StreamingPass, audio_s: float) -> Row:
    spread = timing.spread(times)
    latencies = [1e3 * (each.at_s - each.word.end_s) for each in streaming.shown]
    return spread.in_seconds() | {
        "words": len(latencies),
        "latency_ms": float(np.mean(latencies)) if latencies else None,
        "latency_p90_ms": float(np.percentile(latencies, 90)) if latencies else None,
        "audio_s": audio_s,
        "rtf": spread.median / 1e3 / audio_s,
    }
