"""Normalisation of a layer's output rows, beside what happens inside its cells.

Each class normalises [batch, rows, size] with a gain and a bias per feature and leaves zeros in padding; they differ in
the values that share a mean and a variance.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from las.cells.base import layer_norm
from las.masking import mask_of
from las.normalisation import RunningMoments, moment_norm, moments


class NoNorm(nn.Module):
    """The rows as they are."""

    def __init__(self, size: int) -> None:
        super().__init__()

    def forward(
        self, rows: Float[Tensor, "batch rows size"], num_rows: Int[Tensor, "batch"]
    ) -> Float[Tensor, "batch rows size"]:
        return rows


class OutputNorm(nn.Module):
    """What the norms share. A variant defines `normalise`.

    Args:
        size: features of a row.
    """

    eps = 1e-5

    def __init__(self, size: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size))

    def normalise(
        self, rows: Float[Tensor, "batch rows size"], mask: Bool[Tensor, "batch rows"]
    ) -> Float[Tensor, "batch rows size"]:
        """Normalised rows; those whose mask is False are zero before and of no meaning after."""
        raise TypeError(f"{type(self).__name__} must define normalise")

    def forward(
        self, rows: Float[Tensor, "batch rows size"], num_rows: Int[Tensor, "batch"]
    ) -> Float[Tensor, "batch rows size"]:
        """Normalised rows, zero in padding whatever was there."""
        mask = mask_of(num_rows, rows.shape[1])
        padding = ~mask.unsqueeze(-1)
        return self.normalise(rows.masked_fill(padding, 0.0), mask).masked_fill(padding, 0.0)


class LayerOutputNorm(OutputNorm):
    """Over the features of each row (Ba et al. 2016)."""

    def normalise(
        self, rows: Float[Tensor, "batch rows size"], mask: Bool[Tensor, "batch rows"]
    ) -> Float[Tensor, "batch rows size"]:
        return layer_norm(rows, self.gain, self.bias, self.eps)


class InstanceOutputNorm(OutputNorm):
    """Over time: each feature over the true rows of each utterance (Ulyanov et al. 2016, for one axis)."""

    def normalise(
        self, rows: Float[Tensor, "batch rows size"], mask: Bool[Tensor, "batch rows"]
    ) -> Float[Tensor, "batch rows size"]:
        return moment_norm(rows, moments(rows, mask, (1,))[0], self.gain, self.bias, self.eps)


class PaddedInstanceOutputNorm(OutputNorm):
    """Over time with the padding counted as zeros, so that an utterance depends on the longest one of its batch.

    A public fork of nabu that appears to be Ben Othman 2018's does this in its "LN encoder": a hypothesis to be tested.
    """

    def normalise(
        self, rows: Float[Tensor, "batch rows size"], mask: Bool[Tensor, "batch rows"]
    ) -> Float[Tensor, "batch rows size"]:
        return moment_norm(rows, moments(rows, torch.ones_like(mask), (1,))[0], self.gain, self.bias, self.eps)


class BatchOutputNorm(OutputNorm):
    """Over the true rows of all utterances of a batch; evaluation takes running averages (Ioffe & Szegedy 2015)."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.moments = RunningMoments(size)

    def normalise(
        self, rows: Float[Tensor, "batch rows size"], mask: Bool[Tensor, "batch rows"]
    ) -> Float[Tensor, "batch rows size"]:
        return moment_norm(rows, self.moments(rows, mask), self.gain, self.bias, self.eps)


OUTPUT_NORMS: dict[str, type[NoNorm | OutputNorm]] = {
    "none": NoNorm,
    "layer": LayerOutputNorm,
    "instance": InstanceOutputNorm,
    "instance_padded": PaddedInstanceOutputNorm,
    "batch": BatchOutputNorm,
}
