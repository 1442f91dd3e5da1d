"""Is an utterance sound? What its audio and its transcript must be like to be trained on, and to be decoded at all."""

import statistics
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from las.data.audio_levels import Reading, stretch
from las.data.audio_scan import Readings
from las.data.manifest import Utterance
from las.data.tokenizers import Tokens
from las.runtime.config import require
from las.runtime.errors import ArgumentError, DataError

SHORTEST_S = 0.025  # one analysis window

TRAINING_ONLY = frozenset(
    ("too long", "silent", "clipped", "empty transcript", "unknown symbols", "more symbols than states")
)
"""Kinds of problems that keep an utterance out of training, but do not hinder decoding and scoring it."""


@dataclass(frozen=True)
class Limits:
    """What is asked of training utterances beyond being readable.

    longest_s: seconds of an utterance. clipped: share of its samples at full scale. unknown: share of all symbols of a
    split that the tokens may lack (each is named); with more, nothing is trained. longest_tokens: of a transcript, None
    for no limit; longer ones are no fault of the corpus: they are counted, and left out.
    """

    longest_s: float = 60.0
    clipped: float = 0.01
    unknown: float = 0.001
    longest_tokens: int | None = None

    def __post_init__(self) -> None:
        if not self.longest_s >= SHORTEST_S:
            raise ArgumentError(f"longest_s={self.longest_s} must be at least one window of {SHORTEST_S} seconds")
        require("clipped", self.clipped, 0.0, 1.0)
        require("unknown", self.unknown, 0.0, 1.0)
        require("longest_tokens", self.longest_tokens, 1)


class Problem(NamedTuple):
    """Why an utterance cannot be trained on. `kind` is the same for problems that are counted together."""

    utterance_id: str
    file: str
    reason: str
    kind: str


class Unknown(NamedTuple):
    """Symbols of transcripts that the tokens lack: of how many symbols in all, and the utterances of each one."""

    num_symbols: int
    found: dict[str, list[str]]

    @property
    def share(self) -> float:
        return sum(map(len, self.found.values())) / max(self.num_symbols, 1)

    def __str__(self) -> str:
        count = sum(map(len, self.found.values()))
        each = [
            f"{symbol!r} {'once' if len(ids) == 1 else f'{len(ids)} times'} ({', '.join(list(dict.fromkeys(ids))[:3])})"
            for symbol, ids in sorted(self.found.items(), key=lambda item: -len(item[1]))
        ]
        more = f", and {len(each) - 20} other symbols" if len(each) > 20 else ""
        return f"{count} of {self.num_symbols:,} symbols ({100 * self.share:.2g} %): {', '.join(each[:20])}{more}"


class Outlier(NamedTuple):
    """An utterance whose transcript is far too long or too short for its audio."""

    utterance_id: str
    num_symbols: int
    duration_s: float
    median_rate: float
    """Symbols per second of the split."""


class Requirements(NamedTuple):
    """What a corpus and a model ask of an utterance."""

    tokens: Tokens
    sample_rate: int
    channels: int
    limits: Limits
    num_states: Callable[[int], int] | None
    """The listener's output rows for a number of samples; None: any transcript is short enough."""


def problems(
    utterances: Sequence[Utterance], asked: Requirements, readings: Readings, num_workers: int, what: str
) -> list[Problem]:
    """One entry for each utterance that has a problem, in their order: the first one found, audio before transcript."""
    found = readings.read(utterances, num_workers, what)
    listed = []
    for utterance in utterances:
        try:
            require_audio(utterance, found[utterance.audio], asked)
            require_text(utterance, asked)
        except DataError as error:
            listed.append(Problem(utterance.id, utterance.audio, str(error), error.kind))
    return listed


def require_audio(utterance: Utterance, reading: Reading | DataError, asked: Requirements) -> None:
    """Raise DataError unless the audio of an utterance is whole, of the right form and length, and not spoilt."""
    if isinstance(reading, DataError):
        raise reading
    end_s = utterance.start_s + utterance.duration_s
    reading.info.require(utterance.audio, asked.sample_rate, end_s, asked.channels)
    seconds, longest_s = utterance.duration_s, asked.limits.longest_s
    if seconds < SHORTEST_S:
        says = f"too short: {seconds:.3f} s, shorter than one window of {SHORTEST_S} s"
        raise DataError(says, kind="too short")
    if seconds > longest_s:
        says = f"too long: {seconds:.1f} s, more than limits.longest_s={longest_s:g} s"
        raise DataError(says, kind="too long")
    sound = reading.sounds[stretch(utterance)]
    if sound.peak == 0:
        raise DataError(f"silent: all its samples in {utterance.audio} are zero", kind="silent")
    if sound.clipped > asked.limits.clipped:
        says = f"clipped: {100 * sound.clipped:.1f} % of the samples are at full scale, more than limits.clipped"
        raise DataError(f"{says}={asked.limits.clipped:g}", kind="clipped")


def require_text(utterance: Utterance, asked: Requirements) -> None:
    """Raise DataError unless a transcript can be learned by these tokens from this many encoded states."""
    require_well_formed(utterance.text)
    num_symbols = len(asked.tokens.encode(utterance.text))
    if asked.num_states is None:
        return
    states = asked.num_states(round(utterance.duration_s * asked.sample_rate))
    if num_symbols > states:
        says = f"the transcript has {num_symbols} symbols, more than the {states} states the listener makes of it"
        raise DataError(says, kind="more symbols than states")


def require_well_formed(text: str) -> None:
    """Raise DataError for a transcript that no tokens should take, whatever their symbols."""
    if not text.strip():
        raise DataError("the transcript is empty" + (" (only spaces)" if text else ""), kind="empty transcript")
    control = next((character for character in text if unicodedata.category(character) == "Cc"), None)
    if control is not None:
        raise DataError(f"the transcript holds the control character {control!r}", kind="control characters")
    composed = unicodedata.normalize("NFC", text)
    if composed != text:
        index = next((i for i, (a, b) in enumerate(zip(text, composed, strict=False)) if a != b), len(composed))
        before, after = ascii(text[index : index + 2]), ascii(composed[index : index + 1])
        says = f"the transcript is not in Unicode's composed form (NFC): {before} should be {after}"
        raise DataError(says, kind="decomposed Unicode")


def is_well_formed(text: str) -> bool:
    """Whether `require_well_formed` has nothing to say."""
    try:
        require_well_formed(text)
    except DataError:
        return False
    return True


def unknown_symbols(utterances: Sequence[Utterance], tokens: Tokens) -> Unknown:
    """What of the transcripts the tokens lack; a symbol names its utterance as often as it occurs there."""
    num_symbols = 0
    found: dict[str, list[str]] = {}
    for utterance in utterances:
        num_symbols += len(tokens.split(utterance.text))
        for symbol in tokens.unknown(utterance.text):
            found.setdefault(symbol, []).append(utterance.id)
    return Unknown(num_symbols, found)


def outliers(utterances: Sequence[Utterance], tokens: Tokens, factor: float = 3.0) -> list[Outlier]:
    """Utterances with more than `factor` times the median of symbols per second, or less than one `factor`-th of it.

    The worst first. Empty transcripts and unreadable audio do not count: they are problems.
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
    far = [each for each in ratios if max(each[0], 1 / each[0]) > factor]
    far.sort(key=lambda each: (-max(each[0], 1 / each[0]), each[1].id))
    return [Outlier(utterance.id, count, utterance.duration_s, median) for _, utterance, count in far]
