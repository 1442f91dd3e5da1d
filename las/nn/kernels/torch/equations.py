"""Equations of the cells, forward and backward: norms, gates, cell update.

Each class has the equation of one frame (`forward`), the gradient through one frame (`backward`) and, over a run of
frames at once, the gradients of their parameters (`collect`). Tensors of a frame are [directions, rows, size],
parameters [directions, ..., size].
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import product

import torch
from torch import Tensor

from las.nn.cells.base import NUM_GATES
from las.nn.kernels.torch.allocator import allocator
from las.nn.kernels.torch.products import Product, product_of

layer_norm_backward = torch.ops.aten.native_layer_norm_backward.default

Pair = tuple[Tensor | None, Tensor | None]


class Norm:
    """Layer norm of equal groups of the last axis; gain and bias are [directions, groups, size].

    It stores the mean and 1 / sqrt(var + eps) of every frame's groups, in torch's order.
    """

    def __init__(
        self, gain: Tensor, bias: Tensor, eps: float, means: Sequence[Tensor] = (), scales: Sequence[Tensor] = ()
    ) -> None:
        self.gain, self.bias = (part.flatten(1).unsqueeze(1) for part in (gain, bias))
        self.groups, *self.size = gain.shape[1:]
        self.eps = eps
        self.means, self.scales = list(means), list(scales)
        self.d_gain, self.d_bias = torch.zeros_like(gain), torch.zeros_like(bias)

    def normalise(self, values: Tensor) -> Tensor:
        """The norm without its gain and bias."""
        normalised, mean, scale = torch.native_layer_norm(self._grouped(values), self.size, None, None, self.eps)
        self.means.append(mean)
        self.scales.append(scale)
        return normalised if self.groups == 1 else normalised.flatten(2)

    def forward(self, values: Tensor, out: Tensor | None = None) -> Tensor:
        return torch.addcmul(self.bias, self.normalise(values), self.gain, out=out)

    def backward(self, frame: int, grads: Tensor, values: Tensor) -> Tensor:
        scaled, mask = self._grouped(grads * self.gain), [True, False, False]
        mean, scale = self.means[frame], self.scales[frame]
        d_values = layer_norm_backward(scaled, self._grouped(values), self.size, mean, scale, None, None, mask)[0]
        return d_values if self.groups == 1 else d_values.flatten(2)

    def _grouped(self, values: Tensor) -> Tensor:
        """The values as [directions, rows, groups, size]; unchanged if there is one group."""
        return values if self.groups == 1 else values.unflatten(2, (self.groups, *self.size))

    def collect(self, frames: slice, grads: Tensor, values: Tensor) -> None:
        """Add the contribution of these frames to the gradients of gain and bias."""
        statistics = (torch.cat(part[frames], 1).unsqueeze(3) for part in (self.means, self.scales))
        grouped_rows = (part.unflatten(2, (self.groups, *self.size)) for part in (grads, values))
        # Group by group, because the function below takes the rows of all its arguments as they lie in memory.
        grouped = [part.movedim(2, 1).contiguous() for part in (*grouped_rows, *statistics)]
        mask = [False, True, True]
        for index in product(*map(range, self.d_gain.shape[:2])):
            grad, value, mean, scale = (part[index] for part in grouped)
            gain = self.d_gain[index]
            _, d_gain, d_bias = layer_norm_backward(grad, value, self.size, mean, scale, gain, gain, mask)
            gain += d_gain
            self.d_bias[index] += d_bias

    def statistics(self) -> tuple[Tensor, Tensor]:
        """Means and scales of all frames, in the layout of `Packing.blocks`."""
        both = self.means, self.scales
        means, scales = (torch.cat([part.flatten(0, 1) for part in parts]).flatten(1) for parts in both)
        return means, scales


class Gates:
    """G = x + offset + U h, where x is the contribution of the frame.

    G is made with g doubled: tanh(z) = 2 sigmoid(2 z) - 1, so that one sigmoid opens all gates. Gradients are those of
    G as it is written here.
    """

    normalised_blocks = 0
    """Width of the z that the backward pass needs, in multiples of 4H; 0 without a norm."""

    def __init__(self, weight: Tensor, offset: Tensor | None) -> None:
        self.weight = weight
        self.doubled = torch.ones_like(weight[:1, :, :1]).mT
        self.doubled.chunk(NUM_GATES, 2)[2].fill_(2)
        self.offset = torch.zeros_like(self.doubled) if offset is None else offset.flatten(1).unsqueeze(1)

    def statistics(self) -> Pair:
        """Means and scales of the norm, if there is one."""
        return None, None

    def prepare(self, inputs: Tensor) -> None:
        """Scale x of a run of frames in place to the form that `forward` takes."""
        torch.addcmul(self.doubled_offset, inputs, self.doubled, out=inputs)

    def forward(self, inputs: Tensor, hidden: Tensor, projected: Tensor, gates: Tensor) -> None:
        """Write z, the argument of the norm, and G."""
        self.doubled_product.add(inputs, hidden, gates)

    def backward(self, frame: int, grads: Tensor, projected: Tensor) -> Tensor:
        """The gradient of U h from that of G."""
        return grads

    def input_gradient(self, grads: Tensor, d_projected: Tensor) -> Tensor:
        """The gradient of x, from those of G and of U h."""
        return grads

    def collect(self, frames: slice, grads: Tensor, projected: list[Tensor]) -> None:
        """Add the gradients of the norm's parameters from a run of frames; `projected` are z of all frames."""

    def totals(self) -> Pair:
        """Gradients of the gain and of the offset."""
        return None, None

    @cached_property
    def doubled_offset(self) -> Tensor:
        return self.offset * self.doubled

    @cached_property
    def product(self) -> Product:
        return product_of(self.weight)

    @cached_property
    def doubled_product(self) -> Product:
        return product_of(self.weight * self.doubled.mT)

    @cached_property
    def back(self) -> Product:
        """The product with U^T: from the gradient of U h to that of h."""
        return product_of(self.weight.mT)


class SeparatelyNormalisedGates(Gates):
    """G = x + offset + LN(U h): z = U h."""

    normalised_blocks = 1

    def __init__(self, weight: Tensor, offset: Tensor | None, norm: Norm) -> None:
        super().__init__(weight, offset)
        self.norm = norm

    def statistics(self) -> Pair:
        return self.norm.statistics()

    def forward(self, inputs: Tensor, hidden: Tensor, projected: Tensor, gates: Tensor) -> None:
        self.product.write(hidden, projected)
        torch.addcmul(inputs, self.norm.normalise(projected), self.doubled_gain, out=gates)

    def backward(self, frame: int, grads: Tensor, projected: Tensor) -> Tensor:
        return self.norm.backward(frame, grads, projected)

    def collect(self, frames: slice, grads: Tensor, projected: list[Tensor]) -> None:
        self.norm.collect(frames, grads, allocator.cat(projected[frames]))

    def totals(self) -> Pair:
        return self.norm.d_gain, self.norm.d_bias

    @cached_property
    def doubled_gain(self) -> Tensor:
        return self.norm.gain * self.doubled


class JointlyNormalisedGates(SeparatelyNormalisedGates):
    """G = LN(x + U h) + offset, joined or gate by gate: z = x + U h."""

    def prepare(self, inputs: Tensor) -> None:
        pass

    def forward(self, inputs: Tensor, hidden: Tensor, projected: Tensor, gates: Tensor) -> None:
        self.product.add(inputs, hidden, projected)
        torch.addcmul(self.doubled_offset, self.norm.normalise(projected), self.doubled_gain, out=gates)

    def input_gradient(self, grads: Tensor, d_projected: Tensor) -> Tensor:
        return d_projected


class CellUpdate:
    """The cell update of cell_norm `none`.

    `raw` is c before any norm, `carried` is passed to the next frame, `seen` is the tanh in h.
    """

    carries_raw = True
    """True if `raw` and `carried` are the same tensor."""

    def statistics(self) -> Pair:
        """Means and scales of the norm, if there is one."""
        return None, None

    def forward(self, raw: Tensor, carried: Tensor, seen: Tensor) -> None:
        torch.tanh(raw, out=seen)

    def backward(self, frame: int, d_cell: Tensor, d_hidden: Tensor, slope: Tensor, raw: Tensor) -> None:
        """Turn `d_cell` from the gradient of `carried` into that of `raw`.

        `slope` is o (1 - seen^2), the derivative of h; it becomes the gradient of LN(c), if there is a norm.
        """
        d_cell.addcmul_(d_hidden, slope)

    def collect(self, frames: slice, slope: Tensor, raw: Tensor) -> None:
        """Add the gradients of the norm's parameters from a run of frames."""

    def totals(self) -> Pair:
        """Gradients of the gain and of the bias."""
        return None, None


class OutputNormalisedCell(CellUpdate):
    """The cell update of cell_norm `output`: carried is c, seen is tanh(LN(c))."""

    def __init__(self, norm: Norm) -> None:
        self.norm = norm

    def statistics(self) -> Pair:
        return self.norm.statistics()

    def forward(self, raw: Tensor, carried: Tensor, seen: Tensor) -> None:
        torch.tanh(self.norm.forward(raw), out=seen)

    def backward(self, frame: int, d_cell: Tensor, d_hidden: Tensor, slope: Tensor, raw: Tensor) -> None:
        d_cell.add_(self.norm.backward(frame, slope.mul_(d_hidden), raw))

    def collect(self, frames: slice, slope: Tensor, raw: Tensor) -> None:
        self.norm.collect(frames, slope, raw)

    def totals(self) -> Pair:
        return self.norm.d_gain, self.norm.d_bias


class StateNormalisedCell(OutputNormalisedCell):
    """The cell update of cell_norm `state`: carried is LN(c), seen is tanh(c)."""

    carries_raw = False

    def forward(self, raw: Tensor, carried: Tensor, seen: Tensor) -> None:
        self.norm.forward(raw, carried)
        torch.tanh(raw, out=seen)

    def backward(self, frame: int, d_cell: Tensor, d_hidden: Tensor, slope: Tensor, raw: Tensor) -> None:
        d_raw = self.norm.backward(frame, d_cell, raw).addcmul_(d_hidden, slope)
        slope.copy_(d_cell)
        d_cell.copy_(d_raw)


class OutputAndStateNormalisedCell(StateNormalisedCell):
    """The cell update of cell_norm `both`: carried is LN(c), seen is tanh(LN(c))."""

    def forward(self, raw: Tensor, carried: Tensor, seen: Tensor) -> None:
        torch.tanh(self.norm.forward(raw, carried), out=seen)

    def backward(self, frame: int, d_cell: Tensor, d_hidden: Tensor, slope: Tensor, raw: Tensor) -> None:
        torch.addcmul(d_cell, slope, d_hidden, out=slope)
        d_cell.copy_(self.norm.backward(frame, slope, raw))
