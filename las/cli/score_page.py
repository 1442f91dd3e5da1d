"""Parts of the page of a score besides errors: rates of slices of the test, recordings of its worst utterances."""

import math
from collections.abc import Mapping
from pathlib import Path

from las.data import manifest
from las.data.audio import embedded
from las.data.manifest import Utterance
from las.runtime.errors import DataError
from las.scoring import error_rates, tables
from las.scoring.error_rates import Score

GROUPS = 4
HEARD = 20
"""Utterances of the most errors whose recordings are put into a page."""


def page(score: Score, metric: str, hypothesis: Path, convention: str, reference: Path) -> str:
    """Render the page of a score, with seconds, levels and recordings where the reference names its audio."""
    spoken = _spoken(reference)
    rates = {name: error_rates.count([alignment]) for name, alignment in score.utterances.items()}
    worst = sorted(rates, key=lambda name: -rates[name].errors)[:HEARD]
    sounds = {name: sound for name in worst if name in spoken and (sound := embedded.sound(spoken[name]))}
    properties: dict[str, dict[str, float]] = {
        error_rates.UNITS[metric]: {name: rate.words for name, rate in rates.items()},
        "seconds": {name: spoken[name].duration_s for name in score.utterances if name in spoken},
        "peak, dB": {
            name: peak for name in score.utterances if name in spoken and (peak := _peak(spoken[name])) is not None
        },
    }
    rows = [row for title, values in properties.items() for row in slices(score, title, values)]
    return tables.page(score, metric, hypothesis.name, convention, rows, sounds)


def slices(score: Score, title: str, values: Mapping[str, float]) -> list[tables.Slice]:
    """Rates of groups of utterances by a value of each, of about equal sizes; utterances of one value stay together."""
    if not values:
        return []
    ordered, found = sorted(values.values()), []
    edges = sorted({ordered[len(ordered) * number // GROUPS] for number in range(GROUPS)})
    for low, high in zip(edges, [*edges[1:], math.inf], strict=True):
        names = [name for name, value in values.items() if low <= value < high]
        rates = {name: error_rates.count([score.utterances[name]]) for name in names}
        together = {name: score.drawn_together[name] for name in names if name in score.drawn_together}
        total = error_rates.count(score.utterances[name] for name in names)
        largest = max(values[name] for name in names)
        label = f"{title} {low:.4g}" if low == largest else f"{title} {low:.4g} to {largest:.4g}"
        found.append(tables.Slice(label, total, error_rates.interval(rates, together)))
    return found if len(found) > 1 else []


def _spoken(reference: Path) -> dict[str, Utterance]:
    """Utterances by id of references that name their audio; empty for others."""
    try:
        return {each.id: each for each in manifest.read(reference)} if reference.suffix == ".jsonl" else {}
    except DataError:
        return {}


def _peak(utterance: Utterance) -> float | None:
    """Peak in dB of full scale; None for silence and for audio that cannot be read."""
    try:
        samples = embedded.samples(utterance)[0]
    except DataError:
        return None
    peak = float(abs(samples).max(initial=0.0))
    return 20 * math.log10(peak) if peak else None
