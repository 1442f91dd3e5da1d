"""Layer norm on the sum of both projections, statistics over all four gates ("Joined" in Zeineldeen et al. 2020):

gates = LN(W x + U h; gain, bias)
"""

from typing import Any

import torch
from torch import nn

from las.nn.cells.base import NUM_GATES, Gates, Hidden, LSTMCell


class LNJoinedLSTMCell(LSTMCell):
    """An LSTM with layer norm on W x + U h, whose gain starts at `gain`. Parameters besides W and U: 8H.

    Invariant to one common scale of W and U, not to either's alone.
    """

    def __init__(self, input_size: int, hidden_size: int, *, gain: float = 1.0, **options: Any) -> None:
        super().__init__(input_size, hidden_size, **options)
        self.input_weight, self.recurrent_weight = self.weights()
        self.gain = nn.Parameter(torch.full((NUM_GATES * hidden_size,), float(gain)))
        self.bias = nn.Parameter(torch.zeros(NUM_GATES * hidden_size))
        self.gate_norm = self.norm()

    def gates(self, input_gates: Gates, hidden: Hidden) -> Gates:
        return self.gate_norm(super().gates(input_gates, hidden), self.gain, self.bias, self.eps)
