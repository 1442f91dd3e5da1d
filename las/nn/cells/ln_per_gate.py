"""Layer norm gate by gate on the sum of both projections ("Per Gate" in Zeineldeen et al. 2020; lingvo; tf.contrib):

gates_k = LN(W_k x + U_k h; gain_k, bias_k)    for k in i, f, g, o
"""

from typing import Any

import torch
from torch import nn

from las.nn.cells.base import NUM_GATES, Gates, Hidden, LSTMCell


class LNPerGateLSTMCell(LSTMCell):
    """An LSTM with layer norm on each gate of W x + U h, whose gains start at `gain`.

    Parameters besides W and U: 8H.

    Invariant to a common scale of each gate's rows of W and U.
    """

    def __init__(self, input_size: int, hidden_size: int, *, gain: float = 1.0, **options: Any) -> None:
        super().__init__(input_size, hidden_size, **options)
        self.input_weight, self.recurrent_weight = self.weights()
        self.gain = nn.Parameter(torch.full((NUM_GATES, hidden_size), float(gain)))
        self.bias = nn.Parameter(torch.zeros(NUM_GATES, hidden_size))
        self.gate_norm = self.norm()

    def gates(self, input_gates: Gates, hidden: Hidden) -> Gates:
        per_gate = super().gates(input_gates, hidden).unflatten(-1, (NUM_GATES, self.hidden_size))
        return self.gate_norm(per_gate, self.gain, self.bias, self.eps).flatten(-2)
