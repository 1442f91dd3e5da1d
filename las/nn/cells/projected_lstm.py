"""The LSTM with a recurrent projection, LSTMP (Sak et al. 2014, equations 7-12, in the form of `torch.nn.LSTM`):

gates i, f, g, o = W x + U p + b
h'               = sigmoid(o) * tanh(c'),    c' as in every LSTM
p'               = P h'                      the output, which U reads
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from las.nn.cells.base import NUM_GATES, Frames, Gates, LSTMCell, LSTMState, gate_weight
from las.runtime.errors import ArgumentError


class ProjectedLSTMCell(LSTMCell):
    """An LSTM of small outputs, equal to `torch.nn.LSTM(proj_size=...)` without `cell_norm` and `forget_bias`.

    Parameters: W [4H, input], U [4H, proj_size], b [4H], P [proj_size, H]. The paper's peepholes and its non-recurrent
    projection are left out, as in torch.

    Args:
        proj_size: size of the output; half of the hidden size by default.
    """

    def __init__(self, input_size: int, hidden_size: int, *, proj_size: int | None = None, **options: Any) -> None:
        super().__init__(input_size, hidden_size, **options)
        self.output_size = max(hidden_size // 2, 1) if proj_size is None else proj_size
        if self.output_size < 1:
            raise ArgumentError(f"proj_size={proj_size} must be at least 1")
        self.input_weight, self.recurrent_weight = self.weights()
        self.bias = nn.Parameter(torch.zeros(NUM_GATES * hidden_size))
        self.projection_weight = gate_weight(1, self.output_size, hidden_size)

    def input_gates(self, frames: Frames) -> Gates:
        return functional.linear(frames, self.input_weight, self.bias)

    def step(self, input_gates: Gates, state: LSTMState) -> LSTMState:
        hidden, cell = super().step(input_gates, state)
        return LSTMState(functional.linear(hidden, self.projection_weight), cell)

    def torch_weights(self) -> list[Tensor]:
        """Return the parameters of an equal `torch.nn.LSTM`: W, U, two biases, P."""
        return [self.input_weight, self.recurrent_weight, self.bias, self.constant_bias(), self.projection_weight]

    def initial_state(self, *batch: int) -> LSTMState:
        return LSTMState(self.zeros(*batch, self.output_size), self.zeros(*batch, self.hidden_size))
