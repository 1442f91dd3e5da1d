"""Subsampling in time: the convolutional front end, and time reduction between layers.

The front end (lingvo; Park et al. 2019; Zeyer et al. 2019) stands before the first recurrent layer. Each of its layers
is convolution, norm, activation, maximum pooling, in two dimensions: rows (time) and features.

`reduce_time` replaces groups of `factor` neighbouring rows by one row (`REDUCTIONS`). Both follow the ceil rule: a
length that is no multiple of the factor is rounded up, and the last group is completed with zeros (`max_pool` and
`mean` use only the rows that exist).
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import ceil
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from las.config.build import require
from las.nn.kernels.torch.allocator import allocator
from las.nn.masking import mask_of, masked_mean
from las.nn.normalisation import RunningMoments, moment_norm
from las.runtime.errors import ArgumentError, suggest

Planes = Float[Tensor, "batch channels rows features"]


class ChannelNorm(nn.Module):
    """Batch norm per channel over true rows and all features; evaluation takes running averages."""

    eps = 1e-5

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.moments = RunningMoments(channels)

    def forward(self, planes: Planes, num_rows: Int[Tensor, "batch"]) -> Planes:
        values = planes.movedim(1, -1)
        mask = mask_of(num_rows, values.shape[1], values.device).unsqueeze(-1).expand(values.shape[:-1])
        return moment_norm(values, self.moments(values, mask), self.gain, self.bias, self.eps).movedim(-1, 1)


class Unnormalised(nn.Module):
    """No normalisation: the planes unchanged."""

    def __init__(self, channels: int) -> None:
        super().__init__()

    def forward(self, planes: Planes, num_rows: Int[Tensor, "batch"]) -> Planes:
        return planes


NORMS: dict[str, type[nn.Module]] = {"none": Unnormalised, "batch": ChannelNorm}
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"none": lambda planes: planes, "relu": torch.relu}


class FrontEnd(nn.Module):
    """Base class of what stands before the listener's layers, made from the size of a feature row.

    The listener calls it and reads `output_size` and `time_reduction`, which a subclass sets.
    """

    output_size: int
    time_reduction: Sequence[int]
    """Factors by which rows become fewer, in order; each rounds up."""

    def forward(
        self, rows: Float[Tensor, "batch rows input"], num_rows: Int[Tensor, "batch"]
    ) -> tuple[Float[Tensor, "batch reduced output"], Int[Tensor, "batch"]]:
        """Reduce [batch, rows, input_size] to [batch, reduced, output_size], zero in padding; with new lengths."""
        raise TypeError(f"{type(self).__name__} must define forward")


class ConvolutionFrontEnd(FrontEnd):
    """Feature rows to fewer rows of channels.

    The middle of filter j is on row j * stride, and what lies outside an utterance is zero, so that no utterance
    depends on its padding. (TensorFlow's "same" padding moves the filters by one row when a stride of two meets a
    padded length that is even.) Lengths follow the ceil rule.

    Args:
        input_size: features per frame, the planes side by side.
        input_channels: planes in a row of features: 3 for log-mels with first and second time derivatives.
        channels: filters of each layer.
        width: rows and features that a filter spans.
        stride: rows and features from one filter to the next.
        pool: rows and features of which the largest value is kept.
        norm: before the activation: `none` or `batch`.
        activation: `none` or `relu`.
    """

    def __init__(
        self,
        input_size: int,
        *,
        input_channels: int = 1,
        channels: Sequence[int] = (32, 32),
        width: int = 3,
        stride: Sequence[int] = (1, 1),
        pool: Sequence[int] = (1, 1),
        norm: str = "none",
        activation: str = "relu",
    ) -> None:
        super().__init__()
        for name, value, known in (("norm", norm, NORMS), ("activation", activation, ACTIVATIONS)):
            if value not in known:
                raise ArgumentError(f"{name}={value!r} does not exist.{suggest(value, known)}")
        for name, pair in (("stride", stride), ("pool", pool)):
            if len(pair) != 2 or min(pair) < 1:
                raise ArgumentError(f"{name}={list(pair)} needs two numbers of at least 1: rows, features")
        require("channels", channels, 1)
        require("width", width, 1)
        if input_channels < 1 or input_size % input_channels:
            raise ArgumentError(f"input_channels={input_channels} does not divide the {input_size} features")
        if width % 2 == 0:
            raise ArgumentError(f"width={width} must be odd: choose {width - 1} or {width + 1}")
        self.input_channels = input_channels
        self.stride, self.pool, self.width = (stride[0], stride[1]), (pool[0], pool[1]), width
        sizes = [input_channels, *channels]
        self.convolutions = nn.ModuleList(
            nn.Conv2d(before, after, width, self.stride) for before, after in pairwise(sizes)
        )
        self.norms = nn.ModuleList(NORMS[norm](after) for after in channels)
        self.activation = activation
        self.time_reduction = (self.stride[0], self.pool[0]) * len(channels)
        features = input_size // input_channels
        for factor in (self.stride[1], self.pool[1]) * len(channels):
            features = ceil(features / factor)
        self.output_size = sizes[-1] * features

    def forward(
        self, rows: Float[Tensor, "batch rows input"], num_rows: Int[Tensor, "batch"]
    ) -> tuple[Float[Tensor, "batch reduced output"], Int[Tensor, "batch"]]:
        planes = rows.unflatten(-1, (self.input_channels, -1)).transpose(1, 2)
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            planes = convolution(self._padded(_zero_padding(planes, num_rows)))
            num_rows = reduced_length(num_rows, self.stride[0])
            planes = ACTIVATIONS[self.activation](norm(planes, num_rows))
            planes, num_rows = self._pooled(planes, num_rows)
        return _zero_padding(planes, num_rows).transpose(1, 2).flatten(2), num_rows

    def _padded(self, planes: Tensor) -> Tensor:
        """Planes padded with zeros so that there are ceil(size / stride), at least one, outputs along both axes."""
        margins: list[int] = []
        for size, stride in zip(reversed(planes.shape[2:]), reversed(self.stride), strict=True):
            before = self.width // 2
            reach = (max(ceil(size / stride), 1) - 1) * stride + self.width
            margins += [before, reach - before - size]
        return functional.pad(planes, margins)

    def _pooled(self, planes: Tensor, num_rows: Int[Tensor, "batch"]) -> tuple[Tensor, Int[Tensor, "batch"]]:
        """The maximum over groups of features and, among true rows, of rows."""
        lowest = torch.finfo(planes.dtype).min
        planes = functional.pad(planes, (0, -planes.shape[-1] % self.pool[1]), value=lowest)
        planes = planes.unflatten(-1, (-1, self.pool[1])).amax(-1)
        rows, num_rows = reduce_time(planes.transpose(1, 2).flatten(2), num_rows, self.pool[0], "max_pool")
        return rows.unflatten(-1, planes.shape[1::2]).transpose(1, 2), num_rows


def _zero_padding(planes: Planes, num_rows: Int[Tensor, "batch"]) -> Planes:
    """Planes that are zero after the last true row."""
    return planes.masked_fill(~mask_of(num_rows, planes.shape[2], planes.device)[:, None, :, None], 0.0)


Rows = Float[Tensor, "batch groups factor size"]


def reduced_length(length: Int[Tensor, "batch"], factor: int) -> Int[Tensor, "batch"]:
    """Rows after a reduction by `factor`: ceil(length / factor)."""
    return torch.div(length + factor - 1, factor, rounding_mode="floor")


def _concat(rows: Rows, mask: Tensor) -> Tensor:
    return rows.flatten(2)


def _max_pool(rows: Rows, mask: Tensor) -> Tensor:
    lowest = rows.masked_fill(~mask, torch.finfo(rows.dtype).min).amax(2)
    return lowest.masked_fill(~mask.any(2), 0.0)


def _stride(rows: Rows, mask: Tensor) -> Tensor:
    return rows[:, :, 0]


def _mean(rows: Rows, mask: Tensor) -> Tensor:
    return masked_mean(rows, mask, dim=2)


REDUCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "concat": _concat,  # pyramidal: nothing is lost, the next layer's input grows (Chan et al. 2016)
    "max_pool": _max_pool,  # Zeyer et al. 2018; Zeineldeen et al. 2020
    "stride": _stride,  # the first row of each group
    "mean": _mean,
}


class WithZeros(torch.autograd.Function):
    """Rows with this many rows of zeros after them, in memory that is used again."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, count: int) -> Tensor:
        batch, ctx.length, size = rows.shape
        longer = allocator.empty(rows, batch, ctx.length + count, size)
        longer[:, : ctx.length] = rows
        longer[:, ctx.length :] = 0.0
        return longer

    @staticmethod
    def backward(ctx: Any, grads: Tensor) -> tuple[Tensor, None]:
        return grads[:, : ctx.length], None


def reduce_time(
    rows: Float[Tensor, "batch rows size"], num_rows: Int[Tensor, "batch"], factor: int, reduction: str
) -> tuple[Float[Tensor, "batch groups reduced"], Int[Tensor, "batch"]]:
    """Reduce [batch, rows, size] to [batch, ceil(rows / factor), size] (`concat`: factor * size), and the lengths.

    Padding must be zero, and stays so.
    """
    if factor == 1:
        return rows, num_rows
    missing = -rows.shape[1] % factor
    if torch.compiler.is_exporting():  # lengths are symbols: nothing may depend on them
        rows = functional.pad(rows, (0, 0, 0, missing))
    elif missing:
        rows = WithZeros.apply(rows, missing)
    mask = mask_of(num_rows, rows.shape[1], rows.device).unsqueeze(-1)
    grouped = rows.unflatten(1, (-1, factor))
    return REDUCTIONS[reduction](grouped, mask.unflatten(1, (-1, factor))), reduced_length(num_rows, factor)
