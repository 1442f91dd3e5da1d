"""Speakers of the synthetic corpora, and processing of eSpeak's audio to recordings at 16 kHz."""

import bisect
import dataclasses
import functools
import random

import numpy as np

from las.data.synthesis.espeak import Speech
from las.data.synthesis.espeak_phones import ACCENTS
from las.runtime.errors import require_known

SAMPLE_RATE = 16000

# Variants of eSpeak that sound like a person: whispers, robots, voices that clip and echoes are left out (Alicia is one
# of these, and its second formant lies half as high again as in speech).
_FEMALE = "f1 f2 f3 f4 f5 Andrea Annie anika aunty belinda linda steph steph2 shelby grandma"
_MALE = """m1 m2 m3 m4 m5 m6 m7 m8 Alex Andy Denis Gene2 Lee Mario Michael Mike Reed adam benjamin boris david edward2
john klatt klatt3 klatt6 max mike2 miguel pedro quincy rob robert sandro travis victor iven4 kaukovalta"""
VARIANTS = {"F": _FEMALE.split(), "M": _MALE.split()}

LEVEL_DB = (-32.0, -20.0)  # of the speech, RMS below full scale
MARGIN_S = (0.06, 0.2)  # silence before and after the speech
PEAK = 0.98


@dataclasses.dataclass(frozen=True)
class Speaker:
    """Speaker: eSpeak's accent, variant and prosody, and the processing of the audio.

    name: as in TIMIT, F or M first. rate: words per minute. pitch, pitch_range: 0 to 99. stretch: above 1 the audio is
    longer and all its frequencies lower, as of a longer vocal tract. tilt_db: dB per octave above 1 kHz.
    """

    name: str
    accent: str
    variant: str
    rate: int
    pitch: int
    pitch_range: int
    stretch: float
    tilt_db: float

    @property
    def dialect(self) -> int:
        """Number of TIMIT's dialect folder, from 1."""
        return ACCENTS.index(self.accent) + 1


def speakers(count: int, seed: int, accents: list[str], rate: tuple[int, int], warp: float) -> list[Speaker]:
    """Draw `count` distinct speakers with alternating accents and sexes; variants repeat only after all were used.

    rate: slowest and fastest, words per minute. warp: the vocal tract is stretched by at most this share.
    Raises ConfigError for an unknown accent.
    """
    for accent in accents:
        require_known("accents", accent, ACCENTS)
    draw = random.Random(f"speakers {seed}")
    waiting: dict[tuple[str, str], list[str]] = {}
    cast: dict[str, Speaker] = {}
    while len(cast) < count:
        accent, sex = accents[len(cast) % len(accents)], "FM"[len(cast) // len(accents) % 2]
        variants = waiting.setdefault((accent, sex), [])
        if not variants:
            variants += draw.sample(VARIANTS[sex], len(VARIANTS[sex]))
        name = sex + "".join(draw.choices("ABCDEFGHIJKLMNOPQRSTUVWXYZ", k=3)) + "0"
        if name in cast:
            continue
        cast[name] = Speaker(
            name=name,
            accent=accent,
            variant=variants.pop(),
            rate=draw.randint(*rate),
            pitch=draw.randint(35, 65),
            pitch_range=draw.randint(30, 70),
            stretch=round(1 + draw.uniform(-warp, warp), 3),
            tilt_db=round(draw.uniform(-2, 2), 2),
        )
    return list(cast.values())


@dataclasses.dataclass(frozen=True)
class Rendered:
    """Speech as a recording at 16 kHz.

    pcm: int16 [samples], with noise. clean: float [samples], without noise. eSpeak's sample n is
    sample `offset + scale * n`.
    """

    pcm: np.ndarray
    clean: np.ndarray
    scale: float
    offset: int


def render(speech: Speech, speaker: Speaker, snr_db: tuple[float, float], draw: np.random.Generator) -> Rendered:
    """Turn eSpeak's audio into a recording: resampled, tilted, scaled, with margins of silence and added noise.

    snr_db: range of signal-to-noise ratios in dB. draw: source of level, noise and margins.
    """
    level = 10 ** (draw.uniform(*LEVEL_DB) / 20)
    margin_before, margin_after = (int(SAMPLE_RATE * draw.uniform(*MARGIN_S)) for _ in range(2))
    noise_rms = level * 10 ** (-draw.uniform(*snr_db) / 20)
    colour = draw.uniform(0.0, 1.0)

    audio = np.frombuffer(speech.pcm, dtype=np.int16) / 32768
    voiced, scale = _resample(audio, SAMPLE_RATE / speech.sample_rate * speaker.stretch, speaker.tilt_db)
    voiced *= min(level / max(np.sqrt(np.mean(voiced**2)), 1e-9), PEAK / max(np.abs(voiced).max(), 1e-9))
    clean = np.concatenate([np.zeros(margin_before), voiced, np.zeros(margin_after)])
    noisy = clean + noise_rms * _noise(len(clean), colour, draw)
    pcm = np.round(np.clip(noisy, -1, 1) * 32767).astype("<i2")
    return Rendered(pcm, clean, scale, margin_before)


def _resample(audio: np.ndarray, scale: float, tilt_db: float) -> tuple[np.ndarray, float]:
    """Resample to about `scale` times as many samples (band-limited), and tilt the spectrum above 1 kHz.

    Lengths are rounded to products of small primes for fast transforms. Returns float [samples] and the exact scale.
    """
    padded = _fast_length(len(audio))
    length = _fast_length(round(padded * scale))
    spectrum = np.fft.rfft(audio, padded)
    bins = np.zeros(length // 2 + 1, dtype=complex)
    num_bins = min(len(spectrum), len(bins) - 1)  # nothing at the new Nyquist frequency
    octaves = np.log2(np.maximum(np.arange(num_bins) * SAMPLE_RATE / length / 1000, 1))
    bins[:num_bins] = spectrum[:num_bins] * 10 ** (tilt_db * octaves / 20)
    exact = length / padded
    return np.fft.irfft(bins, length)[: round(len(audio) * exact)] * exact, exact


def _noise(length: int, colour: float, draw: np.random.Generator) -> np.ndarray:
    """Gaussian noise of RMS 1 whose power falls as frequency to the power -2 * colour above 100 Hz: float [length]."""
    padded = _fast_length(length)
    spectrum = np.fft.rfft(draw.standard_normal(padded))
    frequencies = np.arange(len(spectrum)) * SAMPLE_RATE / padded
    shaped = np.fft.irfft(spectrum * np.maximum(frequencies / 100, 1) ** -colour, padded)[:length]
    return np.asarray(shaped / np.sqrt(np.mean(shaped**2)))


@functools.cache
def _smooth_numbers(largest: int) -> list[int]:
    """Numbers up to `largest` without a prime factor above 11, in order."""
    numbers = [1]
    for factor in (2, 3, 5, 7, 11):
        for number in numbers:  # grows while it is read
            if number * factor <= largest:
                numbers.append(number * factor)
    return sorted(numbers)


def _fast_length(length: int) -> int:
    """Smallest number from `length` up with small prime factors only; near 50,000 at most 1 % larger."""
    numbers = _smooth_numbers(2 ** (length.bit_length() + 1))
    return numbers[bisect.bisect_left(numbers, length)]
