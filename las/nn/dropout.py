"""Dropout (Srivastava et al. 2014), with fewer random numbers on a CPU.

PyTorch draws 64 random bits for every unit on a CPU, one unit after the other, which is a tenth of the time of an
update. Here four units share them.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from las.nn.kernels import cpu_dropout
from las.nn.kernels.cpu_dropout import BITS
from las.nn.kernels.torch.allocator import allocator


class Dropout(nn.Dropout):
    """`nn.Dropout`, on a CPU with a probability that is rounded to a multiple of 2^-16."""

    def forward(self, values: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """While training, units are zero with the probability `p`, and others are scaled to keep the mean."""
        dropped = round(self.p * 2**BITS)
        if not self.training or self.inplace or values.device.type != "cpu" or not 0 < dropped < 2**BITS:
            return super().forward(values)
        scaled: Tensor = Dropped.apply(values, dropped)
        return scaled


class Dropped(torch.autograd.Function):
    """The values times factors that are drawn here, in memory that is used again; see `cpu_dropout.drop`."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, dropped: int) -> Tensor:
        scaled, factors = cpu_dropout.drop(values, dropped)
        ctx.save_for_backward(factors)
        return scaled

    @staticmethod
    def backward(ctx: Any, grads: Tensor) -> tuple[Tensor, None]:
        (factors,) = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a second derivative
            return grads * factors, None
        return torch.mul(grads, factors, out=allocator.empty_like(factors)), None
