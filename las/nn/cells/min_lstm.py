"""minLSTM (Feng et al. 2024, section 3.2): an LSTM whose gates do not read the state, and sum to one.

i, f = sigmoid(W x + b)                                two gates
h'   = f / (f + i) * h + i / (f + i) * (W_h x + b_h)
"""

import torch
from torch import nn
from torch.nn import functional

from las.nn.cells.base import Frames, Gates, Hidden, gate_weight
from las.nn.cells.linear import LinearCell

NUM_BLOCKS = 3


class MinLSTMCell(LinearCell):
    """A minLSTM, computed in parallel over time. Parameters: W and b [3H], in the order i, f, h.

    Its state is h alone: there is neither a memory behind it nor an output gate. The equations are those of the paper's
    text: its appendix makes candidates positive, for a scan in log space.
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        self.input_weight = gate_weight(NUM_BLOCKS, hidden_size, input_size)
        self.bias = nn.Parameter(torch.zeros(NUM_BLOCKS * hidden_size))

    def input_gates(self, frames: Frames) -> Gates:
        return functional.linear(frames, self.input_weight, self.bias)

    def coefficients(self, input_gates: Gates) -> tuple[Hidden, Hidden]:
        i, f, candidate = input_gates.chunk(NUM_BLOCKS, dim=-1)
        # f / (f + i) by the logarithm of f / i, which is finite where both gates are closed.
        odds = functional.logsigmoid(f) - functional.logsigmoid(i)
        return torch.sigmoid(odds), torch.sigmoid(-odds) * candidate
