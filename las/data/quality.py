"""Quality checks of utterances: requirements on audio and transcripts for training and for decoding.

Headers and levels of audio files are cached, so that files that have not changed are read only once.
"""

import contextlib
import hashlib
import io
import itertools
import json
import math
import statistics
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from las.config.build import require
from las.data.audio import files, worker_pool
from las.data.audio.worker import AudioLevels, AudioScan, measure, state
from las.data.manifest import Utterance
from las.data.text_rules import num_equal
from las.data.tokenizers import Tokenizer
from las.runtime import devices, progress
from las.runtime.errors import ConfigError, DataError
from las.storage import bounded

SHORTEST_S = 0.025  # one analysis window

TRAINING_ONLY = frozenset(
    ("too long", "silent", "clipped", "empty transcript", "unknown symbols", "more symbols than states", "CTC")
)
"""Kinds of problems that exclude an utterance from training, but not from decoding and scoring."""


@dataclass(frozen=True)
class QualityLimits:
    """Limits for training utterances, beyond being readable.

    longest_s: maximum duration in seconds. clipped: maximum share of samples at full scale. unknown: maximum share of
    the symbols of a split that the tokens lack (each is named); above it training does not start. longest_tokens:
    maximum length of a transcript in tokens (None: no limit); longer ones are counted and left out, which is not an
    error of the corpus. hours: of the training part, drawn at random by the utterances' ids (None: all), for learning
    curves; fewer hours are a part of more.
    """

    longest_s: float = 60.0
    clipped: float = 0.01
    unknown: float = 0.001
    longest_tokens: int | None = None
    hours: float | None = None

    def __post_init__(self) -> None:
        require("longest_s", self.longest_s, SHORTEST_S)
        require("clipped", self.clipped, 0.0, 1.0)
        require("unknown", self.unknown, 0.0, 1.0)
        require("longest_tokens", self.longest_tokens, 1)
        if self.hours is not None and not self.hours > 0.0:
            raise ConfigError(f"limits.hours={self.hours} must be above 0")

    def sample(self, utterances: Sequence[Utterance]) -> list[Utterance]:
        """Draw utterances of `hours` together, in their order; all of them where there are not more."""
        drawn, left_s = set(), math.inf if self.hours is None else 3600 * self.hours
        for utterance in sorted(utterances, key=lambda each: hashlib.sha256(each.id.encode()).digest()):
            if left_s < utterance.duration_s:
                break
            drawn.add(utterance.id)
            left_s -= utterance.duration_s
        return [utterance for utterance in utterances if utterance.id in drawn]


class QualityProblem(NamedTuple):
    """Reason why an utterance cannot be trained on; problems of one `kind` are counted together."""

    utterance_id: str
    file: str
    reason: str
    kind: str


class Unknown(NamedTuple):
    """Symbols of transcripts that the tokens lack: number of all symbols, and utterance ids by unknown symbol."""

    num_symbols: int
    utterance_ids: dict[str, list[str]]

    @property
    def share(self) -> float:
        """Share of unknown symbols among all symbols."""
        return sum(map(len, self.utterance_ids.values())) / max(self.num_symbols, 1)

    def __str__(self) -> str:
        count = sum(map(len, self.utterance_ids.values()))
        parts = [
            f"{symbol!r} {'once' if len(ids) == 1 else f'{len(ids)} times'} ({', '.join(list(dict.fromkeys(ids))[:3])})"
            for symbol, ids in sorted(self.utterance_ids.items(), key=lambda item: -len(item[1]))
        ]
        more = f", and {len(parts) - 20} other symbols" if len(parts) > 20 else ""
        return f"{count} of {self.num_symbols:,} symbols ({100 * self.share:.3g} %): {', '.join(parts[:20])}{more}"


class Outlier(NamedTuple):
    """Utterance whose transcript is far too long or too short for its audio."""

    utterance_id: str
    num_symbols: int
    duration_s: float
    median_rate: float
    """Symbols per second of the split."""


class QualityCriteria(NamedTuple):
    """Requirements of a corpus and a model on an utterance."""

    tokens: Tokenizer
    sample_rate: int
    channels: int | None
    limits: QualityLimits
    num_states: Callable[[int], int] | None
    """Number of encoded states of a number of samples; None: transcripts may have any length."""
    ctc: bool = True
    """CTC reads the states: two equal neighbours of a transcript need one more between them, for a blank."""


# Part of every entry: raise it when the meaning of an entry changes. Up to 1, joined files ended with their first part.
_FORMAT = 2
_HEADER_THREADS = 4

Headers = Mapping[str, files.AudioInfo | None]
"""Headers of audio files; None for those that cannot be read, for which the check of the corpus gives the reason."""
_Stretches = Collection[str]


def segment_key(utterance: Utterance) -> str:
    """Key of an utterance within its file: channel, start and duration in seconds."""
    return f"{utterance.channel} {utterance.start_s:.6f} {utterance.duration_s:.6f}"


class AudioScanCache:
    """Cache of audio scans in the file `path`, one JSON line each; without a path, in memory only.

    An entry is valid while the file has the same size and modification time. Files that could not be read have no
    entry and are tried again. Lines are appended as files are read, so that an interrupted check continues; of two
    entries the later one counts. A disk that refuses lines costs no more than reading the files again.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._entries: dict[str, list[Any]] = {}

    @classmethod
    @devices.garbage_paused()
    def remembered(cls, path: Path) -> "AudioScanCache":
        """Load the cache that earlier processes wrote to `path`; lines that are not entries are ignored."""
        readings = cls(path)
        with path.open("rb") if path.exists() else io.BytesIO() as lines:
            for _, value in bounded.parse_lines(lines):
                match value:
                    case [version, str(name), int(), int(), int(), int(), int(), dict()] if version == _FORMAT:
                        readings._entries[name] = value[2:]
        return readings

    @devices.garbage_paused()
    def read(self, utterances: Sequence[Utterance], num_workers: int, title: str) -> dict[str, AudioScan | DataError]:
        """Scan of each audio file of some utterances by file name, or the error of one that cannot be read.

        Files without an entry are read completely, once each, in threads. `title` describes them in the progress.
        """
        by_file: dict[str, set[str]] = {}
        for utterance in utterances:
            by_file.setdefault(utterance.audio, set()).add(segment_key(utterance))
        known, unread = self._recalled(by_file)
        return known | self._read(_read_all, unread, num_workers, title)

    def headers(self, paths: Iterable[str]) -> dict[str, files.AudioInfo | None]:
        """Read `Headers`, those without an entry from the files."""
        known, unread = self._recalled({path: () for path in paths})
        known |= self._read(_read_header, unread, _HEADER_THREADS, "audio headers read")
        return {path: scan.info if isinstance(scan, AudioScan) else None for path, scan in known.items()}

    def _recalled(
        self, by_file: Mapping[str, _Stretches]
    ) -> tuple[dict[str, AudioScan | DataError], dict[str, _Stretches]]:
        """Return scans of the files whose entries hold all their stretches, and the other files."""
        known: dict[str, AudioScan | DataError] = {}
        for name, stretches in by_file.items():
            if (entry := self._entries.get(name)) and entry[:2] == state(name) and entry[5].keys() >= set(stretches):
                levels = {key: AudioLevels(*entry[5][key]) for key in stretches}
                known[name] = AudioScan(files.AudioInfo(*entry[2:5]), levels)
        return known, {name: stretches for name, stretches in by_file.items() if name not in known}

    def _read(
        self,
        read: Callable[[str, _Stretches], tuple[AudioScan, list[int]] | DataError],
        unread: Mapping[str, _Stretches],
        num_workers: int,
        title: str,
    ) -> dict[str, AudioScan | DataError]:
        if not unread:
            return {}
        scans: dict[str, AudioScan | DataError] = {}
        lines: list[str] = []
        pool = ThreadPoolExecutor(num_workers, thread_name_prefix="las-readings")
        try:
            outcomes = zip(unread, pool.map(read, unread.keys(), unread.values()), strict=True)
            for name, outcome in progress.counted(outcomes, len(unread), title):
                if isinstance(outcome, DataError):
                    scans[name] = outcome
                    continue
                scans[name], file_state = outcome
                info, levels = outcome[0]
                self._entries[name] = entry = [*file_state, info.sample_rate, info.num_samples, info.channels, levels]
                lines.append(json.dumps([_FORMAT, name, *entry], separators=(",", ":")) + "\n")
                if len(lines) == 1000:
                    self._append(lines)
        finally:
            pool.shutdown(cancel_futures=True)
            self._append(lines)
        return scans

    def _append(self, lines: list[str]) -> None:
        if self.path is not None and lines:
            with contextlib.suppress(OSError):
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with self.path.open("a", encoding="ascii") as file:
                    file.writelines(lines)
        lines.clear()


def _read_all(name: str, stretches: _Stretches) -> tuple[AudioScan, list[int]] | DataError:
    try:
        return worker_pool.run_in_worker(name, measure, name, stretches)
    except DataError as error:
        return error


def _read_header(name: str, _: _Stretches) -> tuple[AudioScan, list[int]] | DataError:
    state_before = state(name)
    try:
        return AudioScan(files.info(name), {}), state_before
    except DataError as error:
        return error


def problems(
    utterances: Sequence[Utterance], criteria: QualityCriteria, readings: AudioScanCache, num_workers: int, title: str
) -> list[QualityProblem]:
    """List the first problem of each utterance that has one, in their order; audio is checked before the transcript."""
    scans = readings.read(utterances, num_workers, title)
    listed = []
    for utterance in utterances:
        try:
            require_audio(utterance, scans[utterance.audio], criteria)
            require_text(utterance, criteria)
        except DataError as error:
            listed.append(QualityProblem(utterance.id, utterance.audio, str(error), error.kind))
    return listed


def require_audio(utterance: Utterance, reading: AudioScan | DataError, criteria: QualityCriteria) -> None:
    """Raise DataError unless the audio of an utterance is complete, has the corpus's form, and is within the limits."""
    if isinstance(reading, DataError):
        raise reading
    end_s = utterance.start_s + utterance.duration_s
    reading.info.require(utterance.audio, criteria.sample_rate, end_s, criteria.channels)
    seconds, longest_s = utterance.duration_s, criteria.limits.longest_s
    if seconds < SHORTEST_S:
        raise DataError(f"too short: {seconds:.3f} s, shorter than one window of {SHORTEST_S} s", kind="too short")
    if seconds > longest_s:
        raise DataError(f"too long: {seconds:.1f} s, more than limits.longest_s={longest_s:g} s", kind="too long")
    sound = reading.sounds[segment_key(utterance)]
    if sound.peak == 0:
        raise DataError(f"silent: all its samples in {utterance.audio} are zero", kind="silent")
    if sound.clipped > criteria.limits.clipped:
        message = f"clipped: {100 * sound.clipped:.1f} % of the samples are at full scale, more than limits.clipped"
        raise DataError(f"{message}={criteria.limits.clipped:g}", kind="clipped")


def require_text(utterance: Utterance, criteria: QualityCriteria) -> None:
    """Raise DataError unless the tokens can write a transcript, and there are as many encoded states as it needs."""
    require_well_formed(utterance.text)
    num_symbols = criteria.tokens.length(utterance.text)
    if criteria.num_states is None:
        return
    states = criteria.num_states(num_samples(utterance, criteria.sample_rate))
    if num_symbols > states:
        message = f"the transcript has {num_symbols} symbols, more than the {states} states that the listener encodes"
        raise DataError(message, kind="more symbols than states")
    if criteria.ctc and 2 * num_symbols > states:
        symbols = criteria.tokens.split(utterance.text)
        equal = sum(one == other for one, other in itertools.pairwise(symbols))
        if num_symbols + equal > states:
            raise DataError(
                f"CTC cannot align the transcript: its {num_symbols} symbols and the blanks between {equal} equal "
                f"neighbours are more than the {states} states that the listener encodes",
                kind="CTC",
            )


def num_samples(utterance: Utterance, sample_rate: int) -> int:
    """Return the number of samples of an utterance at a rate in Hz."""
    return round(utterance.duration_s * sample_rate)


def require_well_formed(text: str) -> None:
    """Raise DataError for a transcript that is unusable with any tokens: empty, control characters, not in NFC."""
    if text.isascii() and text.isprintable() and not text.isspace() and text:
        return  # the usual case at the price of one look
    if not text.strip():
        raise DataError("the transcript is empty" + (" (only spaces)" if text else ""), kind="empty transcript")
    if control := next((character for character in text if unicodedata.category(character) == "Cc"), None):
        raise DataError(f"the transcript holds the control character {control!r}", kind="control characters")
    composed = unicodedata.normalize("NFC", text)
    if composed != text:
        index = num_equal(text, composed)
        before, after = ascii(text[index : index + 2]), ascii(composed[index : index + 1])
        message = f"the transcript is not in Unicode's composed form (NFC): {before} should be {after}"
        raise DataError(message, kind="decomposed Unicode")


def is_well_formed(text: str) -> bool:
    """Return whether `require_well_formed` accepts a transcript."""
    try:
        require_well_formed(text)
    except DataError:
        return False
    return True


def unknown_symbols(utterances: Sequence[Utterance], tokens: Tokenizer) -> Unknown:
    """Collect symbols of transcripts that the tokens lack, with an utterance id for every occurrence."""
    utterance_ids: dict[str, list[str]] = {}
    for utterance in utterances:
        for symbol in tokens.unknown(utterance.text):
            utterance_ids.setdefault(symbol, []).append(utterance.id)
    return Unknown(sum(len(tokens.split(utterance.text)) for utterance in utterances), utterance_ids)


def outliers(utterances: Sequence[Utterance], tokens: Tokenizer, factor: float = 3.0) -> list[Outlier]:
    """List utterances with more than `factor` times the median of symbols per second, or less than 1/`factor` of it.

    The farthest come first. Empty transcripts and unreadable audio are left out: `problems` lists them.
    """
    measured = [
        (utterance, len(tokens.split(utterance.text)))
        for utterance in utterances
        if utterance.duration_s > 0 and utterance.text.strip()
    ]
    if not measured:
        return []
    median = statistics.median(count / utterance.duration_s for utterance, count in measured)
    ratios = [(count / utterance.duration_s / median, utterance, count) for utterance, count in measured]
    far = [ratio for ratio in ratios if max(ratio[0], 1 / ratio[0]) > factor]
    far.sort(key=lambda ratio: (-max(ratio[0], 1 / ratio[0]), ratio[1].id))
    return [Outlier(utterance.id, count, utterance.duration_s, median) for _, utterance, count in far]
