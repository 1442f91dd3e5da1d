"""Layer norm on both projections of a GRU (Ba et al. 2016, supplementary material, in the form of `torch.nn.GRU`):

r, z = sigmoid(LN(W x; gain_x, bias) + LN(U h; gain_h))                    statistics over both gates
n    = tanh(LN(W_n x; gain_x, bias) + r * LN(U_n h; gain_h, c))            each projection by itself
h'   = (1 - z) * n + z * h
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from las.nn.cells.base import Frames, Gates, HiddenState, RecurrentCell, gate_weight
from las.nn.cells.gru import NUM_BLOCKS, updated
from las.nn.cells.norms import CellNorm, LayerNorm
from las.nn.factories import checked


class LNGRUCell(RecurrentCell):
    """A GRU with layer norms on W x and U h. Parameters: W, U, two gains and bias [3H] in the order r, z, n; c [H].

    The paper adds two biases to r and z, of which only the sum matters; here they are one.

    Args:
        norm: makes the four norms, of two gates and of a candidate for W x and for U h (`las.nn.cells.norms`).
        eps: added to the variance inside every norm.

    >>> import las, torch
    >>> las.LSTM(80, 256, cell="ln_gru")(torch.randn(50, 4, 80))[0].shape
    torch.Size([50, 4, 256])
    """

    def __init__(
        self, input_size: int, hidden_size: int, *, norm: Callable[[], CellNorm] = LayerNorm, eps: float = 1e-5
    ) -> None:
        super().__init__(input_size, hidden_size)
        size = NUM_BLOCKS * hidden_size
        self.input_weight = gate_weight(NUM_BLOCKS, hidden_size, input_size)
        self.recurrent_weight = gate_weight(NUM_BLOCKS, hidden_size, hidden_size)
        self.input_gain, self.recurrent_gain = nn.Parameter(torch.ones(size)), nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size))
        self.candidate_bias = nn.Parameter(torch.zeros(hidden_size))
        norm = checked("norm", norm)
        self.input_norms, self.recurrent_norms = (nn.ModuleList([norm(), norm()]) for _ in range(2))
        self.eps = eps

    def input_gates(self, frames: Frames) -> Gates:
        projected = functional.linear(frames, self.input_weight)
        return self._normalised(projected, self.input_norms, self.input_gain) + self.bias

    def step(self, input_gates: Gates, state: HiddenState) -> HiddenState:
        projected = functional.linear(state.hidden, self.recurrent_weight)
        of_hidden = self._normalised(projected, self.recurrent_norms, self.recurrent_gain)
        of_hidden = of_hidden + functional.pad(self.candidate_bias, (2 * self.hidden_size, 0))
        return HiddenState(updated(input_gates, of_hidden, state.hidden))

    def _normalised(self, values: Gates, norms: nn.ModuleList, gain: Tensor) -> Gates:
        """Return the values of both gates and of the candidate, each with its own statistics."""
        sizes = [2 * self.hidden_size, self.hidden_size]
        parts = zip(norms, values.split(sizes, -1), gain.split(sizes), strict=True)
        return torch.cat([norm(part, of_part, None, self.eps) for norm, part, of_part in parts], -1)
