"""Reverberation: convolution with impulse responses of rooms, generated or from files.

A generated response is the direct sound and a tail of normal noise that decays exponentially, by 60 dB in the
reverberation time RT60 (Polack 1988; Habets 2007, chapter 2). It has no separate early reflections.
"""

from collections.abc import Sequence

import numpy as np
from torch import Generator

from las.data.augmentation import distortion
from las.data.augmentation.distortion import AudioFolder, Distorted, Distortion, Range, Talkers, Waveform
from las.runtime.errors import ArgumentError, DataError

RT60_S, DRR_DB = (0.2, 0.8), (-5.0, 10.0)
"""Default ranges of generated responses: small rooms to large ones, a talker across the room to one nearby."""


class Reverberation(Distortion):
    """Convolution with an impulse response, for each utterance another one.

    The speech keeps its length, its place in time (the direct sound, the largest sample of the response, is not
    delayed) and its mean power; what would sound after its end is cut off.

    Args:
        rt60_s: reverberation time of generated responses in seconds, a number or two bounds; None: 0.2 to 0.8.
        drr_db: ratio of the energies of direct sound and tail in dB, a number or two bounds; None: -5 to 10.
        folder: a folder of measured impulse responses, in place of generated ones; the first channel of each.
        share: probability that an utterance is reverberated.
    """

    def __init__(
        self,
        *,
        rt60_s: float | Sequence[float] | None = None,
        drr_db: float | Sequence[float] | None = None,
        folder: str | None = None,
        share: float = 1.0,
    ) -> None:
        super().__init__(share=share)
        if folder is not None and (rt60_s is not None or drr_db is not None):
            raise ArgumentError(f"folder={folder}: rt60_s and drr_db are of generated responses: leave them out")
        self.rt60_s = Range("rt60_s", RT60_S if rt60_s is None else rt60_s, 0.01, 10.0)
        self.drr_db = Range("drr_db", DRR_DB if drr_db is None else drr_db, -30.0, 60.0)
        self.files = None if folder is None else AudioFolder(folder)

    def distort(self, waveform: Waveform, sample_rate: int, generator: Generator, talkers: Talkers) -> Distorted:
        if self.files is None:
            rt60_s, drr_db = self.rt60_s.draw(generator), self.drr_db.draw(generator)
            response = impulse_response(rt60_s, drr_db, sample_rate, generator)
            return reverberated(waveform, response), {"rt60_s": rt60_s, "drr_db": drr_db}
        number = distortion.index(len(self.files.paths), generator)
        path, response = self.files.paths[number], self.files.read(number, sample_rate)
        if not distortion.power(response):
            raise DataError(f"{path}: an impulse response of digital silence: remove the file")
        return reverberated(waveform, response), {"file": path.relative_to(self.files.folder).as_posix()}

    def check(self, sample_rate: int) -> list[str]:
        return [] if self.files is None else self.files.check(sample_rate, "impulse responses")

    @property
    def label(self) -> str:
        return "rooms" if self.files is not None else f"room_{self.rt60_s}s"


def impulse_response(rt60_s: float, drr_db: float, sample_rate: int, generator: Generator) -> Waveform:
    """Return the direct sound, 1, and a tail of noise of RT60 seconds after it."""
    times = np.arange(1, max(round(rt60_s * sample_rate), 2)) / sample_rate
    tail = distortion.normal(len(times), generator) * 10.0 ** (-3.0 * times / rt60_s)
    tail /= (np.square(tail).sum() * distortion.from_decibels(drr_db)) ** 0.5
    return np.concatenate([[1.0], tail])


def reverberated(waveform: Waveform, response: Waveform) -> Waveform:
    """Convolution of the same length, place in time and mean power."""
    start = int(np.abs(response).argmax())
    wet = distortion.convolve(waveform, response)[start : start + len(waveform)]
    level = distortion.power(wet)
    return wet * (distortion.power(waveform) / level) ** 0.5 if level else wet
