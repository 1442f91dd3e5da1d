"""Layer norm on both projections apart, statistics over all four gates (Ba et al. 2016, eq. 20; Ben Othman 2018;
"Global" in Zeineldeen et al. 2020):

gates = LN(W x; gain_x, bias_x) + LN(U h; gain_h, bias_h) + b
"""

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from las.nn.cells.base import NUM_GATES, Frames, Gates, Hidden, LSTMCell
from las.runtime.errors import require_known

BIASES = ("all", "input")


class LNGlobalLSTMCell(LSTMCell):
    """An LSTM with layer norms on W x and U h.

    Invariant to the scale of W and of U separately, and to the scale of each frame.

    `biases` chooses the offsets: `all` is Ba et al.'s form (bias_x, bias_h and b: 20H parameters besides W and U),
    `input` is Zeineldeen et al.'s (bias_x alone: 12H). Both are the same function; they differ in training, because
    three biases that add up take three steps at each update.

    `input_gain` and `recurrent_gain` are the first values of the two gains. With both at 1 the history has half of the
    gates' variance from the first frame on, however small U h is; a recurrent gain of 0.1 (Cooijmans et al. 2017, for
    batch norm) lets it grow.

    >>> import las, torch
    >>> cell = las.LNGlobalLSTMCell(80, 256, cell_norm="output")
    >>> frame, state = torch.randn(4, 80), cell.initial_state(4)
    >>> state = cell.step(cell.input_gates(frame), state)
    >>> state.hidden.shape
    torch.Size([4, 256])
    >>> louder = cell.step(cell.input_gates(1000 * frame), cell.initial_state(4))
    >>> torch.allclose(louder.hidden, state.hidden, atol=1e-3)
    True
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        biases: str = "all",
        input_gain: float = 1.0,
        recurrent_gain: float = 1.0,
        **options: Any,
    ) -> None:
        super().__init__(input_size, hidden_size, **options)
        require_known("biases", biases, BIASES)
        self.equation_options = {"biases": biases}
        size = NUM_GATES * hidden_size
        self.input_weight, self.recurrent_weight = self.weights()
        self.input_gain = nn.Parameter(torch.full((size,), float(input_gain)))
        self.input_bias = nn.Parameter(torch.zeros(size))
        self.recurrent_gain = nn.Parameter(torch.full((size,), float(recurrent_gain)))
        self.recurrent_bias = nn.Parameter(torch.zeros(size)) if biases == "all" else None
        self.bias = nn.Parameter(torch.zeros(size)) if biases == "all" else None
        self.input_norm, self.recurrent_norm = self.norm(), self.norm()

    def gate_bias(self) -> nn.Parameter:
        return self.input_bias if self.bias is None else self.bias

    def input_gates(self, frames: Frames) -> Gates:
        projected = functional.linear(frames, self.input_weight)
        # One sum of both offsets: the same function and gradients, and one pass over the frames less.
        offset = self.input_bias if self.bias is None else self.input_bias + self.bias
        return self.input_norm(projected, self.input_gain, offset, self.eps)

    def gates(self, input_gates: Gates, hidden: Hidden) -> Gates:
        projected = functional.linear(hidden, self.recurrent_weight)
        return input_gates + self.recurrent_norm(projected, self.recurrent_gain, self.recurrent_bias, self.eps)
