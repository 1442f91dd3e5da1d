"""Distortions of waveforms: what noise, rooms and channels have in common.

A distortion is a function of a waveform and a generator of random numbers. Arithmetic is in double precision and in
one thread, so that the same draws give the same samples whatever else the process does.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from las.config.build import require, shown
from las.runtime.errors import ArgumentError

Waveform = np.ndarray
"""Samples in double precision, full scale 1."""


class Talkers(NamedTuple):
    """Utterances that babble is mixed from: how many there are, and the waveform of each."""

    number: int
    read: Callable[[int], Waveform]


class Range:
    """A number that is drawn uniformly between two bounds, or fixed.

    Args:
        key: name of the argument, for errors.
        value: one number, or the two bounds.
        lowest, highest: limits of both bounds.

    Raises ArgumentError naming the key.
    """

    def __init__(self, key: str, value: float | Sequence[float], lowest: float, highest: float) -> None:
        bounds = [value, value] if isinstance(value, (int, float)) else list(value)
        if len(bounds) != 2 or not lowest <= bounds[0] <= bounds[1] <= highest:
            expected = f"a number from {lowest:g} to {highest:g}, or two of them, the lower first"
            raise ArgumentError(f"{key}={shown(value)} must be {expected}")
        self.low, self.high = map(float, bounds)

    def draw(self, generator: torch.Generator) -> float:
        """Draw the number."""
        return self.low + (self.high - self.low) * uniform(generator)

    def __str__(self) -> str:
        return f"{self.low:g}" if self.low == self.high else f"{self.low:g}-{self.high:g}"


class Distortion:
    """Base class of distortions, each of a `share` of the utterances; a subclass defines `distort` and `label`.

    Args:
        share: probability that an utterance is distorted.
    """

    def __init__(self, *, share: float = 1.0) -> None:
        require("share", share, 0.0, 1.0)
        self.share = share

    def __call__(
        self, waveform: Waveform, sample_rate: int, generator: torch.Generator, talkers: Talkers
    ) -> tuple[Waveform, dict[str, Any] | None]:
        """Return the distorted waveform, as long as before, and what was drawn; None where nothing was to be done.

        Digital silence stays silence.
        """
        if uniform(generator) >= self.share or not power(waveform):
            return waveform, None
        return self.distort(waveform, sample_rate, generator, talkers)

    def distort(
        self, waveform: Waveform, sample_rate: int, generator: torch.Generator, talkers: Talkers
    ) -> tuple[Waveform, dict[str, Any]]:
        """Return the distorted waveform and what was drawn."""
        raise TypeError(f"{type(self).__name__} must define distort")

    def check(self, sample_rate: int) -> list[str]:
        """Read what can be read before the first utterance; lines about it.

        Raises DataError or ConfigError for what cannot be used at this sample rate.
        """
        return []

    @property
    def label(self) -> str:
        """A few characters for file names: `pink_10dB`."""
        raise TypeError(f"{type(self).__name__} must define label")


def uniform(generator: torch.Generator) -> float:
    """A number drawn from 0 to below 1."""
    return float(torch.rand((), generator=generator, dtype=torch.float64))


def index(count: int, generator: torch.Generator) -> int:
    """A whole number drawn from 0 to below `count`."""
    return int(torch.randint(count, (), generator=generator))


def normal(count: int, generator: torch.Generator) -> Waveform:
    """Normal numbers of variance 1."""
    return torch.randn(count, generator=generator, dtype=torch.float64).numpy()


def power(waveform: Waveform) -> float:
    """Mean square of the samples; 0 without samples."""
    return float(np.square(waveform).mean()) if len(waveform) else 0.0


def decibels(ratio: float) -> float:
    """A ratio of powers in dB."""
    return float(10.0 * np.log10(ratio))


def from_decibels(level: float) -> float:
    """A ratio of powers from dB."""
    return float(10.0 ** (level / 10.0))


def convolve(waveform: Waveform, response: Waveform) -> Waveform:
    """Full linear convolution, by FFT."""
    length = len(waveform) + len(response) - 1
    size = 1 << (length - 1).bit_length()
    return np.fft.irfft(np.fft.rfft(waveform, size) * np.fft.rfft(response, size), size)[:length]
