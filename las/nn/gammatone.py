"""Gammatone features: a model of the ear's filters in the place of mel filters (Schlüter et al. 2007).

    H_i(z) = [g_i (1 - r_i cos(theta_i) / z) / (1 - 2 r_i cos(theta_i) / z + r_i^2 / z^2)]^4
    row = DCT [(0.00035 sum_t hann_t |y_t,i|)^(1/10)]

r_i = exp(-2 pi b_i / rate) with b_i = 24.7 (0.00437 f_i + 1) Hz, theta_i = 2 pi f_i / rate, and g_i a gain of 1 at
theta_i. The centres are evenly spaced along the basilar membrane (Greenwood 1990): f = 165.4 (10^(2.1 x) - 0.88) Hz.
Constants and windows are those of RASR (Signal/GammaTone.cc), on samples of 16 bits.
"""

import ctypes
import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Complex, Float, Float64
from torch import Tensor, nn

from las.config.build import require
from las.nn.features import Features, Rows, Waveforms
from las.nn.kernels.choice import Compiled, Differences
from las.nn.kernels.cpp.tensors import Doubles, Structure, call, dense
from las.nn.normalisation import Lengths, mask_of
from las.runtime import devices
from las.runtime.errors import ArgumentError

ORDER = 4
"""Equal sections of a filter."""
RESPONSE_S = 0.128
"""Time after which no filter answers any more: that of 100 Hz has fallen to 1e-8 of its peak."""
FULL_SCALE = 32768.0
"""Samples of 16 bits for a sample of 1."""
SCALE = 0.00035
ROOT = 0.1
GREENWOOD = (165.4, 2.1, 0.88)
ERB = (24.7, 0.00437)


class FilterBank(NamedTuple):
    """Coefficients of the sections of each filter, and its gain: r cos(theta), r^2, g^4."""

    real: Float64[Tensor, " filters"]
    squared: Float64[Tensor, " filters"]
    gain: Float64[Tensor, " filters"]


class Gammatone(Features):
    """Tenth roots of the outputs of gammatone filters, decorrelated by a cosine transform.

    Args (`options` are those of `Features`; RASR has preemphasis=1.0):
        num_filters: filters, and features of a frame.
        low_hz, high_hz: centres of the first and the last one; None: 95 % of half the sample rate, 3,800 Hz of
            telephone speech.
        floor: added before the root, so that digital silence and what is nearly silent have the same features; RASR has
            none. Noise of rounding to 16 bits lies above it, at 6e-5 in the filter of 100 Hz.

    >>> import las, torch
    >>> features = las.Gammatone(8000, num_filters=40, preemphasis=1.0)
    >>> rows, num_frames = features(torch.randn(2, 8000), torch.tensor([8000, 4500]))
    >>> rows.shape, num_frames.tolist()
    (torch.Size([2, 98, 40]), [98, 54])
    """

    def __init__(
        self,
        sample_rate: int,
        *,
        num_filters: int = 40,
        low_hz: float = 100.0,
        high_hz: float | None = None,
        floor: float = 1e-5,
        **options: Any,
    ) -> None:
        super().__init__(sample_rate, **options)
        require("num_filters", num_filters, 2)
        require("low_hz", low_hz, 50.0)
        require("floor", floor, 0.0)
        high = 0.95 * sample_rate / 2 if high_hz is None else high_hz
        if not low_hz < high <= sample_rate / 2:
            raise ArgumentError(f"high_hz={high:g} must be above low_hz={low_hz:g} and at most {sample_rate / 2:g}")
        self.num_filters, self.floor = num_filters, floor
        self.past = round(RESPONSE_S * sample_rate)
        self.past_samples = self.past + 1
        self.block = 3 * self.past
        self.bank = filter_bank(centres(low_hz, high, num_filters), sample_rate)
        impulses = torch.fft.irfft(responses(centres(low_hz, high, num_filters), sample_rate, 4 * self.past))
        # As times, not as frequencies, whose rounding would let outputs depend on what follows them.
        self.register_buffer("impulses", impulses[:, : self.past].float(), persistent=False)
        self.register_buffer("window", torch.hann_window(self.frame_length, periodic=False), persistent=False)
        dct = devices.torchaudio().functional.create_dct(num_filters, num_filters, "ortho")
        self.register_buffer("dct", dct, persistent=False)
        self.register_statistics()

    @property
    def size(self) -> int:
        return self.num_filters

    def raw(self, waveforms: Waveforms, num_samples: Lengths) -> tuple[Rows, Lengths]:
        """Features before normalisation; padding is silenced, since a Fourier transform would spread what is in it."""
        inside = mask_of(num_samples, waveforms.shape[1], waveforms.device)
        return super().raw(waveforms.masked_fill(~inside, 0.0), num_samples)

    def rows(self, waveforms: Waveforms) -> Rows:
        """Features of whole frames."""
        # In bfloat16 the first coefficient would drown the others: roots differ by little from each other.
        with torch.autocast(waveforms.device.type, enabled=False):
            roots = (SCALE * FULL_SCALE * self.integrals(waveforms) + self.floor) ** ROOT
            return roots @ self.get_buffer("dct")

    def integrals(self, waveforms: Waveforms) -> Float[Tensor, "batch frames filters"]:
        """Windowed sums of the rectified outputs of the filters, by the compiled recursion where it is available."""
        if waveforms.requires_grad or torch.compiler.is_exporting() or FILTERS.refusal(waveforms):
            return self.transformed(waveforms)
        return integrals(waveforms, self.bank, self.get_buffer("window"), self.frame_shift)

    def transformed(self, waveforms: Waveforms) -> Float[Tensor, "batch frames filters"]:
        """`integrals` by Fourier transforms."""
        frames = self.filtered(waveforms).abs().unfold(2, self.frame_length, self.frame_shift)
        return (frames @ self.get_buffer("window")).transpose(1, 2)

    def filtered(self, waveforms: Waveforms) -> Float[Tensor, "batch filters samples"]:
        """Return the outputs of the filters, by blocks with what preceded them (overlap-save).

        Blocks begin at the same samples whatever follows, so that an output depends on its own past alone.
        """
        num_samples = waveforms.shape[1]
        size = self.past + self.block
        padded = nn.functional.pad(waveforms, (self.past, -num_samples % self.block))
        blocks = torch.fft.rfft(padded.unfold(1, size, self.block))
        spectra = blocks.unsqueeze(1) * torch.fft.rfft(self.get_buffer("impulses"), n=size).unsqueeze(1)
        return torch.fft.irfft(spectra, n=size)[..., self.past :].flatten(2)[..., :num_samples]


def centres(low_hz: float, high_hz: float, num_filters: int) -> Float[Tensor, " filters"]:
    """Centre frequencies in Hz, evenly spaced along the basilar membrane, as float64."""
    scale, slope, offset = GREENWOOD
    low, high = (math.log10(hertz / scale + offset) / slope for hertz in (low_hz, high_hz))
    places = torch.linspace(low, high, num_filters, dtype=torch.float64)
    return scale * (10.0 ** (slope * places) - offset)


def filter_bank(centres_hz: Float[Tensor, " filters"], sample_rate: int) -> FilterBank:
    """Coefficients of the filters with these centre frequencies, as float64."""
    angles = 2.0 * math.pi * centres_hz / sample_rate
    radii = torch.exp(-2.0 * math.pi / sample_rate * ERB[0] * (ERB[1] * centres_hz + 1.0))
    real, squared = radii * torch.cos(angles), radii**2
    return FilterBank(real, squared, _section(real, squared, angles).abs() ** -ORDER)


def responses(centres_hz: Float[Tensor, " filters"], sample_rate: int, size: int) -> Complex[Tensor, "filters bins"]:
    """Frequency responses of the filters at the size // 2 + 1 frequencies of a Fourier transform."""
    real, squared, gain = (part.unsqueeze(1) for part in filter_bank(centres_hz, sample_rate))
    bins = 2.0 * math.pi * torch.arange(size // 2 + 1, dtype=torch.float64) / size
    return gain * _section(real, squared, bins) ** ORDER


def _section(real: Tensor, squared: Tensor, omega: Tensor) -> Tensor:
    """Return the frequency response of a section without its gain."""
    delay = torch.exp(-1j * omega)
    return (1.0 - real * delay) / (1.0 - 2.0 * real * delay + squared * delay**2)


class GammatoneStructure(Structure):
    """The structure `Gammatone` of `gammatone.h`, field by field."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("batch", "samples", "filters", "frames", "length", "shift")),
        *((name, Doubles) for name in (*FilterBank._fields, "window")),
        *((name, ctypes.c_void_p) for name in ("waveforms", "integrals")),
    )


def integrals(
    waveforms: Waveforms, bank: FilterBank, window: Float[Tensor, " length"], shift: int
) -> Float[Tensor, "batch frames filters"]:
    """Windowed sums of rectified outputs in C++ (`gammatone.h`), for whole frames of at least one."""
    waveforms, window = dense(waveforms), dense(window.double())
    bank = FilterBank(*(dense(part.double()) for part in bank))
    (batch, samples), length = waveforms.shape, len(window)
    frames = 1 + (samples - length) // shift
    sums = waveforms.new_empty(batch, frames, len(bank.real))
    structure = GammatoneStructure(batch, samples, len(bank.real), frames, length, shift)
    structure.point(**bank._asdict(), window=window, waveforms=waveforms, integrals=sums)
    call("filter_frames", waveforms.dtype, structure)
    return sums


def _trial() -> Differences:
    features = Gammatone(8000, num_filters=12).float()
    waveforms = torch.linspace(0, 99, 2 * 900, dtype=torch.float32).square().sin().view(2, 900)
    ours = integrals(waveforms, features.bank, features.get_buffer("window"), features.frame_shift)
    yield "the filters", ours, features.transformed(waveforms)


FILTERS = Compiled("gammatone filters", _trial, 1e-3)
