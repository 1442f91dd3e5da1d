"""Additive noise at a drawn ratio of speech to noise: generated, mixed from other utterances, or from files.

The signal-to-noise ratio (SNR) is that of the mean powers over the whole utterance, pauses included.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Generator

from las.data.augmentation import distortion
from las.data.augmentation.distortion import AudioFolder, Distorted, Distortion, Range, Talkers, Waveform
from las.runtime.errors import ArgumentError, DataError, require_known

KINDS = ("white", "pink", "babble", "files")
_NO_TALKERS = "augment.noise: babble is mixed from other utterances, and there are none: leave it out of kinds"


class AdditiveNoise(Distortion):
    """Noise of one kind for each utterance, drawn with equal probability.

    Args:
        snr_db: signal-to-noise ratio in dB, a number or the bounds of a uniform draw.
        kinds: `white` (equal power at all frequencies), `pink` (power in inverse proportion to the frequency), `babble`
            (other utterances at once), `files` (a stretch of a file of `folder`; one that is too short is repeated).
        talkers: number of utterances that babble is mixed from, all with the same power; a number or two bounds.
        folder: the folder of the files, searched with the folders in it.
        share: probability that an utterance gets noise.
    """

    def __init__(
        self,
        *,
        snr_db: float | Sequence[float] = (0.0, 20.0),
        kinds: Sequence[str] = ("white", "pink", "babble"),
        talkers: int | Sequence[int] = (4, 8),
        folder: str | None = None,
        share: float = 1.0,
    ) -> None:
        super().__init__(share=share)
        self.snr_db = Range("snr_db", snr_db, -30.0, 100.0)
        self.talkers = Range("talkers", talkers, 1, 100)
        if not kinds or isinstance(kinds, str):
            raise ArgumentError(f"kinds={kinds} must list some of {', '.join(KINDS)}, for example [pink,babble]")
        for kind in kinds:
            require_known("kinds", kind, KINDS)
        if (folder is None) == ("files" in kinds):
            raise ArgumentError(
                "folder=null: kinds has files, so name their folder"
                if folder is None
                else f"folder={folder}: kinds lacks files, so none would be used: kinds=[files]"
            )
        self.kinds = tuple(kinds)
        self.files = None if folder is None else AudioFolder(folder)

    def distort(self, waveform: Waveform, sample_rate: int, generator: Generator, talkers: Talkers) -> Distorted:
        kind, snr_db = self.kinds[distortion.index(len(self.kinds), generator)], self.snr_db.draw(generator)
        details: dict[str, Any] = {}
        if kind == "white":
            noise = distortion.normal(len(waveform), generator)
        elif kind == "pink":
            noise = pink(len(waveform), generator)
        elif kind == "babble":
            count = round(self.talkers.draw(generator))
            noise, details = babble(len(waveform), count, talkers, generator), {"talkers": count}
        else:
            noise, details = self._stretch(len(waveform), sample_rate, generator)
        scale = (distortion.power(waveform) / (distortion.power(noise) * distortion.from_decibels(snr_db))) ** 0.5
        return waveform + scale * noise, {"kind": kind, "snr_db": snr_db, **details}

    def _stretch(self, length: int, sample_rate: int, generator: Generator) -> Distorted:
        """Return a drawn stretch of a drawn file, and which. Raises DataError for digital silence."""
        assert self.files is not None
        number, position = distortion.index(len(self.files.paths), generator), distortion.uniform(generator)
        spare_s = self.files.duration_s(number) - (length + 1) / sample_rate
        start_s = position * max(spare_s, 0.0)
        noise = self.files.read(number, sample_rate, start_s, (length + 1) / sample_rate if spare_s > 0 else None)
        noise = np.resize(noise, length)
        path = self.files.paths[number]
        if not distortion.power(noise):
            raise DataError(f"{path}: digital silence at {start_s:.2f} s cannot be added at any ratio: remove the file")
        return noise, {"file": path.relative_to(self.files.folder).as_posix(), "start_s": start_s}

    def check(self, sample_rate: int) -> list[str]:
        return [] if self.files is None else self.files.check(sample_rate, "noises")

    @property
    def label(self) -> str:
        return f"{'+'.join(self.kinds)}_{self.snr_db}dB"


def pink(length: int, generator: Generator) -> Waveform:
    """Noise whose power falls in inverse proportion to the frequency, 3 dB an octave, without a constant part."""
    spectrum = np.fft.rfft(distortion.normal(length, generator))
    frequencies = np.arange(len(spectrum), dtype=np.float64)
    spectrum[1:] /= np.sqrt(frequencies[1:])
    if length > 1:
        spectrum[0] = 0.0
    return np.fft.irfft(spectrum, length)


def babble(length: int, count: int, talkers: Talkers, generator: Generator) -> Waveform:
    """Sum of `count` drawn utterances of equal power, each from a drawn sample on, repeated where it is too short.

    Raises DataError when there are no utterances to draw from, or only silent ones are drawn.
    """
    if not talkers.number:
        raise DataError(_NO_TALKERS)
    mixture = np.zeros(length)
    for _ in range(count):
        speech, position = talkers.read(distortion.index(talkers.number, generator)), distortion.uniform(generator)
        if level := distortion.power(speech):
            mixture += np.resize(np.roll(speech, -int(position * len(speech))), length) / level**0.5
    if not distortion.power(mixture):
        raise DataError(_NO_TALKERS)
    return mixture
