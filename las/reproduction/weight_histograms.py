"""Distributions of parameters over training, from the histograms that a run left for TensorBoard."""

import itertools
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from las.storage import bounded

SHARES = (0.05, 0.1, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9, 0.95)
DECILES = [SHARES.index(share) for share in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)]


class Distribution(NamedTuple):
    """The distribution of a parameter at a step: quantiles at `SHARES`, and the standard deviation."""

    step: int
    quantiles: tuple[float, ...]
    deviation: float


def read(board: Path) -> dict[str, list[Distribution]]:
    """Distributions by parameter name and in order of steps, repeated steps once; empty without histograms."""
    if not [bounded.size(path, bounded.TENSORS) for path in board.glob("events.*")]:
        return {}
    from tensorboard.backend.event_processing import event_accumulator

    everything = {event_accumulator.HISTOGRAMS: 0, event_accumulator.TENSORS: 0}
    # It would warn of every run that was resumed.
    accumulator = event_accumulator.EventAccumulator(str(board), everything, purge_orphaned_data=False)
    accumulator.Reload()
    parameters = {}
    for name in accumulator.Tags()["histograms"]:
        last = {event.step: event.histogram_value for event in accumulator.Histograms(name)}
        parameters[name] = [_distribution(step, last[step]) for step in sorted(last)]
    return parameters


def _distribution(step: int, histogram: Any) -> Distribution:
    """Quantiles by straight lines within the bins."""
    counts, edges = np.asarray(histogram.bucket), np.asarray(histogram.bucket_limit)
    lower = np.concatenate([[histogram.min], np.maximum(edges[:-1], histogram.min)])
    upper = np.minimum(edges, histogram.max)
    reached = np.concatenate([[0.0], counts.cumsum()]) / max(counts.sum(), 1.0)
    places = np.concatenate([lower[:1], np.maximum(upper, lower)])
    mean = histogram.sum / max(histogram.num, 1.0)
    variance = max(histogram.sum_squares / max(histogram.num, 1.0) - mean**2, 0.0)
    return Distribution(step, tuple(map(float, np.interp(SHARES, reached, places))), float(variance**0.5))


def changes(steps: Sequence[Distribution]) -> list[float]:
    """The mean distance between deciles from one step to the next, in standard deviations of the later step.

    A parameter whose entries are all alike has no spread to measure in, and no change.
    """
    moved = []
    for before, after in itertools.pairwise(steps):
        distance = statistics.fmean(abs(after.quantiles[decile] - before.quantiles[decile]) for decile in DECILES)
        moved.append(distance / after.deviation if after.deviation > 1e-9 else 0.0)
    return moved


def is_matrix(name: str) -> bool:
    """True for a weight matrix or a filter by its name; false for a gain, a bias, or another vector."""
    return name.endswith("weight")


def notable(parameters: Mapping[str, list[Distribution]], limit: int = 8) -> dict[str, list[Distribution]]:
    """The parameters that a page shows: W, U and gains of the first cells of listener and speller."""
    endings = ("input_weight", "recurrent_weight", "gain")
    names = [name for name in parameters if ".cell" in name and name.endswith(endings) and ".backwards." not in name]
    names.sort(key=lambda name: (not name.startswith("listener.layers.0"), not name.startswith("speller"), name))
    return {name: parameters[name] for name in names[:limit]}
