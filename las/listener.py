"""The listener: a stack of bidirectional layers that shortens time on the way up (Chan et al. 2016, section 3.1).

After layer j, groups of `time_reduction[j]` neighbouring rows become one. A length that does not divide is rounded
up: the last group is completed with zeros (`max_pool` and `mean` use only the rows that are there).
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from las.errors import ConfigError, suggest
from las.masking import mask_of, masked_mean
from las.recurrent import BidirectionalLayer, CellFactory

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


def reduce_time(
    rows: Float[Tensor, "batch rows size"], num_rows: Int[Tensor, "batch"], factor: int, how: str
) -> tuple[Float[Tensor, "batch groups reduced"], Int[Tensor, "batch"]]:
    """[batch, rows, size] to [batch, ceil(rows / factor), size] (factor * size for `concat`) and the new lengths."""
    if factor == 1:
        return rows, num_rows
    missing = -rows.shape[1] % factor
    rows = nn.functional.pad(rows, (0, 0, 0, missing))
    mask = mask_of(num_rows, rows.shape[1]).unsqueeze(-1)
    rows = rows.masked_fill(~mask, 0.0)
    grouped = rows.unflatten(1, (-1, factor))
    return REDUCTIONS[how](grouped, mask.unflatten(1, (-1, factor))), reduced_length(num_rows, factor)


class Listener(nn.Module):
    """Features to encoded states.

    Args:
        input_size: features per frame.
        cell: makes the cell of one direction of one layer from (input_size, hidden_size).
        num_layers: bidirectional layers.
        hidden_size: H per direction; a layer's output is 2H wide.
        time_reduction: one factor per layer, applied after it; the product is the whole reduction.
        reduction: `concat`, `max_pool`, `stride` or `mean`.
        input_reduction: so many feature rows are put side by side before the first layer (frame stacking).
        dropout: on each layer's output while training.
        input_noise: standard deviation of Gaussian noise added to the features while training.
    """

    def __init__(
        self,
        input_size: int,
        *,
        cell: CellFactory,
        num_layers: int = 3,
        hidden_size: int = 128,
        time_reduction: Sequence[int] = (2, 2, 1),
        reduction: str = "concat",
        input_reduction: int = 1,
        dropout: float = 0.0,
        input_noise: float = 0.0,
    ) -> None:
        super().__init__()
        if len(time_reduction) != num_layers:
            raise ConfigError(
                f"listener.time_reduction={list(time_reduction)} needs one factor for each of the {num_layers} layers"
            )
        if min(time_reduction, default=1) < 1:
            raise ConfigError(f"listener.time_reduction={list(time_reduction)} needs factors of at least 1")
        if input_reduction < 1:
            raise ConfigError(f"listener.input_reduction={input_reduction} must be at least 1")
        if reduction not in REDUCTIONS:
            raise ConfigError(f"listener.reduction={reduction!r} does not exist.{suggest(reduction, REDUCTIONS)}")
        self.time_reduction = tuple(time_reduction)
        self.reduction = reduction
        self.input_noise = input_noise
        self.dropout = nn.Dropout(dropout)
        self.input_reduction = input_reduction
        self.layers = nn.ModuleList()
        size = input_size * input_reduction
        for factor in self.time_reduction:
            layer = BidirectionalLayer(cell, size, hidden_size)
            self.layers.append(layer)
            size = layer.output_size * (factor if reduction == "concat" else 1)
        self.output_size = size

    def num_states(self, num_frames: Int[Tensor, "batch"]) -> Int[Tensor, "batch"]:
        """Encoded states of utterances with `num_frames` feature rows."""
        for factor in (self.input_reduction, *self.time_reduction):
            num_frames = reduced_length(num_frames, factor)
        return num_frames

    def forward(
        self, features: Float[Tensor, "batch frames input"], num_frames: Int[Tensor, "batch"]
    ) -> tuple[Float[Tensor, "batch states output"], Int[Tensor, "batch"]]:
        """Encoded states [batch, states, output_size], zero in padding, and how many each utterance has."""
        rows, num_rows = reduce_time(features, num_frames, self.input_reduction, "concat")
        if self.training and self.input_noise:
            rows = rows + self.input_noise * torch.randn_like(rows)
        for layer, factor in zip(self.layers, self.time_reduction, strict=True):
            rows = self.dropout(layer(rows, num_rows))
            rows, num_rows = reduce_time(rows, num_rows, factor, self.reduction)
        return rows, num_rows
