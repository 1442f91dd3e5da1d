"""Types shared by `las.nn.kernels.triton.layer` and its loops; importing them needs no Triton."""

from typing import NamedTuple

import torch
from torch import Tensor

from las.nn.cells.base import NUM_GATES

NUM_STATISTICS = 10
"""Per frame and row: four means of the gates, their scales 1 / sqrt(var + eps), mean and scale of c."""


class TritonPlan(NamedTuple):
    """Settings of one call."""

    norm: str  # one of `las.nn.kernels.forms.GATE_NORMS` (equations: `steps.pre_activations`)
    cell_norm: str
    kind: str  # one of `las.nn.kernels.forms.NORMS`
    eps: float
    operand: torch.dtype  # type of operands and of gradients
    outputs: torch.dtype
    precision: str  # of fp32 products: ieee or tf32
    keep: bool  # whether there may be a backward pass

    @property
    def kept(self) -> torch.dtype:
        """Type of gates and memory between the passes: gates near 0 and 1 need the mantissa that bf16 lacks."""
        return torch.float16 if self.operand == torch.bfloat16 else self.operand

    @property
    def groups(self) -> int:
        """Number of norms in a row of gates."""
        return NUM_GATES if self.norm == "per_gate" else 1

    @property
    def centres(self) -> bool:
        """True if the norm of the gates takes the mean away, from x and from U."""
        return self.norm != "none" and self.kind == "layer"

    @property
    def x_inside(self) -> bool:
        """True if the norm is over a sum with x."""
        return self.norm in ("joined", "per_gate")


class TritonEquations(NamedTuple):
    """The key of a compiled and captured loop, which serves many calls."""

    plan: TritonPlan
    hidden_size: int
    directions: int
    rows: int  # of the batch, rounded up by `rows_for`
    inputs: torch.dtype
    device: torch.device
    stream: int


class TritonTrace(NamedTuple):
    """Tensors of the forward pass that the backward pass needs, [directions, batch, frames, ...]."""

    gates: Tensor  # i, f, g, o after sigmoid and tanh; anything in padding
    cells: Tensor  # c before any norm, less its mean where it has one; zero in padding
    statistics: Tensor  # `NUM_STATISTICS`, zero in padding


class TritonGradients(NamedTuple):
    """Results of the backward pass for every frame, [directions, batch, frames, ...], zero in padding."""

    gates: Tensor  # of G
    projected: Tensor  # of z
    normalised: Tensor  # of LN(c)
    first: Tensor  # of the state before the first frame, [2, directions, batch, H]


def rows_for(batch: int) -> int:
    """Return the batch rounded up to whole tiles of 16, 32 or 64 rows: few different numbers mean few graphs."""
    return next((rows for rows in (16, 32) if batch <= rows), -(-batch // 64) * 64)
