"""sLSTM (Beck et al. 2024, "xLSTM", section 2.2): exponential gates, a normaliser, and a stabiliser.

gates i, f, z, o = W x + U h + b
m' = max(log sigmoid(f) + m, i)                the stabiliser: the largest exponent
c' = forget * c + write * tanh(z),             forget = exp(log sigmoid(f) + m - m'), write = exp(i - m')
n' = forget * n + write                        the normaliser
h' = sigmoid(o) * c' / n'
"""

from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional

from las.nn.cells.base import Frames, Gates, Hidden, RecurrentCell, gate_weight

NUM_BLOCKS = 4


class SLSTMState(NamedTuple):
    """The state of an sLSTM after a frame: h, c, n and m, all [batch ..., hidden_size]."""

    hidden: Hidden
    cell: Hidden
    normaliser: Hidden
    maximum: Hidden


class SLSTMCell(RecurrentCell):
    """An sLSTM of one head. Parameters: W, U, b [4H], in the order i, f, z, o.

    The forget gate is a sigmoid, as in the authors' program; the paper's other choice is an exponential. The first
    state is all zeros: where n is 0, no frame has been read, and m' is i.
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        self.input_weight = gate_weight(NUM_BLOCKS, hidden_size, input_size)
        self.recurrent_weight = gate_weight(NUM_BLOCKS, hidden_size, hidden_size)
        self.bias = nn.Parameter(torch.zeros(NUM_BLOCKS * hidden_size))

    def input_gates(self, frames: Frames) -> Gates:
        return functional.linear(frames, self.input_weight, self.bias)

    def step(self, input_gates: Gates, state: SLSTMState) -> SLSTMState:
        gates = input_gates + functional.linear(state.hidden, self.recurrent_weight)
        i, f, z, o = gates.chunk(NUM_BLOCKS, dim=-1)
        kept = (functional.logsigmoid(f) + state.maximum).masked_fill(state.normaliser == 0, -torch.inf)
        maximum = torch.maximum(kept, i)
        forget, write = torch.exp(kept - maximum), torch.exp(i - maximum)
        cell = forget * state.cell + write * torch.tanh(z)
        normaliser = forget * state.normaliser + write
        return SLSTMState(torch.sigmoid(o) * cell / normaliser, cell, normaliser, maximum)

    def initial_state(self, *batch: int) -> SLSTMState:
        zeros = self.zeros(*batch, self.hidden_size)
        return SLSTMState(zeros, zeros, zeros, zeros)
