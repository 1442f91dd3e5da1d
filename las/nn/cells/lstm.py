"""The plain LSTM (Hochreiter & Schmidhuber 1997; Gers et al. 2000):

gates = W x + U h + b
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from las.nn.cells.base import NUM_GATES, Frames, Gates, LSTMCell


class PlainLSTMCell(LSTMCell):
    """An LSTM equal to `torch.nn.LSTM` when `cell_norm` is `none` and `forget_bias` 0. Parameters: W, U, b [4H]."""

    def __init__(self, input_size: int, hidden_size: int, **options: Any) -> None:
        super().__init__(input_size, hidden_size, **options)
        self.input_weight, self.recurrent_weight = self.weights()
        self.bias = nn.Parameter(torch.zeros(NUM_GATES * hidden_size))

    def input_gates(self, frames: Frames) -> Gates:
        return functional.linear(frames, self.input_weight, self.bias)

    def torch_weights(self) -> list[Tensor]:
        """Return the parameters of an equal `torch.nn.LSTM`: W, U and two biases."""
        return [self.input_weight, self.recurrent_weight, self.bias, self.constant_bias()]
