"""The convolutional front end before a listener's first layer (lingvo; Park et al. 2019; Zeyer et al. 2019).

Each of its layers is convolution, norm, activation, maximum pooling, in two dimensions: rows (time) and features.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import ceil

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from las.config.build import require
from las.nn.listener import FrontEnd, Reduced, reduce_time, reduced_length
from las.nn.normalisation import Lengths, Rows, RunningMoments, mask_of, moment_norm
from las.runtime.errors import ArgumentError, require_known

Planes = Float[Tensor, "batch channels rows features"]


class ChannelNorm(nn.Module):
    """Batch norm per channel over true rows and all features; evaluation takes running averages."""

    eps = 1e-5

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.moments = RunningMoments(channels)

    def forward(self, planes: Planes, num_rows: Lengths) -> Planes:
        values = planes.movedim(1, -1)
        mask = mask_of(num_rows, values.shape[1], values.device).unsqueeze(-1).expand(values.shape[:-1])
        return moment_norm(values, self.moments(values, mask), self.gain, self.bias, self.eps).movedim(-1, 1)


NORMS: dict[str, type[nn.Module]] = {"none": nn.Identity, "batch": ChannelNorm}
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"none": lambda planes: planes, "relu": torch.relu}


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
        require_known("norm", norm, NORMS)
        require_known("activation", activation, ACTIVATIONS)
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
        reach = 0
        for _ in channels:  # from the last layer to the first, whose rows are finer
            reach = reach * self.stride[0] * self.pool[0] + width // 2
        self.reach = reach, reach
        features = input_size // input_channels
        for factor in (self.stride[1], self.pool[1]) * len(channels):
            features = ceil(features / factor)
        self.output_size = sizes[-1] * features

    def forward(self, rows: Rows, num_rows: Lengths) -> tuple[Reduced, Lengths]:
        planes = rows.unflatten(-1, (self.input_channels, -1)).transpose(1, 2)
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            planes = convolution(self._padded(_zero_padding(planes, num_rows)))
            num_rows = reduced_length(num_rows, self.stride[0])
            planes = norm(planes, num_rows) if isinstance(norm, ChannelNorm) else planes
            planes = ACTIVATIONS[self.activation](planes)
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

    def _pooled(self, planes: Tensor, num_rows: Lengths) -> tuple[Tensor, Lengths]:
        """Return the maximum over groups of features and, among true rows, of rows."""
        lowest = torch.finfo(planes.dtype).min
        planes = functional.pad(planes, (0, -planes.shape[-1] % self.pool[1]), value=lowest)
        planes = planes.unflatten(-1, (-1, self.pool[1])).amax(-1)
        rows, num_rows = reduce_time(planes.transpose(1, 2).flatten(2), num_rows, self.pool[0], "max_pool")
        return rows.unflatten(-1, planes.shape[1::2]).transpose(1, 2), num_rows


def _zero_padding(planes: Planes, num_rows: Lengths) -> Planes:
    return planes.masked_fill(~mask_of(num_rows, planes.shape[2], planes.device)[:, None, :, None], 0.0)
