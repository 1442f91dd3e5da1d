"""The input projection W x or LN(W x) of all frames, with a hand-written backward pass.

It equals `LSTMCell.input_gates`, reuses memory, and normalises a run of rows while they are in the cache.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from las.nn.kernels.torch.allocator import allocator
from las.nn.kernels.torch.equations import layer_norm_backward
from las.nn.kernels.torch.products import backward_product, convolves, forward_product

RUN = 1 << 17
"""Number of values that are normalised at once."""


class Projection(torch.autograd.Function):
    """LN(rows W^T; gain, offset), or rows W^T + offset without a gain; inputs are (eps, rows, W, gain, offset)."""

    @staticmethod
    def forward(
        ctx: Any, eps: float, rows: Tensor, weight: Tensor, gain: Tensor | None, offset: Tensor | None
    ) -> Tensor:
        projected = _forward(rows, weight)
        if gain is None:
            ctx.save_for_backward(rows, weight)
            return projected if offset is None else projected.add_(offset)
        normalised, runs = allocator.empty_like(projected), _run(projected)
        statistics = []
        for values, out in zip(projected.split(runs), normalised.split(runs), strict=True):
            output, *of_run = torch.native_layer_norm(values, gain.shape, gain, offset, eps)
            out.copy_(output)
            statistics.append(of_run)
        ctx.save_for_backward(rows, weight, projected, *map(torch.cat, zip(*statistics, strict=True)), gain, offset)
        return normalised

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grads: Tensor) -> Any:
        rows, weight, *of_norm = (part.contiguous() for part in ctx.saved_tensors)
        d_rows = d_weight = d_gain = d_offset = None
        with torch.autocast("cpu", enabled=False):
            grads = grads.contiguous()  # the gradient of a norm reads its rows one after the other, whatever strides
            if of_norm:
                grads, d_gain, d_offset = _of_norm(grads, *of_norm)
            elif ctx.needs_input_grad[4]:
                d_offset = grads.sum(0)
            if ctx.needs_input_grad[1]:
                d_rows = _backward(grads, weight)
            if ctx.needs_input_grad[2]:
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


def _forward(rows: Tensor, weight: Tensor) -> Tensor:
    if convolves(rows, weight):
        return forward_product(rows, weight)
    return torch.mm(rows, weight.t(), out=allocator.empty(rows, len(rows), len(weight)))


def _backward(grads: Tensor, weight: Tensor) -> Tensor:
    if convolves(grads, weight):
        return backward_product(grads, weight)
    return torch.mm(grads, weight, out=allocator.empty(grads, len(grads), weight.shape[1]))


def _of_norm(
    grads: Tensor, values: Tensor, means: Tensor, scales: Tensor, gain: Tensor, offset: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of values, gain and offset from that of the norm."""
    d_values, d_gain, d_offset = allocator.empty_like(values), torch.zeros_like(gain), torch.zeros_like(offset)
    runs = (part.split(_run(values)) for part in (d_values, grads, values, means, scales))
    for out, *tensors in zip(*runs, strict=True):
        grad, value, mean, scale = tensors
        d_value, *of_parameters = layer_norm_backward(
            grad, value, gain.shape, mean, scale, gain, offset, [True, True, True]
        )
        out.copy_(d_value)
        d_gain += of_parameters[0]
        d_offset += of_parameters[1]
    return d_values, d_gain, d_offset


def _run(rows: Tensor) -> int:
    """Number of rows that are normalised at once."""
    return max(1, RUN // rows.shape[1])
