"""Masks of true lengths; softmax, means and batch norm of what they leave; layer norm, norms of rows between layers.

`layer_norm` and `moment_norm` are the functions that cells and layers share. `RunningMoments` is batch norm that leaves
padding out (Ioffe & Szegedy 2015): while training, mean and variance are those of the unmasked rows; evaluation takes
running averages, so that an utterance does not depend on the rest of its batch.

The classes of `OUTPUT_NORMS` normalise rows [batch, rows, size] with a gain and a bias per feature and return zeros in
padding; they differ in the values that share a mean and a variance.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn
from torch.nn import functional

from las.runtime.errors import ArgumentError

Rows = Float[Tensor, "batch rows size"]
"""Rows of features or states."""

Lengths = Int[Tensor, "batch"]
"""Numbers of true samples, frames, states or tokens of the utterances of a batch."""


def mask_of(lengths: Lengths, size: int, device: torch.device | None = None) -> Bool[Tensor, "batch size"]:
    """Mask [batch, size] that is True at positions before each length [batch], on a device or that of the lengths.

    Lengths lie on the CPU as a rule, as those of `torch.nn.utils.rnn.pack_padded_sequence` do: loops and buffers are
    planned by them, and what is planned by a tensor on a GPU waits for it. A mask is copied there without waiting.

    >>> import torch
    >>> from las.nn.normalisation import mask_of
    >>> mask_of(torch.tensor([3, 1]), 4)
    tensor([[ True,  True,  True, False],
            [ True, False, False, False]])
    """
    mask = torch.arange(size, device=lengths.device) < lengths.unsqueeze(1)
    return mask if device is None else mask.to(device, non_blocking=True)


def masked_softmax(energy: Float[Tensor, "*shape"], mask: Bool[Tensor, "*masks"]) -> Float[Tensor, "*shape"]:
    """Softmax over the last axis with zero weight where the mask (broadcast to the energy) is False.

    A row without a single True gives zero weights, not NaN, so an utterance without states does not affect the others.

    >>> import torch
    >>> from las.nn.normalisation import mask_of, masked_softmax
    >>> masked_softmax(torch.zeros(2, 4), mask_of(torch.tensor([4, 2]), 4))
    tensor([[0.2500, 0.2500, 0.2500, 0.2500],
            [0.5000, 0.5000, 0.0000, 0.0000]])
    """
    lowest = torch.finfo(energy.dtype).min
    weights = torch.softmax(energy.masked_fill(~mask, lowest), dim=-1)
    return weights.masked_fill(~mask, 0.0)


def masked_mean(values: Float[Tensor, "*shape"], mask: Bool[Tensor, "*masks"], dim: int) -> Float[Tensor, "*reduced"]:
    """Mean over `dim` of the entries where the mask (broadcast to the values) is True; 0 where there are none."""
    mask = mask.expand_as(values)
    total = values.masked_fill(~mask, 0.0).sum(dim)
    return total / mask.sum(dim).clamp(min=1)


def reverse(frames: Shaped[Tensor, "batch frames *size"], lengths: Lengths) -> Shaped[Tensor, "batch frames *size"]:
    """Each row read backwards within its own length; padding stays where it is. Its own inverse."""
    positions = torch.arange(frames.shape[1], device=frames.device)
    index = lengths.to(frames.device, non_blocking=True).unsqueeze(1) - 1 - positions
    index = torch.where(index < 0, positions, index)
    return frames[torch.arange(frames.shape[0], device=frames.device).unsqueeze(1), index]


class OutputNorm(nn.Module):
    """Base class of norms with a gain and a bias per feature. A subclass defines `normalise`.

    Args:
        size: features of a row.
    """

    eps = 1e-5
    is_local = True
    """Whether a row, in evaluation, depends on no other row."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size))

    def normalise(self, rows: Rows, mask: Bool[Tensor, "batch rows"]) -> Rows:
        """Normalised rows; where the mask is False the input is zero and the result undefined."""
        raise TypeError(f"{type(self).__name__} must define normalise")

    def forward(self, rows: Rows, num_rows: Lengths) -> Rows:
        """Normalised rows, zero in padding."""
        mask = mask_of(num_rows, rows.shape[1], rows.device)
        padding = ~mask.unsqueeze(-1)
        return self.normalise(rows.masked_fill(padding, 0.0), mask).masked_fill(padding, 0.0)


class LayerOutputNorm(OutputNorm):
    """Layer norm: over the features of each row (Ba et al. 2016)."""

    def normalise(self, rows: Rows, mask: Bool[Tensor, "batch rows"]) -> Rows:
        return layer_norm(rows, self.gain, self.bias, self.eps)


class InstanceOutputNorm(OutputNorm):
    """Instance norm: each feature over the true rows of each utterance (Ulyanov et al. 2016, for one axis)."""

    is_local = False

    def normalise(self, rows: Rows, mask: Bool[Tensor, "batch rows"]) -> Rows:
        return moment_norm(rows, moments(rows, mask, (1,))[0], self.gain, self.bias, self.eps)


class PaddedInstanceOutputNorm(OutputNorm):
    """Instance norm with the padding counted as zeros, so that an utterance depends on the longest one of its batch.

    A public fork of nabu that appears to be Ben Othman 2018's does this in its "LN encoder": a hypothesis to be tested.
    """

    is_local = False

    def normalise(self, rows: Rows, mask: Bool[Tensor, "batch rows"]) -> Rows:
        return moment_norm(rows, moments(rows, torch.ones_like(mask), (1,))[0], self.gain, self.bias, self.eps)


class BatchOutputNorm(OutputNorm):
    """Batch norm over the true rows of a batch; evaluation takes running averages (Ioffe & Szegedy 2015)."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.moments = RunningMoments(size)

    def normalise(self, rows: Rows, mask: Bool[Tensor, "batch rows"]) -> Rows:
        return moment_norm(rows, self.moments(rows, mask), self.gain, self.bias, self.eps)


OUTPUT_NORMS: dict[str, type[nn.Module]] = {
    "none": nn.Identity,
    "layer": LayerOutputNorm,
    "instance": InstanceOutputNorm,
    "instance_padded": PaddedInstanceOutputNorm,
    "batch": BatchOutputNorm,
}


def bounded_eps(eps: float, dtype: torch.dtype) -> float:
    """Return the eps that norms add to the variance of values of a type: at least the smallest positive number of the
    type.

    An eps that fp16 rounds to zero would make 1 / sqrt(eps) infinite there, and the gradient of an all-zero input
    (U h at t = 0) NaN.
    """
    limits = torch.finfo(dtype)
    return max(eps, limits.tiny * limits.eps)


def layer_norm(
    values: Float[Tensor, "*shape"], gain: Float[Tensor, "..."], bias: Float[Tensor, "..."] | None, eps: float
) -> Float[Tensor, "*shape"]:
    """LN(z) = gain * (z - mean) / sqrt(var + eps) + bias over the last axis, biased variance (Ba et al. 2016, eq. 4).

    Half-precision values are normalised with fp32 statistics (torch accumulates them so on every device).
    `gain` may be [size] or have more axes that broadcast against the values, e.g. one row per gate.
    """
    size, eps = values.shape[-1:], bounded_eps(eps, values.dtype)
    if gain.dim() == 1:
        return functional.layer_norm(values, size, gain, bias, eps)
    normalised = functional.layer_norm(values, size, None, None, eps) * gain
    return normalised if bias is None else normalised + bias


class Moments(NamedTuple):
    """Mean and biased variance, in fp32 or wider; they broadcast against the values."""

    mean: Float[Tensor, "*shape"]
    variance: Float[Tensor, "*shape"]


def moments(
    values: Float[Tensor, "*shape size"], mask: Bool[Tensor, "*shape"], dims: tuple[int, ...]
) -> tuple[Moments, Float[Tensor, "*counts"]]:
    """Moments over some of the leading axes of the unmasked rows, and the number of those rows.

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
    values: Float[Tensor, "*shape"], statistics: Moments, gain: Float[Tensor, " size"], bias: Tensor | None, eps: float
) -> Float[Tensor, "*shape"]:
    """Normalise by given moments: gain * (values - mean) / sqrt(variance + eps) + bias, in the type of the moments."""
    scale = torch.rsqrt(statistics.variance + bounded_eps(eps, values.dtype))
    normalised = ((values - statistics.mean) * scale).to(values.dtype) * gain
    return normalised if bias is None else normalised + bias


class RunningMoments(nn.Module):
    """Moments per feature over a batch while training, and their running averages otherwise.

    Args:
        size: features.
        num_steps: number of steps with averages of their own; later ones share those of the last.
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
        """Return the moments to normalise these values with, [size]."""
        step = min(step, len(self.mean) - 1)
        if not self.training:
            wide = torch.promote_types(values.dtype, torch.float32)
            return Moments(self.mean[step].to(wide), self.variance[step].to(wide))
        current, count = moments(values, mask, tuple(range(mask.dim())))
        current = Moments(current.mean.flatten(), current.variance.flatten())
        self._update_averages(step, current, count.flatten())
        return current

    @torch.no_grad()
    def _update_averages(self, step: int, current: Moments, count: Float[Tensor, " one"]) -> None:
        """Move the averages towards the moments of a batch; a batch without rows leaves them unchanged."""
        weight = self.momentum * (count > 0)
        unbiased = current.variance * count / (count - 1).clamp(min=1)
        self.mean[step] += weight * (current.mean - self.mean[step])
        self.variance[step] += weight * (unbiased - self.variance[step])
