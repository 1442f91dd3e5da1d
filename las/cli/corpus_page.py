"""The page of a prepared corpus: lengths, rates, levels, speakers, symbols, what is left out, and samples to hear."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from las.data.audio import embedded
from las.data.manifest import Utterance
from las.data.quality import QualityProblem, segment_key
from las.runtime import templates
from las.runtime.errors import DataError
from las.training.data_preparation import PreparedCorpus

BARS = 24
SAMPLES = 3
LISTED = 200
"""Rows of a table of speakers, symbols or utterances."""

Histogram = list[tuple[str, int, float]]
"""First value, count and share of the highest count of each bar."""


def render(data: PreparedCorpus, problems: Mapping[str, Sequence[QualityProblem]]) -> str:
    """Render the page; `problems` are those of each split, whose audio has been read."""
    corpus = data.corpus
    bad = {split: {each.utterance_id for each in listed} for split, listed in problems.items()}
    peaks = {split: _peaks(data, listed) for split, listed in data.splits.items()}
    listed = [(each.utterance_id, split, each.reason) for split, some in problems.items() for each in some]
    more = [(f"and {len(listed) - LISTED:,} more", "", "")] if len(listed) > LISTED else []
    return templates.render(
        "corpus.html",
        title=corpus.name,
        about=f"{corpus.sample_rate:,} Hz, {corpus.tokens.size - 1} symbols, scored by {corpus.metric}",
        headings=["split", "utterances", "hours", "speakers", "left out"],
        splits=[
            [split, f"{len(each):,}", f"{_hours(each):.2f}", len({one.speaker for one in each}), len(bad[split])]
            for split, each in data.splits.items()
        ],
        parts=[
            {
                "name": split,
                "histograms": _histograms(data, each, peaks[split]),
                "samples": [
                    (one.id, one, heard) for one in _spread(each, bad[split]) if (heard := embedded.sound(one))
                ],
            }
            for split, each in data.splits.items()
            if each
        ],
        split_names=list(data.splits),
        speakers=_speakers(data, peaks),
        symbols=_symbols(data),
        left_out=[*listed[:LISTED], *more],
    )


def _hours(utterances: Sequence[Utterance]) -> float:
    return sum(each.duration_s for each in utterances) / 3600


def _peaks(data: PreparedCorpus, utterances: Sequence[Utterance]) -> dict[str, float]:
    """Peaks in dB of full scale of the utterances whose audio can be read, by id; silence is left out."""
    scans = data.readings.read(utterances, 1, "")
    peaks = {}
    for each in utterances:
        scan = scans[each.audio]
        if not isinstance(scan, DataError) and (peak := scan.sounds[segment_key(each)].peak) > 0:
            peaks[each.id] = 20 * math.log10(peak)
    return peaks


def _rate(data: PreparedCorpus, utterance: Utterance) -> float:
    return data.corpus.tokens.length(utterance.text) / max(utterance.duration_s, 1e-9)


def _histograms(data: PreparedCorpus, utterances: Sequence[Utterance], peaks: Mapping[str, float]) -> list[Any]:
    values = {
        "seconds": [each.duration_s for each in utterances],
        "symbols in a second": [_rate(data, each) for each in utterances],
        "peak, dB of full scale": list(peaks.values()),
    }
    return [(title, histogram(some)) for title, some in values.items() if some]


def histogram(values: Sequence[float]) -> Histogram:
    """Count values in BARS bars of equal width."""
    low, high = min(values), max(values)
    width = (high - low) / BARS or 1.0
    counts = Counter(min(int((value - low) / width), BARS - 1) for value in values)
    return [(f"{low + bar * width:.1f}", counts[bar], counts[bar] / max(counts.values())) for bar in range(BARS)]


def _spread(utterances: Sequence[Utterance], bad: set[str]) -> list[Utterance]:
    """Sound utterances from the whole list, none too long for a page."""
    sound = [each for each in utterances if each.id not in bad and each.duration_s <= embedded.LONGEST_S]
    return sound[:: max(1, len(sound) // SAMPLES)][:SAMPLES]


def _speakers(data: PreparedCorpus, peaks: Mapping[str, Mapping[str, float]]) -> list[list[Any]]:
    rows = []
    for split, utterances in data.splits.items():
        by_speaker: dict[str, list[Utterance]] = {}
        for each in utterances:
            by_speaker.setdefault(each.speaker, []).append(each)
        for speaker, own in by_speaker.items():
            levels = [peaks[split][each.id] for each in own if each.id in peaks[split]]
            rates = f"{median(_rate(data, each) for each in own):.1f}"
            level = f"{median(levels):.1f}" if levels else "-"
            rows.append([speaker, split, len(own), f"{60 * _hours(own):.1f}", rates, level])
    more = [[f"and {len(rows) - LISTED:,} more", *[""] * 5]] if len(rows) > LISTED else []
    return [*rows[:LISTED], *more]


def _symbols(data: PreparedCorpus) -> list[list[Any]]:
    """Return counts of the symbols in each split, the most frequent first."""
    tokens = data.corpus.tokens
    counts = {
        split: Counter(symbol for each in utterances for symbol in tokens.split(each.text))
        for split, utterances in data.splits.items()
    }
    total = sum(counts.values(), Counter())
    shown = [(symbol if symbol.strip() else repr(symbol), symbol) for symbol, _ in total.most_common(LISTED)]
    return [[label, *(f"{each[symbol]:,}" for each in counts.values())] for label, symbol in shown]
