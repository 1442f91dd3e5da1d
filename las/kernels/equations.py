"""What differs between cells in the recurrence, forwards and backwards: norms, gates, memory.

Each class has the equation of one frame (`forward`), the gradient through one frame (`backward`) and, where it has
parameters, their gradients over all frames at once (`totals`).
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

    def forward(self, values: Tensor) -> Tensor:
        normalised, mean, scale = torch.native_layer_norm(values, self.size, self.gain, self.bias, self.eps)
        self.means.append(mean)
        self.scales.append(scale)
        return normalised

    def backward(self, step: int, grads: Tensor, values: Tensor) -> Tensor:
        mean, scale = self.means[step], self.scales[step]
        mask = [True, False, False]
        return layer_norm_backward(grads, values, self.size, mean, scale, self.gain, self.bias, mask)[0]

    def totals(self, grads: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of all values, the gain and the bias."""
        mean, scale = self.statistics()
        mask = [True, True, True]
        return layer_norm_backward(grads, values, self.size, mean, scale, self.gain, self.bias, mask)

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

    def backward(self, step: int, grads: Tensor, values: Tensor) -> Tensor:
        return self._values(grads, values, self.means[step], self.scales[step])

    def totals(self, grads: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, scale = self.statistics()
        per_gate = grads.view(-1, *self.gain.shape)
        normalised = (values.view_as(per_gate) - mean).mul_(scale)
        return self._values(grads, values, mean, scale), (normalised.mul_(per_gate)).sum(0), per_gate.sum(0)

    def _values(self, grads: Tensor, values: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
        scaled = grads.view(-1, *self.gain.shape) * self.gain
        per_gate, mask = values.view_as(scaled), [True, False, False]
        return layer_norm_backward(scaled, per_gate, self.size, mean, scale, None, None, mask)[0].view_as(values)


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

    def backward(self, step: int, grads: Tensor, projected: Tensor) -> Tensor:
        """The gradient of z = U h (or of the sum that is normalised) from that of G."""
        return grads

    def totals(self, grads: Tensor, projected: Tensor) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """Gradients of all x, of all z, of the gain and of the bias."""
        return grads, grads, None, None


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

    def backward(self, step: int, grads: Tensor, projected: Tensor) -> Tensor:
        return self.norm.backward(step, grads, projected)

    def totals(self, grads: Tensor, projected: Tensor) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        return grads, *self.norm.totals(grads, projected)


class GatesJoined(GatesApart):
    """G = LN(x + U h), joined or gate by gate: z = x + U h."""

    def buffers(self, inputs: Buffer, scratch: Buffer) -> tuple[Buffer, Buffer]:
        return inputs, scratch

    def forward(self, hidden: Tensor, projected: Tensor, gates: Tensor) -> None:
        projected.addmm_(hidden, self.weight)
        gates.copy_(self.norm.forward(projected))

    def totals(self, grads: Tensor, projected: Tensor) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        d_projected, d_gain, d_bias = self.norm.totals(grads, projected)
        return d_projected, d_projected, d_gain, d_bias


class Memory:
    """cell_norm `none`. `raw` is c before any norm, `carried` what goes to the next frame, seen = tanh(what h sees)."""

    carries_raw = True
    """Whether `raw` and `carried` are one."""

    def statistics(self) -> Pair:
        """Those of the norm, where there is one."""
        return None, None

    def forward(self, raw: Tensor, carried: Tensor, seen: Tensor) -> None:
        torch.tanh(raw, out=seen)

    def backward(self, step: int, d_cell: Tensor, d_seen: Tensor, d_normalised: Tensor, raw: Tensor) -> None:
        """Turn `d_cell` from the gradient of `carried` into that of `raw`; `d_seen` is that of what h sees.

        `d_normalised` receives the gradient of the norm's output.
        """
        d_cell.add_(d_seen)

    def totals(self, d_normalised: Tensor, raw: Tensor) -> Pair:
        """Gradients of the gain and of the bias."""
        return None, None


class MemorySeenNormalised(Memory):
    """cell_norm `output`: c is carried, tanh(LN(c)) is seen."""

    def __init__(self, norm: Norm) -> None:
        self.norm = norm

    def statistics(self) -> Pair:
        return self.norm.statistics()

    def totals(self, d_normalised: Tensor, raw: Tensor) -> Pair:
        return self.norm.totals(d_normalised, raw)[1:]

    def forward(self, raw: Tensor, carried: Tensor, seen: Tensor) -> None:
        torch.tanh(self.norm.forward(raw), out=seen)

    def backward(self, step: int, d_cell: Tensor, d_seen: Tensor, d_normalised: Tensor, raw: Tensor) -> None:
        d_normalised.copy_(d_seen)
        d_cell.add_(self.norm.backward(step, d_seen, raw))


class MemoryCarriedNormalised(MemorySeenNormalised):
    """cell_norm `state`: LN(c) is carried, tanh(c) is seen."""

    carries_raw = False

    def forward(self, raw: Tensor, carried: Tensor, seen: Tensor) -> None:
        carried.copy_(self.norm.forward(raw))
        torch.tanh(raw, out=seen)

    def backward(self, step: int, d_cell: Tensor, d_seen: Tensor, d_normalised: Tensor, raw: Tensor) -> None:
        d_normalised.copy_(d_cell)
        torch.add(d_seen, self.norm.backward(step, d_cell, raw), out=d_cell)


class MemoryNormalised(MemoryCarriedNormalised):
    """cell_norm `both`: LN(c) is carried, tanh(LN(c)) is seen."""

    def forward(self, raw: Tensor, carried: Tensor, seen: Tensor) -> None:
        carried.copy_(self.norm.forward(raw))
        torch.tanh(carried, out=seen)

    def backward(self, step: int, d_cell: Tensor, d_seen: Tensor, d_normalised: Tensor, raw: Tensor) -> None:
        torch.add(d_cell, d_seen, out=d_normalised)
        d_cell.copy_(self.norm.backward(step, d_normalised, raw))
