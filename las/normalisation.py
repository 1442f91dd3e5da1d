"""Normalising over a batch, where padding must not count (Ioffe & Szegedy 2015).

While training, mean and variance are those of the rows that a mask lets through. Evaluation takes their running
averages in place of them, so that an utterance does not depend on its company.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from las.cells.base import bounded_eps
from las.errors import ArgumentError


class Moments(NamedTuple):
    """Mean and biased variance, in fp32 or wider; they broadcast against the values they are of."""

    mean: Float[Tensor, "*shape"]
    variance: Float[Tensor, "*shape"]


def moments(
    values: Float[Tensor, "*shape size"], mask: Bool[Tensor, "*shape"], dims: tuple[int, ...]
) -> tuple[Moments, Float[Tensor, "*counts"]]:
    """Moments over some of the leading axes of what a mask lets through, and how many rows those are.

    Reduced axes stay with size one. Without a single row both moments are zero.
    """
    wide = values.to(torch.promote_types(values.dtype, torch.float32))
    mask = mask.unsqueeze(-1)
    count = mask.sum(dims, keepdim=True).to(wide.dtype)
    rows = count.clamp(min=1)
    mean = wide.masked_fill(~mask, 0.0).sum(dims, keepdim=True) / rows
    variance = (wide - mean).masked_fill(~mask, 0.0).square().sum(dims, keepdim=True) / rows
    return Moments(mean, variance), count


def moment_norm(
    values: Float[Tensor, "*shape"], of: Moments, gain: Float[Tensor, "size"], bias: Tensor | None, eps: float
) -> Float[Tensor, "*shape"]:
    """gain * (values - mean) / sqrt(variance + eps) + bias, computed in the type of the moments."""
    scale = torch.rsqrt(of.variance + bounded_eps(eps, values.dtype))
    normalised = ((values - of.mean) * scale).to(values.dtype) * gain
    return normalised if bias is None else normalised + bias


class RunningMoments(nn.Module):
    """Moments per feature over a batch while training, and their running averages otherwise.

    Args:
        size: features.
        num_steps: how many steps have averages of their own; later ones share those of the last.
        momentum: weight of a batch in the running averages, as in `torch.nn.BatchNorm1d`.
    """

    mean: Tensor
    variance: Tensor

    def __init__(self, size: int, *, num_steps: int = 1, momentum: float = 0.1) -> None:
        super().__init__()
        if num_steps < 1:
            raise ArgumentError(f"num_steps={num_steps} must be at least 1")
        if not 0.0 < momentum <= 1.0:
            raise ArgumentError(f"momentum={momentum} must be above 0 and at most 1")
        self.momentum = momentum
        self.register_buffer("mean", torch.zeros(num_steps, size))
        self.register_buffer("variance", torch.ones(num_steps, size))

    def forward(self, values: Float[Tensor, "*shape size"], mask: Bool[Tensor, "*shape"], step: int = 0) -> Moments:
        """The moments to normalise these values with, [size]."""
        step = min(step, len(self.mean) - 1)
        if not self.training:
            wide = torch.promote_types(values.dtype, torch.float32)
            return Moments(self.mean[step].to(wide), self.variance[step].to(wide))
        found, count = moments(values, mask, tuple(range(mask.dim())))
        found = Moments(found.mean.flatten(), found.variance.flatten())
        self._follow(step, found, count.flatten())
        return found

    @torch.no_grad()
    def _follow(self, step: int, found: Moments, count: Float[Tensor, "one"]) -> None:
        """Move the averages towards a batch; one without rows says nothing."""
        weight = self.momentum * (count > 0)
        unbiased = found.variance * count / (count - 1).clamp(min=1)
        self.mean[step] += weight * (found.mean - self.mean[step])
        self.variance[step] += weight * (unbiased - self.variance[step])
