"""What differs between cells in the recurrence, forwards and backwards: norms, gates, memory.

Each class has the equation of one frame (`forward`), the gradient through one frame (`backward`) and, over a run of
frames at once, what their parameters and inputs get (`collect`).
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from las.kernels.packing import Buffer

layer_norm_backward = torch.ops.aten.native_layer_norm_backward.default


class Norm:
    """LN(z; gain, bias) over the last axis. It keeps the mean and 1 / sqrt(var + eps) of every frame."""

    def __init__(
        self, gain: Tensor, bias: Tensor, eps: float, means: Iterable[Tensor] = (), scales: Iterable[Tensor] = ()
    ) -> None:
        self.gain, self.bias, self.eps = gain, bias, eps
        self.size = gain.shape[-1:]
        self.means, self.scales = list(means), list(scales)
        self.d_gain, self.d_bias = torch.zeros_like(gain), torch.zeros_like(bias)

    def forward(self, values: Tensor) -> Tensor:
        normalised, mean, scale = torch.native_layer_norm(values, self.size, self.gain, self.bias, self.eps)
        self.means.append(mean)
        self.scales.append(scale)
        return normalised

    def backward(self, frame: int, grads: Tensor, values: Tensor) -> Tensor:
        mean, scale = self.means[frame], self.scales[frame]
        mask = [True, False, False]
        return layer_norm_backward(grads, values, self.size, mean, scale, self.gain, self.bias, mask)[0]

    def collect(self, frames: slice, grads: Tensor, values: Tensor) -> None:
        """Add what these frames contribute to the gradients of gain and bias."""
        mean, scale = torch.cat(self.means[frames]), torch.cat(self.scales[frames])
        mask = [False, True, True]
        found = layer_norm_backward(grads, values, self.size, mean, scale, self.gain, self.bias, mask)
        self.d_gain += found[1]
        self.d_bias += found[2]

    def statistics(self) -> tuple[Tensor, Tensor]:
        """Means and scales of all frames, packed."""
        return torch.cat(self.means), torch.cat(self.scales)


class NormPerGate(Norm):
    """Each gate's H values on their own; `gain` and `bias` are [4, H]."""

    def forward(self, values: Tensor) -> Tensor:
        per_gate = values.view(-1, *self.gain.shape)
        normalised, mean, scale = torch.native_layer_norm(per_gate, self.size, None, None, self.eps)
        self.means.append(mean)
        self.scales.append(scale)
        return torch.addcmul(self.bias, normalised, self.gain).view_as(values)

    def backward(self, frame: int, grads: Tensor, values: Tensor) -> Tensor:
        scaled = grads.view(-1, *self.gain.shape) * self.gain
        mean, scale, mask = self.means[frame], self.scales[frame], [True, False, False]
        per_gate = values.view_as(scaled)
        return layer_norm_backward(scaled, per_gate, self.size, mean, scale, None, None, mask)[0].view_as(values)

    def collect(self, frames: slice, grads: Tensor, values: Tensor) -> None:
        per_gate = grads.view(-1, *self.gain.shape)
        normalised = (values.view_as(per_gate) - torch.cat(self.means[frames])).mul_(torch.cat(self.scales[frames]))
        self.d_gain += normalised.mul_(per_gate).sum(0)
        self.d_bias += per_gate.sum(0)


Pair = tuple[Tensor | None, Tensor | None]


class Gates:
    """G = x + U h, where x is what the frames contribute."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight.t().contiguous()

    def statistics(self) -> Pair:
        """Those of the norm, where there is one."""
        return None, None

    def buffers(self, inputs: Buffer, scratch: Buffer) -> tuple[Buffer, Buffer]:
        """Which of the two holds z, and which G; `inputs` begins as x."""
        return inputs, inputs

    def forward(self, hidden: Tensor, projected: Tensor, gates: Tensor) -> None:
        gates.addmm_(hidden, self.weight)

    def backward(self, frame: int, grads: Tensor, projected: Tensor) -> Tensor:
        """The gradient of z = U h (or of the sum that is normalised) from that of G."""
        return grads

    def of_inputs(self, grads: Tensor, d_projected: Tensor) -> Tensor:
        """Which of the two is the gradient of x: that of G, or the one that `backward` gave."""
        return grads

    def collect(
        self, frames: slice, grads: Tensor, d_projected: list[Tensor], projected: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Gradients of x and of z for a run of frames, where `d_projected` are those that `backward` gave."""
        return grads, grads

    def totals(self) -> Pair:
        """Gradients of the gain and of the bias."""
        return None, None


class GatesApart(Gates):
    """G = x + LN(U h): z = U h."""

    def __init__(self, weight: Tensor, norm: Norm) -> None:
        super().__init__(weight)
        self.norm = norm

    def statistics(self) -> Pair:
        return self.norm.statistics()

    def buffers(self, inputs: Buffer, scratch: Buffer) -> tuple[Buffer, Buffer]:
        return scratch, inputs

    def forward(self, hidden: Tensor, projected: Tensor, gates: Tensor) -> None:
        torch.mm(hidden, self.weight, out=projected)
        gates.add_(self.norm.forward(projected))

    def backward(self, frame: int, grads: Tensor, projected: Tensor) -> Tensor:
        return self.norm.backward(frame, grads, projected)

    def collect(
        self, frames: slice, grads: Tensor, d_projected: list[Tensor], projected: Tensor
    ) -> tuple[Tensor, Tensor]:
        self.norm.collect(frames, grads, projected)
        return grads, torch.cat(d_projected)

    def totals(self) -> Pair:
        return self.norm.d_gain, self.norm.d_bias


class GatesJoined(GatesApart):
    """G = LN(x + U h), joined or gate by gate: z = x + U h."""

    def buffers(self, inputs: Buffer, scratch: Buffer) -> tuple[Buffer, Buffer]:
        return inputs, scratch

    def forward(self, hidden: Tensor, projected: Tensor, gates: Tensor) -> None:
        projected.addmm_(hidden, self.weight)
        gates.copy_(self.norm.forward(projected))

    def of_inputs(self, grads: Tensor, d_projected: Tensor) -> Tensor:
        return d_projected

    def collect(
        self, frames: slice, grads: Tensor, d_projected: list[Tensor], projected: Tensor
    ) -> tuple[Tensor, Tensor]:
        _, joined = super().collect(frames, grads, d_projected, projected)
        return joined, joined


class Memory:
    """cell_norm `none`. `raw` is c before any norm, `carried` what goes to the next frame, seen = tanh(what h sees)."""

    carries_raw = True
    """Whether `raw` and `carried` are one."""

    def statistics(self) -> Pair:
        """Those of the norm, where there is one."""
        return None, None

    def forward(self, raw: Tensor, carried: Tensor, seen: Tensor) -> None:
        torch.tanh(raw, out=seen)

    def backward(self, frame: int, d_cell: Tensor, d_hidden: Tensor, slope: Tensor, raw: Tensor) -> None:
        """Turn `d_cell` from the gradient of `carried` into that of `raw`.

        `slope` is o (1 - seen^2), the derivative of h; it becomes the gradient of what the norm gave, if there is one.
        """
        d_cell.addcmul_(d_hidden, slope)

    def collect(self, frames: slice, slope: Tensor, raw: Tensor) -> None:
        """Take the gradients of the norm's parameters from a run of frames."""

    def totals(self) -> Pair:
        """Gradients of the gain and of the bias."""
        return None, None


class MemorySeenNormalised(Memory):
    """cell_norm `output`: c is carried, tanh(LN(c)) is seen."""

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


class MemoryCarriedNormalised(MemorySeenNormalised):
    """cell_norm `state`: LN(c) is carried, tanh(c) is seen."""

    carries_raw = False

    def forward(self, raw: Tensor, carried: Tensor, seen: Tensor) -> None:
        carried.copy_(self.norm.forward(raw))
        torch.tanh(raw, out=seen)

    def backward(self, frame: int, d_cell: Tensor, d_hidden: Tensor, slope: Tensor, raw: Tensor) -> None:
        d_raw = self.norm.backward(frame, d_cell, raw).addcmul_(d_hidden, slope)
        slope.copy_(d_cell)
        d_cell.copy_(d_raw)


class MemoryNormalised(MemoryCarriedNormalised):
    """cell_norm `both`: LN(c) is carried, tanh(LN(c)) is seen."""

    def forward(self, raw: Tensor, carried: Tensor, seen: Tensor) -> None:
        carried.copy_(self.norm.forward(raw))
        torch.tanh(carried, out=seen)

    def backward(self, frame: int, d_cell: Tensor, d_hidden: Tensor, slope: Tensor, raw: Tensor) -> None:
        torch.addcmul(d_cell, slope, d_hidden, out=slope)
        d_cell.copy_(self.norm.backward(frame, slope, raw))
