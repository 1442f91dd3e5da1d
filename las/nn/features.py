"""Waveforms to feature rows, batched, on torchaudio's transforms.

A frame starts every `frame_shift_ms` and spans `frame_length_ms` of samples that all exist: there is no padding at the
ends, so a row depends on its own samples only and never on what a batch was padded with.
"""

import math
from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from las.config.build import require
from las.nn.normalisation import Lengths, mask_of, masked_mean
from las.nn.streaming import Window
from las.runtime import devices
from las.runtime.errors import ArgumentError, ConfigError, require_known

NORMALISATIONS = ("global", "utterance", "smoothed", "none")
LOCAL = ("global", "none")
"""Normalisations that need no other frame."""
FITTED = ("global", "smoothed")
"""Normalisations with statistics of the training set."""
PRIOR_FRAMES = 100.0
"""Frames that the statistics of the training set count as, besides those of an utterance (`smoothed`)."""
CHUNK_SAMPLES = {"cpu": 160_000, "cuda": 1 << 24}
"""Samples whose spectra are computed together: few enough to stay in the cache of a CPU; on a GPU a whole batch, unless
its spectra would take about a gigabyte."""
LOG_FLOOR = 1e-6
"""Floor of models whose config does not state one, those of releases before there was `log_floor`."""

Waveforms = Float[Tensor, "batch samples"]
Rows = Float[Tensor, "batch frames size"]


class Features(nn.Module):
    """Base class of features: framing, pre-emphasis, normalisation.

    A subclass defines `rows` and `size`, and calls `register_statistics` in its constructor once its size is known. One
    with time derivatives sets `orders` as well: `finish` appends them, and `size` counts them.

    Args:
        sample_rate: sample rate of the waveforms, in Hz.
        frame_length_ms, frame_shift_ms: window and hop.
        preemphasis: y_t = x_t - preemphasis * x_{t-1}; 0 for none.
        normalisation: normalisation of mean and variance per feature: `global` with statistics of the training set
            (buffers, stored in checkpoints), `utterance` with the utterance's own, `smoothed` with the utterance's own
            and those of the training set, which count as a second of speech more: the maximum a posteriori estimate,
            for utterances too short to be normalised by themselves; or `none`.
    """

    mean: Tensor
    deviation: Tensor
    past_samples = 1
    """Samples before a frame that it depends on: one by pre-emphasis."""
    orders = 1
    """The number of equal blocks of a row: the features of the frame, and their time derivatives if there are any."""

    def __init__(
        self,
        sample_rate: int,
        *,
        frame_length_ms: float = 25.0,
        frame_shift_ms: float = 10.0,
        preemphasis: float = 0.97,
        normalisation: str = "global",
    ) -> None:
        super().__init__()
        require("frame_length_ms", frame_length_ms, 1.0)
        require("frame_shift_ms", frame_shift_ms, 1.0)
        require("preemphasis", preemphasis, 0.0, 1.0)
        require_known("normalisation", normalisation, NORMALISATIONS)
        self.sample_rate = sample_rate
        self.frame_shift_ms = frame_shift_ms
        self.frame_length = round(sample_rate * frame_length_ms / 1000)
        self.frame_shift = round(sample_rate * frame_shift_ms / 1000)
        self.fft_size = 1 << (self.frame_length - 1).bit_length()
        self.preemphasis = preemphasis
        self.normalisation = normalisation

    @property
    def size(self) -> int:
        """Features per frame."""
        raise TypeError(f"{type(self).__name__} must define size")

    def rows(self, waveforms: Waveforms) -> Rows:
        """Unnormalised features of pre-emphasised waveforms."""
        raise TypeError(f"{type(self).__name__} must define rows")

    def finish(self, rows: Rows, num_frames: Lengths) -> Float[Tensor, "batch frames out"]:
        """Rows after all steps that need the true lengths: followed by their time derivatives."""
        parts = [rows]
        for _ in range(self.orders - 1):
            parts.append(time_derivative(parts[-1], num_frames))
        return torch.cat(parts, dim=-1) if len(parts) > 1 else rows

    def register_statistics(self) -> None:
        """Register the buffers that `fit` sets: mean 0, deviation 1. A subclass calls it once its size is known."""
        self.register_buffer("mean", torch.zeros(self.size))
        self.register_buffer("deviation", torch.ones(self.size))

    def num_frames(self, num_samples: Lengths) -> Lengths:
        """Return the number of whole windows: 1 + floor((samples - window) / shift), none for less than a window."""
        frames = 1 + torch.div(num_samples - self.frame_length, self.frame_shift, rounding_mode="floor")
        return frames.clamp(min=0)

    def raw(self, waveforms: Waveforms, num_samples: Lengths) -> tuple[Rows, Lengths]:
        """Features before normalisation, undefined in padding, and the true number of rows of each utterance."""
        if waveforms.shape[1] < self.frame_length:
            waveforms = nn.functional.pad(waveforms, (0, self.frame_length - waveforms.shape[1]))
        most = CHUNK_SAMPLES.get(waveforms.device.type, CHUNK_SAMPLES["cpu"])
        group = max(1, most // waveforms.shape[1])
        rows = torch.cat([self.rows(self._emphasised(part)) for part in waveforms.split(group)])
        num_frames = self.num_frames(num_samples)
        return self.finish(rows, num_frames), num_frames

    def _emphasised(self, waveforms: Waveforms) -> Waveforms:
        if not self.preemphasis:
            return waveforms
        # The first sample is its own predecessor, so that an offset does not start with a click.
        previous = torch.cat([waveforms[:, :1], waveforms[:, :-1]], dim=1)
        return waveforms - self.preemphasis * previous

    def forward(self, waveforms: Waveforms, num_samples: Lengths) -> tuple[Rows, Lengths]:
        """Normalised features [batch, frames, size], zero in padding, and the true number of rows of each."""
        rows, num_frames = self.raw(waveforms, num_samples)
        mask = mask_of(num_frames, rows.shape[1], rows.device).unsqueeze(-1)
        if self.normalisation == "global":
            rows = (rows - self.mean) / self.deviation
        elif self.normalisation != "none":
            mean = masked_mean(rows, mask, dim=1).unsqueeze(1)
            variance = masked_mean((rows - mean).square(), mask, dim=1).unsqueeze(1)
            if self.normalisation == "smoothed":
                count = num_frames.to(rows).view(-1, 1, 1)
                share = count / (count + PRIOR_FRAMES)
                mean = share * mean + (1.0 - share) * self.mean
                variance = share * variance + (1.0 - share) * self.deviation.square()
            rows = (rows - mean) / variance.sqrt().clamp(min=1e-5)
        return rows.masked_fill(~mask, 0.0), num_frames

    def stream(self, samples: Waveforms, state: Any = None, is_last: bool = False) -> tuple[Rows, Any]:
        """Return the rows that the next samples complete, and the state for those that follow.

        Args:
            samples: the next samples of each stream [batch, samples], as many of all.
            state: what the call before returned; None in the beginning.
            is_last: there are no more samples.

        All outputs together are those of `forward` on the whole. Raises ConfigError for a normalisation by the
        utterance.
        """
        if self.normalisation not in LOCAL:
            raise ConfigError(
                f"normalisation={self.normalisation} needs the whole utterance, and a stream has no end: train with "
                "model.features.normalisation=global"
            )
        around = 2 * (self.orders - 1) * self.frame_shift  # samples of the frames that time derivatives read
        before, after = around + self.past_samples, around + self.frame_length - self.frame_shift
        return Window(self, self.size, self.frame_shift, before, after)(samples, state, is_last)

    def fit(self, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Set the statistics of the training set from (waveforms [batch, samples], num_samples [batch]) of it."""
        count = 0.0
        total = torch.zeros(self.size, dtype=torch.float64)
        squares = torch.zeros(self.size, dtype=torch.float64)
        for waveforms, num_samples in batches:
            rows, num_frames = self.raw(waveforms.to(self.mean.device), num_samples)
            mask = mask_of(num_frames, rows.shape[1], rows.device)
            true_rows = rows[mask].double().cpu()
            count += len(true_rows)
            total += true_rows.sum(0)
            squares += true_rows.square().sum(0)
        mean = total / max(count, 1.0)
        variance = squares / max(count, 1.0) - mean.square()
        self.mean.copy_(mean)
        self.deviation.copy_(variance.clamp(min=1e-10).sqrt())


class LogMel(Features):
    """Logarithm of mel-filtered power (HTK mel scale), `num_mels` per frame.

    Args (`options` are those of `Features`):
        num_mels: filters between `low_hz` and `high_hz` (half the sample rate by default).
        energy: append the logarithm of the frame's energy.
        deltas: append that many orders of time derivatives (regression over +-2 frames), e.g. 2 for delta and
            delta-delta: 40 mels with energy and 2 orders are the 123 features of Ben Othman 2018's set-up.
        log_floor: energy that is added before the logarithm, so that digital silence has this energy. For samples of
            full scale 1 at 16 kHz, a full-scale sine has an energy of about 2e4 in its filter: 1e-6 is 103 dB below
            it, within the range of speech in the lowest filters; 1e-10 (ESPnet, Whisper) is 143 dB below it, the level
            of 16-bit rounding noise there.

    >>> import las, torch
    >>> features = las.LogMel(16000, num_mels=40, deltas=2)
    >>> rows, num_frames = features(torch.randn(2, 16000), torch.tensor([16000, 9000]))
    >>> rows.shape, num_frames.tolist()
    (torch.Size([2, 98, 120]), [98, 54])
    """

    def __init__(
        self,
        sample_rate: int,
        *,
        num_mels: int = 40,
        low_hz: float = 20.0,
        high_hz: float | None = None,
        energy: bool = False,
        deltas: int = 0,
        log_floor: float = LOG_FLOOR,
        **options: Any,
    ) -> None:
        super().__init__(sample_rate, **options)
        require("num_mels", num_mels, 1)
        require("deltas", deltas, 0)
        require("low_hz", low_hz, 0.0)
        if not 0.0 < log_floor < math.inf:
            raise ArgumentError(f"log_floor={log_floor} must be above 0, for example 1.0e-10")
        if not low_hz < (high := sample_rate / 2 if high_hz is None else high_hz) <= sample_rate / 2:
            raise ArgumentError(f"high_hz={high:g} must be above low_hz={low_hz:g} and at most {sample_rate / 2:g}")
        transforms = devices.torchaudio().transforms
        self.num_mels = num_mels
        self.energy = energy
        self.log_floor = log_floor
        self.orders = 1 + deltas
        self.spectrogram = transforms.Spectrogram(
            n_fft=self.fft_size,
            win_length=self.frame_length,
            hop_length=self.frame_shift,
            window_fn=torch.hamming_window,
            center=False,
        )
        self.mel_scale = transforms.MelScale(num_mels, sample_rate, low_hz, high_hz, self.fft_size // 2 + 1)
        self.register_statistics()

    @property
    def size(self) -> int:
        return (self.num_mels + int(self.energy)) * self.orders

    def rows(self, waveforms: Waveforms) -> Rows:
        # The transforms' own `forward` copies every frame twice and squares the root of a square: five times slower.
        frames = waveforms.unfold(1, self.frame_length, self.frame_shift)
        spectrum = torch.fft.rfft(frames * self.spectrogram.window, n=self.fft_size)
        power = spectrum.real.square() + spectrum.imag.square()
        logs = torch.log(power @ self.mel_scale.fb + self.log_floor)
        if not self.energy:
            return logs
        # Parseval: the energy of the windowed frame from its one-sided spectrum.
        energy = 2 * power.sum(-1) - power[..., 0] - power[..., -1]
        return torch.cat([logs, torch.log(energy / self.fft_size + self.log_floor).unsqueeze(-1)], dim=-1)


class MFCC(Features):
    """Mel-frequency cepstral coefficients: the DCT of log-mel rows.

    Args (`options` are those of `Features`):
        num_coefficients: kept, the first (overall energy) included.
        num_mels: filters below them.
        deltas: orders of time derivatives that are appended, 2 for speed and acceleration.
        log_floor: see `LogMel`.
    """

    def __init__(
        self,
        sample_rate: int,
        *,
        num_coefficients: int = 40,
        num_mels: int = 40,
        deltas: int = 0,
        log_floor: float = LOG_FLOOR,
        **options: Any,
    ) -> None:
        super().__init__(sample_rate, **options)
        require("num_coefficients", num_coefficients, 1)
        require("deltas", deltas, 0)
        if num_coefficients > num_mels:
            raise ArgumentError(f"num_coefficients={num_coefficients} exceeds num_mels={num_mels}")
        self.num_coefficients = num_coefficients
        self.orders = 1 + deltas
        self.log_mel = LogMel(sample_rate, num_mels=num_mels, log_floor=log_floor, **options)
        dct = devices.torchaudio().functional.create_dct(num_coefficients, num_mels, "ortho")
        self.register_buffer("dct", dct, persistent=False)
        self.register_statistics()

    @property
    def size(self) -> int:
        return self.num_coefficients * self.orders

    def rows(self, waveforms: Waveforms) -> Rows:
        return self.log_mel.rows(waveforms) @ self.get_buffer("dct")


def time_derivative(rows: Rows, num_frames: Lengths) -> Rows:
    """Regression slope over +-2 frames, the ends repeated within each utterance's true length (HTK book, eq. 5.16)."""
    positions = torch.arange(rows.shape[1], device=rows.device)
    last = (num_frames - 1).clamp(min=0).unsqueeze(1).to(rows.device, non_blocking=True)
    batch = torch.arange(rows.shape[0], device=rows.device).unsqueeze(1)
    slope = torch.zeros_like(rows)
    for distance in (1, 2):
        ahead = torch.minimum(positions + distance, last)
        behind = torch.minimum((positions - distance).clamp(min=0), last)
        slope = slope + distance * (rows[batch, ahead] - rows[batch, behind])
    return slope / 10.0
