"""Layer norm on one of the two projections alone:

gates = LN(W x; gain, bias) + U h              normalised: input
gates = W x + LN(U h; gain, bias)              normalised: recurrent
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from las.nn.cells.base import NUM_GATES, Frames, Gates, Hidden, LSTMCell
from las.runtime.errors import require_known

PROJECTIONS = ("input", "recurrent")


class LNOneProjectionLSTMCell(LSTMCell):
    """An LSTM with layer norm on W x or on U h, as `normalised` says, whose gain starts at `gain`.

    Parameters besides W and U: 8H.

    Invariant to the scale of the normalised matrix.
    """

    def __init__(
        self, input_size: int, hidden_size: int, *, normalised: str, gain: float = 1.0, **options: Any
    ) -> None:
        super().__init__(input_size, hidden_size, **options)
        require_known("normalised", normalised, PROJECTIONS)
        self.normalised = normalised
        self.equation_options = {"normalised": normalised}
        self.input_weight, self.recurrent_weight = self.weights()
        self.gain = nn.Parameter(torch.full((NUM_GATES * hidden_size,), float(gain)))
        self.bias = nn.Parameter(torch.zeros(NUM_GATES * hidden_size))
        self.projection_norm = self.norm()

    def input_gates(self, frames: Frames) -> Gates:
        return self._projected(frames, self.input_weight, "input")

    def gates(self, input_gates: Gates, hidden: Hidden) -> Gates:
        return input_gates + self._projected(hidden, self.recurrent_weight, "recurrent")

    def _projected(self, values: Tensor, weight: Tensor, name: str) -> Tensor:
        projected = functional.linear(values, weight)
        if name != self.normalised:
            return projected
        return self.projection_norm(projected, self.gain, self.bias, self.eps)
