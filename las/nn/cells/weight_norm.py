"""Weight norm (Salimans & Kingma 2016): every row of W and U has its length as a parameter of its own.

gates = W x + U h + b,    row_r(W) = gain_r * direction_r / |direction_r|,    U likewise

A cell to compare with: it normalises no activation.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from las.nn.cells.base import NUM_GATES, Frames, Gates, Hidden, LSTMCell


def weight_norm(
    direction: Float[Tensor, "rows columns"], gain: Float[Tensor, " rows"]
) -> Float[Tensor, "rows columns"]:
    """Rows of given direction and length `gain`: `torch.nn.utils.parametrizations.weight_norm` of dim 0."""
    return functional.normalize(direction, dim=-1) * gain.unsqueeze(-1)


class WeightNormLSTMCell(LSTMCell):
    """An LSTM with weight norm. Parameters besides W and U: 12H. Invariant to the scale of each row of the directions.

    `input_weight` and `recurrent_weight` are the directions. The gains start at their lengths, so that the cell starts
    as the plain one.
    """

    def __init__(self, input_size: int, hidden_size: int, **options: Any) -> None:
        super().__init__(input_size, hidden_size, **options)
        self.input_weight, self.recurrent_weight = self.weights()
        self.input_gain = nn.Parameter(torch.empty(NUM_GATES * hidden_size))
        self.recurrent_gain = nn.Parameter(torch.empty(NUM_GATES * hidden_size))
        self.weights_changed()
        self.bias = nn.Parameter(torch.zeros(NUM_GATES * hidden_size))

    @torch.no_grad()
    def weights_changed(self) -> None:
        self.input_gain.copy_(self.input_weight.norm(dim=-1))
        self.recurrent_gain.copy_(self.recurrent_weight.norm(dim=-1))

    def input_gates(self, frames: Frames) -> Gates:
        return functional.linear(frames, weight_norm(self.input_weight, self.input_gain), self.bias)

    def gates(self, input_gates: Gates, hidden: Hidden) -> Gates:
        return input_gates + functional.linear(hidden, weight_norm(self.recurrent_weight, self.recurrent_gain))
