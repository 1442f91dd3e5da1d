"""Norms inside the cells, before the gain and the bias that the cell owns:

    layer norm      n = (z - mean(z)) / sqrt(var(z) + eps)      Ba et al. 2016, equation 4
    RMS norm        n = z / sqrt(mean(z^2) + eps)               Zhang and Sennrich 2019, equation 4
    dynamic tanh    n = tanh(alpha z)                           Zhu et al. 2025, section 4
    none            n = z

Statistics are those of the last axis. A cell makes one object for each of its norms, so that dynamic tanh has an alpha
for each; the norm of four gates apart is one.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from las.nn.normalisation import bounded_eps, layer_norm
from las.runtime.errors import ConfigError


class CellNorm(nn.Module):
    """Base class of norms inside a cell. A subclass defines `forward`; gain and bias are the cell's.

    >>> import functools, las, torch
    >>> class MaxNorm(las.CellNorm):
    ...     def forward(self, values, gain, bias, eps):
    ...         return self.affine(values / values.abs().amax(-1, keepdim=True).clamp(min=eps), gain, bias)
    ...
    >>> lstm = las.LSTM(80, 256, cell=functools.partial(las.LNJoinedLSTMCell, norm=MaxNorm))
    >>> lstm(torch.randn(50, 4, 80))[0].shape
    torch.Size([50, 4, 256])
    """

    def forward(
        self, values: Float[Tensor, "*shape"], gain: Float[Tensor, "..."], bias: Float[Tensor, "..."] | None, eps: float
    ) -> Float[Tensor, "*shape"]:
        """Return gain n + bias. The gain may have more axes than one, e.g. one row per gate."""
        raise TypeError(f"{type(self).__name__} must define forward")

    @staticmethod
    def affine(values: Float[Tensor, "*shape"], gain: Tensor, bias: Tensor | None) -> Float[Tensor, "*shape"]:
        """Return gain n + bias for normalised values n."""
        return values * gain if bias is None else values * gain + bias


class LayerNorm(CellNorm):
    """Layer norm, the norm of the papers: invariant to a shift and to the scale of its values."""

    def forward(self, values: Tensor, gain: Tensor, bias: Tensor | None, eps: float) -> Tensor:
        return layer_norm(values, gain, bias, eps)


class RMSNorm(CellNorm):
    """Root mean square norm: invariant to the scale of its values, but not to a shift."""

    def forward(self, values: Tensor, gain: Tensor, bias: Tensor | None, eps: float) -> Tensor:
        size, eps = values.shape[-1:], bounded_eps(eps, values.dtype)
        return self.affine(functional.rms_norm(values, size, eps=eps), gain, bias)


class DynamicTanh(CellNorm):
    """Dynamic tanh: no statistics, so no invariance; large values are squashed instead.

    Args:
        alpha: first value of the scale, which is trained.

    Raises:
        ConfigError: if alpha is 0.
    """

    def __init__(self, alpha: float = 0.5) -> None:
        super().__init__()
        if not alpha:
            raise ConfigError("alpha=0: dynamic tanh of 0 passes nothing on; its usual first value is 0.5")
        self.alpha = nn.Parameter(torch.tensor(float(alpha)))

    def forward(self, values: Tensor, gain: Tensor, bias: Tensor | None, eps: float) -> Tensor:
        return self.affine(torch.tanh(self.alpha * values), gain, bias)


class NoNorm(CellNorm):
    """Gain and bias alone, the control of all norms."""

    def forward(self, values: Tensor, gain: Tensor, bias: Tensor | None, eps: float) -> Tensor:
        return self.affine(values, gain, bias)
