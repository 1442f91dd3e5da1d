"""minGRU (Feng et al. 2024, section 3.1): a GRU whose gate and candidate do not read the state.

z  = sigmoid(W_z x + b_z)
h' = (1 - z) * h + z * (W_h x + b_h)
"""

import torch
from torch import nn
from torch.nn import functional

from las.nn.cells.base import Frames, Gates, Hidden, gate_weight
from las.nn.cells.linear import LinearCell

NUM_BLOCKS = 2


class MinGRUCell(LinearCell):
    """A minGRU, computed in parallel over time. Parameters: W and b [2H], in the order z, h.

    The equations are those of the paper's text: its appendix makes candidates positive, for a scan in log space.
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        self.input_weight = gate_weight(NUM_BLOCKS, hidden_size, input_size)
        self.bias = nn.Parameter(torch.zeros(NUM_BLOCKS * hidden_size))

    def input_gates(self, frames: Frames) -> Gates:
        return functional.linear(frames, self.input_weight, self.bias)

    def coefficients(self, input_gates: Gates) -> tuple[Hidden, Hidden]:
        z, candidate = input_gates.chunk(NUM_BLOCKS, dim=-1)
        return torch.sigmoid(-z), torch.sigmoid(z) * candidate
