"""The light GRU, Li-GRU (Ravanelli et al. 2018, equations 8-10): no reset gate, and a candidate without a bound.

z  = sigmoid(norm(W_z x) + U_z h)
h' = z * h + (1 - z) * relu(norm(W_h x) + U_h h)

The norm is a layer norm of both products together, or another one inside cells. That of the paper is a batch norm, with
which an utterance depends on its batch.
"""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from las.nn.cells.base import Frames, Gates, Hidden, HiddenState, RecurrentCell, gate_weight
from las.nn.cells.norms import CellNorm, LayerNorm
from las.nn.factories import made

NUM_BLOCKS = 2


class LiGRUCell(RecurrentCell):
    """A light GRU with layer norm in place of batch norm. Parameters: W, U, gain and bias of the norm [2H], order z, h.

    Args:
        norm: makes the norm of W x (`las.nn.cells.norms`).
        eps: added to its variance.
    """

    def __init__(
        self, input_size: int, hidden_size: int, *, norm: Callable[[], CellNorm] = LayerNorm, eps: float = 1e-5
    ) -> None:
        super().__init__(input_size, hidden_size)
        self.input_weight = gate_weight(NUM_BLOCKS, hidden_size, input_size)
        self.recurrent_weight = gate_weight(NUM_BLOCKS, hidden_size, hidden_size)
        self.gain = nn.Parameter(torch.ones(NUM_BLOCKS * hidden_size))
        self.bias = nn.Parameter(torch.zeros(NUM_BLOCKS * hidden_size))
        self.input_norm, self.eps = made("norm", norm), eps

    def input_gates(self, frames: Frames) -> Gates:
        return self.input_norm(functional.linear(frames, self.input_weight), self.gain, self.bias, self.eps)

    def recurrent_gates(self, hidden: Hidden) -> Gates:
        """Return what is added to the projected input: U h."""
        return functional.linear(hidden, self.recurrent_weight)

    def step(self, input_gates: Gates, state: HiddenState) -> HiddenState:
        z, candidate = (input_gates + self.recurrent_gates(state.hidden)).chunk(NUM_BLOCKS, dim=-1)
        z = torch.sigmoid(z)
        return HiddenState(z * state.hidden + (1 - z) * functional.relu(candidate))
