"""Bootstrap confidence intervals of error rates, and comparisons of two systems on resampled tests.

Bisani and Ney, "Bootstrap estimates for confidence intervals in ASR performance evaluation", ICASSP 2004: as many
units as the test has are drawn with replacement, many times. Their units are utterances or, where there are enough of
them, speakers with all their utterances (`las.scoring.error_rates`).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

REPLICATIONS = 10_000  # as Bisani and Ney recommend
DRAWN = 1 << 18  # units that are drawn at once, which bounds the memory

Counts = np.ndarray[Any, np.dtype[np.int64]]


def interval(errors: Sequence[int], words: Sequence[int], seed: int = 0) -> tuple[float, float] | None:
    """Bootstrap 95 % interval of an error rate, from the errors and reference words of each unit that is drawn.

    It is the mean of the resampled rates plus and minus 1.96 standard deviations, not below 0; None if a resampled test
    has no words. Units are utterances or speakers.

    >>> from las.scoring import bootstrap
    >>> low, high = bootstrap.interval(errors=[0, 1, 0, 2, 1] * 20, words=[10] * 100)
    >>> f"{low:.3f} to {high:.3f}"
    '0.065 to 0.094'
    """
    drawn_errors, drawn_words = resample([errors, words], seed)
    if not drawn_words.all():
        return None
    rates = drawn_errors / drawn_words
    mean, half = float(rates.mean()), 1.96 * float(rates.std())
    return max(0.0, mean - half), mean + half


def share_won(first: Sequence[Sequence[int]], second: Sequence[Sequence[int]], seed: int = 0) -> float:
    """Share of resampled tests in which the second system has the lower rate. Each system: errors and words."""
    errors, words, other_errors, other_words = resample([*first, *second], seed)
    return float((other_errors * words < errors * other_words).mean())


def resample(counts: Sequence[Sequence[int]], seed: int) -> Counts:
    """Sums over the units of resampled tests, [kinds of counts, REPLICATIONS]; `counts` has one value for each unit in
    each row."""
    generator = np.random.default_rng(seed)
    table = np.asarray(counts, np.int64)
    units = table.shape[1]
    sums = np.empty((len(table), REPLICATIONS), np.int64)
    step = max(1, DRAWN // units)
    for start in range(0, REPLICATIONS, step):
        drawn = generator.integers(units, size=(min(step, REPLICATIONS - start), units))
        for kind, values in enumerate(table):
            sums[kind, start : start + step] = values[drawn].sum(axis=1)
    return sums
