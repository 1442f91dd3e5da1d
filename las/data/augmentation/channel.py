"""Channels between microphone and recogniser: the band of a telephone, the level, companded codes of few bits."""

from collections.abc import Sequence

import numpy as np
from torch import Generator

from las.config.build import require
from las.data.augmentation.distortion import Distorted, Distortion, Range, Talkers, Waveform, convolve
from las.runtime.errors import ArgumentError, ConfigError

FILTER_S = 0.04
"""Length of the band filter in seconds; its edges are some 80 Hz wide."""


class TelephoneBand(Distortion):
    """Band-pass filter, by default the band of a telephone line; linear phase, without a delay.

    Args:
        low_hz: the lower frequency at which half of the amplitude passes.
        high_hz: the upper one.
        share: probability that an utterance is filtered.
    """

    def __init__(self, *, low_hz: float = 300.0, high_hz: float = 3400.0, share: float = 1.0) -> None:
        super().__init__(share=share)
        if not 0.0 < low_hz < high_hz:
            raise ArgumentError(f"low_hz={low_hz:g} must be above 0 and below high_hz={high_hz:g}")
        self.low_hz, self.high_hz = low_hz, high_hz

    def distort(self, waveform: Waveform, sample_rate: int, generator: Generator, talkers: Talkers) -> Distorted:
        response = band_filter(self.low_hz, self.high_hz, sample_rate)
        delay = len(response) // 2
        filtered = convolve(waveform, response)[delay : delay + len(waveform)]
        return filtered, {"low_hz": self.low_hz, "high_hz": self.high_hz}

    def check(self, sample_rate: int) -> list[str]:
        band_filter(self.low_hz, self.high_hz, sample_rate)  # raises now what it refuses
        return []

    @property
    def label(self) -> str:
        return f"band_{self.low_hz:g}-{self.high_hz:g}Hz"


class RandomGain(Distortion):
    """Another level of the whole utterance.

    Args:
        gain_db: the change of the level in dB, a number or two bounds.
        share: probability that an utterance gets another level.
    """

    def __init__(self, *, gain_db: float | Sequence[float] = (-10.0, 10.0), share: float = 1.0) -> None:
        super().__init__(share=share)
        self.gain_db = Range("gain_db", gain_db, -60.0, 60.0)

    def distort(self, waveform: Waveform, sample_rate: int, generator: Generator, talkers: Talkers) -> Distorted:
        gain_db = self.gain_db.draw(generator)
        return waveform * 10.0 ** (gain_db / 20.0), {"gain_db": gain_db}

    @property
    def label(self) -> str:
        return f"gain_{self.gain_db}dB"


class MuLaw(Distortion):
    """A codec of companded samples: the µ-law curve of ITU-T G.711 (µ = 255, the smooth curve and not its segments),
    quantised evenly. Samples beyond full scale are clipped.

    Args:
        bits: bits of a sample, 8 on a telephone line.
        share: probability that an utterance is coded.
    """

    def __init__(self, *, bits: int = 8, share: float = 1.0) -> None:
        super().__init__(share=share)
        require("bits", bits, 2, 16)
        self.bits = bits

    def distort(self, waveform: Waveform, sample_rate: int, generator: Generator, talkers: Talkers) -> Distorted:
        mu, steps = 255.0, 2 ** (self.bits - 1) - 1
        clipped = np.clip(waveform, -1.0, 1.0)
        codes = np.round(np.sign(clipped) * np.log1p(mu * np.abs(clipped)) / np.log1p(mu) * steps)
        return np.sign(codes) * np.expm1(np.abs(codes) / steps * np.log1p(mu)) / mu, {"bits": self.bits}

    @property
    def label(self) -> str:
        return f"mulaw_{self.bits}bit"


def band_filter(low_hz: float, high_hz: float, sample_rate: int) -> Waveform:
    """Impulse response of a band-pass filter: the difference of two low-passes, each a sinc in a Hamming window.

    Raises ConfigError for a band that does not lie below half of the sample rate.
    """
    if high_hz >= sample_rate / 2:
        raise ConfigError(
            f"augment.telephone.high_hz={high_hz:g} must be below half of the sample rate, {sample_rate / 2:g}"
        )
    half = round(FILTER_S / 2 * sample_rate)
    times = np.arange(-half, half + 1)
    ideal = [2 * edge / sample_rate * np.sinc(2 * edge / sample_rate * times) for edge in (low_hz, high_hz)]
    return (ideal[1] - ideal[0]) * np.hamming(len(times))
