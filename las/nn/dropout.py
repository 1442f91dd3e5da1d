"""Dropout (Srivastava et al. 2014) with a mask of each element, or one that rows of an utterance or of a batch share.

PyTorch draws 64 random bits for every unit on a CPU, one unit after the other, which is a tenth of the time of an
update. Here four units share them, and C++ (`dropout.h`) draws, masks and multiplies in one pass: it takes the same
numbers of torch's generator as `reference`, and leaves the generator as that does.
"""

import ctypes
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from las.nn.kernels.choice import Compiled, Differences
from las.nn.kernels.cpp.tensors import Bytes, Structure, allocator, call, dense

BITS = 16
"""Random bits of a unit."""
UNITS = 64 // BITS
"""Units that share one random number."""

SHARED = 1 << 16
"""Units from which on threads share them."""


DropoutFactory = Callable[[float], nn.Module]
"""Makes the dropout of a listener or speller from its probability: a module that maps rows [batch, rows, size] to such
rows, and passes them on unchanged outside training. A speller draws the masks of its steps from rows of ones."""


class Dropout(nn.Dropout):
    """`nn.Dropout`: a mask of each element; on a CPU with a probability that is rounded to a multiple of 2^-16."""

    def forward(self, values: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """While training, units are zero with the probability `p`, and others are scaled to keep the mean."""
        dropped = round(self.p * 2**BITS)
        if not self.training or self.inplace or values.device.type != "cpu" or not 0 < dropped < 2**BITS:
            return super().forward(values)
        scaled: Tensor = Dropped.apply(values, dropped)
        return scaled


class UtteranceDropout(nn.Dropout):
    """One mask for all rows of an utterance, or of a chunk of it: variational dropout (Gal & Ghahramani 2016).

    >>> import las, torch
    >>> dropped = las.UtteranceDropout(0.5)(torch.ones(2, 50, 8))
    >>> torch.equal(dropped, dropped[:, :1].expand(2, 50, 8))
    True
    """

    def forward(self, values: Float[Tensor, "batch rows size"]) -> Float[Tensor, "batch rows size"]:
        return _times_mask(values, len(values), self.p) if self.training and self.p else values


class BatchDropout(nn.Dropout):
    """One mask for all rows of all utterances of a batch: the default of RETURNN's layers (Zeineldeen et al. 2020).

    Each process and each part of an accumulated batch draws its own.
    """

    def forward(self, values: Float[Tensor, "batch rows size"]) -> Float[Tensor, "batch rows size"]:
        return _times_mask(values, 1, self.p) if self.training and self.p else values


def _times_mask(values: Tensor, num_masks: int, p: float) -> Tensor:
    """Return the product of values and masks [num_masks, 1, size], drawn here."""
    return values * functional.dropout(values.new_ones(num_masks, 1, values.shape[-1]), p)


Masks = Sequence[Tensor | None]
"""Dropout masks (factors, [batch, steps, size]) of a speller's embedding and outputs of layers; None for no dropout."""


def steps_of(mask: Tensor | None, steps: slice) -> Tensor | None:
    """Cut steps out of a mask."""
    return None if mask is None else mask[:, steps]


def apply_mask(values: Tensor, mask: Tensor | None) -> Tensor:
    """Multiply values by a mask."""
    return values if mask is None else values * mask


class Dropped(torch.autograd.Function):
    """The values times factors that are drawn here, in memory that is used again."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, dropped: int) -> Tensor:
        scaled, factors = (reference if DROPOUT.refusal(values) else compiled)(values, dropped)
        ctx.save_for_backward(factors)
        return scaled

    @staticmethod
    def backward(ctx: Any, grads: Tensor) -> tuple[Tensor, None]:
        (factors,) = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a second derivative
            return grads * factors, None
        return torch.mul(grads, factors, out=allocator.empty_like(factors)), None


class DropoutStructure(Structure):
    """The structure `Dropout` of `dropout.h`, field by field."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("units", "least")),
        ("factor", ctypes.c_double),
        ("generator", Bytes),
        *((name, ctypes.c_void_p) for name in ("values", "factors", "scaled")),
    )


def reference(values: Float[Tensor, "*shape"], dropped: int) -> tuple[Float[Tensor, "*shape"], Float[Tensor, "*shape"]]:
    """Return the product of values and factors, and the factors: 0 with the probability dropped / 2^16.

    Other factors keep the mean.
    """
    numbers = torch.empty(-(-values.numel() // UNITS), dtype=torch.int64, device=values.device)
    numbers.random_(-(1 << 63), None)
    drawn = numbers.view(torch.int16)[: values.numel()].view(values.shape)
    factors = allocator.empty_like(values).copy_(drawn >= _least(dropped)).mul_(_factor(dropped))
    return torch.mul(values, factors, out=allocator.empty_like(values)), factors


def compiled(values: Float[Tensor, "*shape"], dropped: int) -> tuple[Float[Tensor, "*shape"], Float[Tensor, "*shape"]]:
    """Return `reference` in C++."""
    values, generator = dense(values), torch.get_rng_state()
    scaled, factors = allocator.empty_like(values), allocator.empty_like(values)
    structure = DropoutStructure(values.numel(), _least(dropped), _factor(dropped))
    structure.point(generator=generator, values=values, factors=factors, scaled=scaled)
    call("drop", values.dtype, structure, values.numel() >= SHARED)
    torch.set_rng_state(generator)
    return scaled, factors


def _least(dropped: int) -> int:
    """Return the smallest signed number of `BITS` bits whose unit is kept."""
    return dropped - 2 ** (BITS - 1)


def _factor(dropped: int) -> float:
    return float(2**BITS / (2**BITS - dropped))


def _trial() -> Differences:
    """Return the values, the factors, and the generator afterwards."""
    assert sys.byteorder == "little", "numbers are read as they lie in memory"
    values, results = torch.arange(5003.0) + 1, []
    for function in (compiled, reference):
        torch.manual_seed(1)
        torch.empty(1, dtype=torch.int32).random_()  # so that halves of a number come from two twists
        results.append([*function(values, 20000), torch.get_rng_state()])
    return [("dropout", ours, right) for ours, right in zip(*results, strict=True)]


DROPOUT = Compiled("dropout", _trial, 0.0)
