"""Distortions of waveforms: what noise, rooms and channels have in common.

A distortion is a function of a waveform and a generator of random numbers. Arithmetic is in double precision and in
one thread, so that the same draws give the same samples whatever else the process does.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Generator

from las.config.build import require, shown
from las.data.audio import files
from las.runtime import devices
from las.runtime.errors import ArgumentError
from las.storage import folders

Waveform = np.ndarray
"""Samples in double precision, full scale 1."""
Distorted = tuple[Waveform, dict[str, Any]]
"""A distorted waveform, and what was drawn for it."""


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

    def draw(self, generator: Generator) -> float:
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
        self, waveform: Waveform, sample_rate: int, generator: Generator, talkers: Talkers
    ) -> tuple[Waveform, dict[str, Any] | None]:
        """Return the distorted waveform, as long as before, and what was drawn; None where nothing was to be done.

        Digital silence stays silence.
        """
        if uniform(generator) >= self.share or not power(waveform):
            return waveform, None
        return self.distort(waveform, sample_rate, generator, talkers)

    def distort(self, waveform: Waveform, sample_rate: int, generator: Generator, talkers: Talkers) -> Distorted:
        """Return the distorted waveform, and what was drawn."""
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


class AudioFolder:
    """Audio files of a folder and the folders in it, in the order of their paths; the first channel of each.

    Args:
        folder: the folder.
        key: name of the argument it came from, for errors.

    Raises ArgumentError for a folder that does not exist or holds no audio file.
    """

    def __init__(self, folder: str | Path, key: str = "folder") -> None:
        self.folder = Path(folder)
        if not self.folder.is_dir():
            raise ArgumentError(f"{key}={folder}: there is no such folder")
        found = folders.search(self.folder)
        audio = [path for path in found.files if path.suffix.lower() in files.SUFFIXES]
        self.paths = sorted(audio, key=lambda path: path.relative_to(self.folder).as_posix())
        self.remarks = found.remarks()
        if not self.paths:
            raise ArgumentError(f"{key}={folder}: {files.NOT_FOUND}")

    def check(self, sample_rate: int, what: str) -> list[str]:
        """Read every header; lines with the number of files, their length, what was left out and what is resampled.

        `what` are the files, in the plural. Raises DataError naming a file that cannot be read.
        """
        headers = [files.info(path) for path in self.paths]
        minutes = sum(header.duration_s for header in headers) / 60
        lines = [f"{what}: {len(headers)} files, {minutes:.1f} min, in {self.folder}", *self.remarks]
        others = Counter(header.sample_rate for header in headers if header.sample_rate != sample_rate)
        if others:
            rates = ", ".join(f"{count} of {rate} Hz" for rate, count in sorted(others.items()))
            lines.append(f"{what}: resampled to {sample_rate} Hz: {rates}")
        return lines

    def duration_s(self, index: int) -> float:
        """Duration of a file in seconds."""
        return files.info(self.paths[index]).duration_s

    def read(self, index: int, sample_rate: int, start_s: float = 0.0, duration_s: float | None = None) -> np.ndarray:
        """Return samples [samples] of a stretch of a file, resampled to `sample_rate`, in double precision."""
        path = self.paths[index]
        own_rate = files.info(path).sample_rate
        samples = torch.from_numpy(files.load(path, 0, start_s, duration_s))
        if own_rate != sample_rate:
            samples = devices.torchaudio().functional.resample(samples, own_rate, sample_rate)
        return samples.double().numpy()


def uniform(generator: Generator) -> float:
    """Return a number drawn from 0 to below 1."""
    return float(torch.rand((), generator=generator, dtype=torch.float64))


def index(count: int, generator: Generator) -> int:
    """Return a whole number drawn from 0 to below `count`."""
    return int(torch.randint(count, (), generator=generator))


def normal(count: int, generator: Generator) -> Waveform:
    """Return normal numbers of variance 1."""
    return torch.randn(count, generator=generator, dtype=torch.float64).numpy()


def power(waveform: Waveform) -> float:
    """Mean square of the samples; 0 without samples."""
    return float(np.square(waveform).mean()) if len(waveform) else 0.0


def decibels(ratio: float) -> float:
    """Return a ratio of powers in dB."""
    return float(10.0 * np.log10(ratio))


def from_decibels(level: float) -> float:
    """Return a ratio of powers from dB."""
    return float(10.0 ** (level / 10.0))


def convolve(waveform: Waveform, response: Waveform) -> Waveform:
    """Full linear convolution, by FFT."""
    length = len(waveform) + len(response) - 1
    size = 1 << (length - 1).bit_length()
    return np.fft.irfft(np.fft.rfft(waveform, size) * np.fft.rfft(response, size), size)[:length]
