"""Gammatone filters in C++ (`gammatone.h`): their recursion sample by sample, all filters side by side.

The equations are those of `las.nn.gammatone`, which computes them by Fourier transforms elsewhere.
"""

import ctypes
from typing import NamedTuple

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from las.nn.kernels.cpp import layer as cpu
from las.nn.kernels.cpp.recurrence import Doubles, Structure, dense


class FilterBank(NamedTuple):
    """Coefficients of the sections of each filter, and its gain: r cos(theta), r^2, g^4."""

    real: Float64[Tensor, "filters"]
    squared: Float64[Tensor, "filters"]
    gain: Float64[Tensor, "filters"]


class GammatoneStructure(Structure):
    """The structure `Gammatone` of `gammatone.h`, field by field."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("batch", "samples", "filters", "frames", "length", "shift")),
        *((name, Doubles) for name in (*FilterBank._fields, "window")),
        *((name, ctypes.c_void_p) for name in ("waveforms", "integrals")),
    )


def can_filter(waveforms: Tensor) -> bool:
    """True if the library can filter these waveforms: on a CPU, in fp32 or fp64, without gradients."""
    if waveforms.device.type != "cpu" or waveforms.dtype not in (torch.float32, torch.float64):
        return False
    return not waveforms.requires_grad and not torch.compiler.is_exporting() and cpu.is_available()


def integrals(
    waveforms: Float[Tensor, "batch samples"], bank: FilterBank, window: Float[Tensor, "length"], shift: int
) -> Float[Tensor, "batch frames filters"]:
    """Windowed sums of the rectified outputs of the filters, for whole frames of at least one."""
    waveforms, window = dense(waveforms), dense(window.double())
    bank = FilterBank(*(dense(part.double()) for part in bank))
    (batch, samples), length = waveforms.shape, len(window)
    frames = 1 + (samples - length) // shift
    sums = waveforms.new_empty(batch, frames, len(bank.real))
    structure = GammatoneStructure(batch, samples, len(bank.real), frames, length, shift)
    structure.point(**bank._asdict(), window=window, waveforms=waveforms, integrals=sums)
    name = f"filter_frames_{str(waveforms.dtype).removeprefix('torch.')}"
    getattr(cpu.library(), name)(ctypes.byref(structure), ctypes.c_int64(torch.get_num_threads()))
    return sums
