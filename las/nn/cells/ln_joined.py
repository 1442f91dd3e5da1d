"""Layer norm on the sum of both projections, statistics over all four gates ("Joined" in Zeineldeen et al. 2020):

gates = LN(W x + U h; gain, bias)
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from las.nn.cells.base import NUM_GATES, LSTMCell
from las.nn.normalisation import layer_norm


class LNJoinedLSTMCell(LSTMCell):
    """An LSTM with layer norm on W x + U h. Parameters beside W and U: 8H.

    Invariant to one common scale of W and U, not to either's alone.
    """

    def __init__(self, input_size: int, hidden_size: int, **options: Any) -> None:
        super().__init__(input_size, hidden_size, **options)
        self.input_weight, self.recurrent_weight = self.weights()
        self.gain = nn.Parameter(torch.ones(NUM_GATES * hidden_size))
        self.bias = nn.Parameter(torch.zeros(NUM_GATES * hidden_size))

    def input_gates(self, frames: Float[Tensor, "*batch input"]) -> Float[Tensor, "*batch gates"]:
        return functional.linear(frames, self.input_weight)

    def gates(
        self, input_gates: Float[Tensor, "*batch gates"], hidden: Float[Tensor, "*batch hidden"]
    ) -> Float[Tensor, "*batch gates"]:
        joined = input_gates + functional.linear(hidden, self.recurrent_weight)
        return layer_norm(joined, self.gain, self.bias, self.eps)
