"""What the frames contribute to the gates, W x or LN(W x), with its backward pass written by hand.

As `LSTMCell.input_gates`, in memory that was used before, and normalised while a run of rows is in the cache.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from las.kernels.allocation import allocator
from las.kernels.equations import layer_norm_backward

RUN = 1 << 17
"""How many numbers are normalised at once."""

LARGE = 1 << 19
"""Numbers in W from which on convolutions of width one are faster than products."""

BLOCK = 512
"""How many columns are computed at once, so that the C library keeps the memory of what oneDNN copies."""


class Projection(torch.autograd.Function):
    """(eps, rows, W, gain, offset) to LN(rows W^T; gain, offset), without a gain to rows W^T + offset."""

    @staticmethod
    def forward(
        ctx: Any, eps: float, rows: Tensor, weight: Tensor, gain: Tensor | None, offset: Tensor | None
    ) -> Tensor:
        projected = forward_product(rows, weight)
        if gain is None:
            ctx.save_for_backward(rows, weight)
            return projected if offset is None else projected.add_(offset)
        normalised, runs = allocator.empty_like(projected), _run(projected)
        statistics = []
        for values, out in zip(projected.split(runs), normalised.split(runs), strict=True):
            found, *of_run = torch.native_layer_norm(values, gain.shape, gain, offset, eps)
            out.copy_(found)
            statistics.append(of_run)
        ctx.save_for_backward(rows, weight, projected, *map(torch.cat, zip(*statistics, strict=True)), gain, offset)
        return normalised

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grads: Tensor) -> Any:
        rows, weight, *of_norm = ctx.saved_tensors
        d_gain = d_offset = None
        if of_norm:
            grads, d_gain, d_offset = _of_norm(grads, *of_norm)
        elif ctx.needs_input_grad[4]:
            d_offset = grads.sum(0)
        d_rows = backward_product(grads, weight) if ctx.needs_input_grad[1] else None
        d_weight = torch.mm(grads.t(), rows, out=allocator.empty_like(weight))
        return None, d_rows, d_weight, d_gain, d_offset


def project(
    rows: Float[Tensor, "rows input"],
    weight: Float[Tensor, "gates input"],
    gain: Float[Tensor, "gates"] | None,
    offset: Float[Tensor, "gates"] | None,
    eps: float,
) -> Float[Tensor, "rows gates"]:
    """LN(rows W^T; gain, offset), without a gain rows W^T + offset; there is no second derivative."""
    return Projection.apply(eps, rows, weight, gain, offset)


def forward_product(
    rows: Float[Tensor, "rows input"], weight: Float[Tensor, "gates input"]
) -> Float[Tensor, "rows gates"]:
    """rows W^T."""
    out = allocator.empty(rows, len(rows), len(weight))
    if not _convolves(rows, weight):
        return torch.mm(rows, weight.t(), out=out)
    frames = _frames(rows)
    for part, of_weight in zip(out.split(BLOCK, 1), weight.split(BLOCK), strict=True):
        part.copy_(_rows(functional.conv2d(frames, of_weight[:, :, None, None])))
    return out


def backward_product(
    grads: Float[Tensor, "rows gates"], weight: Float[Tensor, "gates input"]
) -> Float[Tensor, "rows input"]:
    """grads W."""
    out = allocator.empty(grads, len(grads), weight.shape[1])
    if not _convolves(grads, weight):
        return torch.mm(grads, weight, out=out)
    frames = _frames(grads)
    for part, of_weight in zip(out.split(BLOCK, 1), weight.split(BLOCK, 1), strict=True):
        part.copy_(_rows(functional.conv_transpose2d(frames, of_weight[:, :, None, None])))
    return out


def _convolves(rows: Tensor, weight: Tensor) -> bool:
    """Whether torch's convolutions, of oneDNN as `nn.LSTM` is, are faster than its products; they want a row."""
    if rows.dtype != torch.float32 or weight.numel() < LARGE:
        return False
    return len(rows) > 0 and torch.backends.mkldnn.is_available()


def _frames(rows: Tensor) -> Tensor:
    """An image one pixel wide, as high as there are rows, with their columns as channels: [1, columns, rows, 1]."""
    return rows[None, :, None].permute(0, 3, 1, 2)


def _rows(frames: Tensor) -> Tensor:
    return frames[0, :, :, 0].t()


def _of_norm(
    grads: Tensor, values: Tensor, means: Tensor, scales: Tensor, gain: Tensor, offset: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of values, gain and offset from that of the norm."""
    d_values, d_gain, d_offset = allocator.empty_like(values), torch.zeros_like(gain), torch.zeros_like(offset)
    runs = (part.split(_run(values)) for part in (d_values, grads, values, means, scales))
    for out, *given in zip(*runs, strict=True):
        grad, value, mean, scale = given
        found = layer_norm_backward(grad, value, gain.shape, mean, scale, gain, offset, [True, True, True])
        out.copy_(found[0])
        d_gain += found[1]
        d_offset += found[2]
    return d_values, d_gain, d_offset


def _run(rows: Tensor) -> int:
    """How many rows are normalised at once."""
    return max(1, RUN // rows.shape[1])
