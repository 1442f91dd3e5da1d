"""Layer norm gate by gate on the sum of both projections, for selected gates:

gates_k = LN(W_k x + U_k h; gain_k) + bias_k    for the chosen k of i, f, g, o
gates_k = W_k x + U_k h + bias_k                for the others
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from las.nn.cells.base import NUM_GATES, Gates, Hidden, LSTMCell
from las.runtime.errors import ArgumentError, suggest

GATES = ("i", "f", "g", "o")


class LNSelectedGatesLSTMCell(LSTMCell):
    """An LSTM with layer norm on some gates; with all four it equals `ln_per_gate`.

    Parameters besides W and U: 4H, and H for each normalised gate.
    """

    def __init__(
        self, input_size: int, hidden_size: int, *, gates: Sequence[str] = GATES, gain: float = 1.0, **options: Any
    ) -> None:
        super().__init__(input_size, hidden_size, **options)
        for gate in gates:
            if gate not in GATES:
                raise ArgumentError(f"gates={list(gates)}: there is no gate {gate!r}.{suggest(str(gate), GATES)}")
        self.equation_options = {"gates": "".join(gates)}
        self.chosen = [GATES.index(gate) for gate in gates]
        self.input_weight, self.recurrent_weight = self.weights()
        self.gain = nn.Parameter(torch.full((len(self.chosen), hidden_size), float(gain)))
        self.bias = nn.Parameter(torch.zeros(NUM_GATES * hidden_size))
        self.gate_norm = self.norm()

    def gates(self, input_gates: Gates, hidden: Hidden) -> Gates:
        parts = list(super().gates(input_gates, hidden).chunk(NUM_GATES, dim=-1))
        for index, gain in zip(self.chosen, self.gain, strict=True):
            parts[index] = self.gate_norm(parts[index], gain, None, self.eps)
        return torch.cat(parts, dim=-1) + self.bias
