"""Rows that become one: the ways to shorten time, all by the ceil rule.

Groups of `factor` neighbouring rows become one. A length that does not divide is rounded up: the last group is
completed with zeros (`max_pool` and `mean` use only the rows that are there).
"""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from las.masking import mask_of, masked_mean

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
