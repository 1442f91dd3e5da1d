"""Dropout in C++ (`dropout.h`): the generator's numbers, the mask and the product in one pass.

It takes the same numbers of torch's generator as `reference`, and leaves the generator as that does.
"""

import ctypes
import sys
from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor

from las.nn.kernels.cpp import layer as cpu
from las.nn.kernels.cpp.recurrence import Bytes, Structure, dense
from las.nn.kernels.torch.allocator import allocator

BITS = 16
"""Random bits of a unit."""
UNITS = 64 // BITS
"""Units that share one random number."""

SHARED = 1 << 16
"""Units from which on threads share them."""


class DropoutStructure(Structure):
    """The structure `Dropout` of `dropout.h`, field by field."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("units", "least")),
        ("factor", ctypes.c_double),
        ("generator", Bytes),
        *((name, ctypes.c_void_p) for name in ("values", "factors", "scaled")),
    )


def reference(values: Float[Tensor, "*shape"], dropped: int) -> tuple[Float[Tensor, "*shape"], Float[Tensor, "*shape"]]:
    """The product of values and factors, and the factors, in torch's operations; see `drop`."""
    numbers = torch.empty(-(-values.numel() // UNITS), dtype=torch.int64, device=values.device)
    numbers.random_(-(1 << 63), None)
    drawn = numbers.view(torch.int16)[: values.numel()].view(values.shape)
    factors = allocator.empty_like(values).copy_(drawn >= _least(dropped)).mul_(_factor(dropped))
    return torch.mul(values, factors, out=allocator.empty_like(values)), factors


def drop(values: Float[Tensor, "*shape"], dropped: int) -> tuple[Float[Tensor, "*shape"], Float[Tensor, "*shape"]]:
    """The product of values and factors, and the factors: 0 with the probability dropped / 2^16.

    Other factors keep the mean. The C++ is used where it can be built and draws what torch does.
    """
    if values.dtype not in (torch.float32, torch.float64) or not agrees():
        return reference(values, dropped)
    return compiled(values, dropped)


def compiled(values: Float[Tensor, "*shape"], dropped: int) -> tuple[Float[Tensor, "*shape"], Float[Tensor, "*shape"]]:
    """`drop` in C++."""
    values, generator = dense(values), torch.get_rng_state()
    scaled, factors = allocator.empty_like(values), allocator.empty_like(values)
    structure = DropoutStructure(values.numel(), _least(dropped), _factor(dropped))
    structure.point(generator=generator, values=values, factors=factors, scaled=scaled)
    threads = torch.get_num_threads() if values.numel() >= SHARED else 1
    name = f"drop_{str(values.dtype).removeprefix('torch.')}"
    getattr(cpu.library(), name)(ctypes.byref(structure), ctypes.c_int64(threads))
    torch.set_rng_state(generator)
    return scaled, factors


def _least(dropped: int) -> int:
    """The smallest signed number of `BITS` bits whose unit is kept."""
    return dropped - 2 ** (BITS - 1)


def _factor(dropped: int) -> float:
    return float(2**BITS / (2**BITS - dropped))


@cache
def agrees() -> bool:
    """True if the library can be built, and draws what torch draws, and as much."""
    if not cpu.is_available():
        return False
    values, results = torch.arange(5003.0) + 1, []
    with torch.random.fork_rng(devices=[]):
        for function in (reference, compiled):
            torch.manual_seed(1)
            torch.empty(1, dtype=torch.int32).random_()  # so that halves of a number come from two twists
            results.append([*function(values, 20000), torch.get_rng_state()])
    return sys.byteorder == "little" and all(map(torch.equal, *results))
