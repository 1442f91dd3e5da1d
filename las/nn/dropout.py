"""Dropout (Srivastava et al. 2014), with fewer random numbers on a CPU.

PyTorch draws 64 random bits for every unit on a CPU, one unit after the other, which is a tenth of the time of an
update. Here four units share them.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from las.nn.kernels.allocator import allocator

BITS = 16
"""Random bits of a unit; the probability is rounded to as many."""
UNITS = 64 // BITS
"""Units that share one random number."""


class Dropout(nn.Dropout):
    """`nn.Dropout`, on a CPU with a probability that is rounded to a multiple of 2^-16."""

    def forward(self, values: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """While training, units are zero with the probability `p`, and others are scaled to keep the mean."""
        dropped = round(self.p * 2**BITS)
        if not self.training or self.inplace or values.device.type != "cpu" or not 0 < dropped < 2**BITS:
            return super().forward(values)
        numbers = torch.empty(-(-values.numel() // UNITS), dtype=torch.int64, device=values.device)
        numbers.random_(-(1 << 63), None)
        drawn = numbers.view(torch.int16)[: values.numel()].view(values.shape)
        kept = drawn >= dropped - 2 ** (BITS - 1)
        factors = allocator.empty_like(values).copy_(kept).mul_(2**BITS / (2**BITS - dropped))
        scaled: Tensor = Scaled.apply(values, factors)
        return scaled


class Scaled(torch.autograd.Function):
    """values * factors, into memory that is used again."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, factors: Tensor) -> Tensor:
        ctx.save_for_backward(factors)
        return torch.mul(values, factors, out=allocator.empty_like(values))

    @staticmethod
    def backward(ctx: Any, grads: Tensor) -> tuple[Tensor, None]:
        (factors,) = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a second derivative
            return grads * factors, None
        return torch.mul(grads, factors, out=allocator.empty_like(factors)), None
