"""Layer norm gate by gate on the sum of both projections ("Per Gate" in Zeineldeen et al. 2020; lingvo; tf.contrib):

gates_k = LN(W_k x + U_k h; gain_k, bias_k)    for k in i, f, g, o
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from las.nn.cells.base import NUM_GATES, LSTMCell
from las.nn.normalisation import layer_norm


class LNPerGateLSTMCell(LSTMCell):
    """An LSTM with layer norm on each gate of W x + U h. Parameters beside W and U: 8H.

    Invariant to a common scale of each gate's rows of W and U.
    """

    def __init__(self, input_size: int, hidden_size: int, **options: Any) -> None:
        super().__init__(input_size, hidden_size, **options)
        self.input_weight, self.recurrent_weight = self.weights()
        self.gain = nn.Parameter(torch.ones(NUM_GATES, hidden_size))
        self.bias = nn.Parameter(torch.zeros(NUM_GATES, hidden_size))

    def input_gates(self, frames: Float[Tensor, "*batch input"]) -> Float[Tensor, "*batch gates"]:
        return functional.linear(frames, self.input_weight)

    def gates(
        self, input_gates: Float[Tensor, "*batch gates"], hidden: Float[Tensor, "*batch hidden"]
    ) -> Float[Tensor, "*batch gates"]:
        joined = input_gates + functional.linear(hidden, self.recurrent_weight)
        per_gate = joined.unflatten(-1, (NUM_GATES, self.hidden_size))
        return layer_norm(per_gate, self.gain, self.bias, self.eps).flatten(-2)
