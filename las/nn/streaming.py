"""Rows that arrive piece by piece: functions of a window around each row, and a look ahead of a few rows.

What is computed of a stream has a state that goes in and comes out, as that of a cell does. A piece may have any length
or none; the outputs of all pieces are those of the whole, in order, whatever the pieces were.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from las.config.build import require
from las.nn.normalisation import Lengths, Rows

Pieces = Float[Tensor, "batch rows *size"]
"""Samples or rows of the next piece of each stream, as many of all streams."""

Computed = Float[Tensor, "batch outputs features"]
"""What is made of them, in order."""

Stage = Callable[[Any, Any, bool], tuple[Any, Any]]
"""Maps (the next rows, its state, whether they are the last) to (the outputs that are known by now, its next state)."""


class WindowState(NamedTuple):
    """Rows that are still needed, and how many outputs precede the first of them and were returned."""

    rows: Pieces
    first: int
    returned: int


@dataclass(frozen=True)
class Window:
    """A function of windows as a stage of a stream: output j reads the rows from j * stride - before up to but without
    (j + 1) * stride + after.

    At the end a window may lack rows: the function itself says how many outputs there are.

    >>> import torch
    >>> from las.nn.streaming import Window
    >>> pairs = Window(lambda rows, count: (rows[:, ::2] + rows[:, 1::2], count // 2), size=1, stride=2)
    >>> first, state = pairs(torch.tensor([[[1.0], [2.0], [3.0]]]), None, is_last=False)
    >>> second, state = pairs(torch.tensor([[[4.0]]]), state, is_last=True)
    >>> first.tolist(), second.tolist()
    ([[[3.0]]], [[[7.0]]])
    """

    compute: Callable[[Any, Any], tuple[Any, Any]]
    """Maps rows [batch, rows, ...] and their numbers [batch] to outputs [batch, outputs, size] and theirs."""
    size: int
    stride: int = 1
    before: int = 0
    after: int = 0

    def __call__(self, piece: Pieces, state: WindowState | None, is_last: bool) -> tuple[Computed, WindowState]:
        rows, first, returned = WindowState(piece, 0, 0) if state is None else state
        rows = piece if state is None else torch.cat([rows, piece], dim=1)
        batch, kept = rows.shape[:2]
        ready = kept if is_last else (kept - self.after) // self.stride + first - returned
        outputs = piece.new_zeros(batch, 0, self.size)
        if kept and ready > 0:
            outputs, counts = self.compute(rows, torch.full((batch,), kept))
            end = int(counts[0]) if is_last else returned + ready - first
            outputs = outputs[:, returned - first : end]
            returned += outputs.shape[1]
        start = max(returned + -self.before // self.stride, first)
        return outputs, WindowState(rows[:, (start - first) * self.stride :], start, returned)


class RowConvolution(nn.Module):
    """A look ahead of a few rows above recurrent layers of one direction (Amodei et al. 2016, section 3.8):

    y_t = sum over j = 0 ... context of w_j * x_{t+j}, feature by feature; what lies behind the end is zero.

    It starts as the identity. Args: `size`, features of a row; `context`, the rows ahead that it reads.
    """

    def __init__(self, size: int, context: int) -> None:
        super().__init__()
        require("lookahead", context, 0)
        self.context = context
        self.convolution = nn.Conv1d(size, size, context + 1, groups=size, bias=False)
        with torch.no_grad():
            self.convolution.weight.zero_()[:, :, 0] = 1.0

    def forward(self, rows: Rows, num_rows: Lengths) -> tuple[Rows, Lengths]:
        """Return as many rows; those in padding, which are zero, come out as zero."""
        return self.convolution(nn.functional.pad(rows.transpose(1, 2), (0, self.context))).transpose(1, 2), num_rows
