"""The gated recurrent unit (Cho et al. 2014, in the form of `torch.nn.GRU`):

r, z = sigmoid(W x + U h + b)                  two gates
n    = tanh(W_n x + b_n + r * (U_n h + c))     the candidate
h'   = (1 - z) * n + z * h
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from las.nn.cells.base import (
    Frames,
    Gates,
    Hidden,
    HiddenState,
    Lengths,
    Mask,
    RecurrentCell,
    gate_weight,
    reached,
)

NUM_BLOCKS = 3


class GRUCell(RecurrentCell):
    """A GRU equal to `torch.nn.GRU`. Parameters: W, U, b [3H] in the order r, z, n, and c [H].

    `torch.nn.GRU` adds two biases to r and z, of which only the sum matters; here they are one.
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        self.input_weight = gate_weight(NUM_BLOCKS, hidden_size, input_size)
        self.recurrent_weight = gate_weight(NUM_BLOCKS, hidden_size, hidden_size)
        self.bias = nn.Parameter(torch.zeros(NUM_BLOCKS * hidden_size))
        self.candidate_bias = nn.Parameter(torch.zeros(hidden_size))

    def input_gates(self, frames: Frames) -> Gates:
        return functional.linear(frames, self.input_weight, self.bias)

    def recurrent_bias(self) -> Tensor:
        """Return what is added to U h, [3H]: c for the candidate, and zeros."""
        return functional.pad(self.candidate_bias, (2 * self.hidden_size, 0))

    def step(self, input_gates: Gates, state: HiddenState) -> HiddenState:
        recurrent = functional.linear(state.hidden, self.recurrent_weight, self.recurrent_bias())
        return HiddenState(updated(input_gates, recurrent, state.hidden))

    def torch_weights(self) -> list[Tensor]:
        """Return the parameters of an equal `torch.nn.GRU`: W, U and two biases."""
        return [self.input_weight, self.recurrent_weight, self.bias, self.recurrent_bias()]

    def not_unrolled(self, like: Tensor) -> str:
        if like.device.type != "cpu":
            return f"torch's function is used on a CPU, not on {like.device.type}"
        if like.dtype not in (torch.float32, torch.float64) or torch.is_autocast_enabled("cpu"):
            return "torch's function is used in fp32 and fp64, without autocast"
        return ""

    def unroll(self, frames: Frames, mask: Mask, num_frames: Lengths, state: HiddenState) -> tuple[Hidden, HiddenState]:
        first, settings = state.hidden.to(frames.dtype), (True, 1, 0.0, False, False, True)
        # Settings: biases, one layer, no dropout, not training, one direction, the batch is the first axis.
        hidden, _ = torch._VF.gru(frames, first.unsqueeze(0), self.torch_weights(), *settings)
        return hidden, HiddenState(reached(first, hidden, num_frames))


def updated(of_input: Gates, of_hidden: Gates, hidden: Hidden) -> Hidden:
    """Return h' from the two parts of the gates r, z and the candidate n, [..., 3H], and h."""
    r, z, n = of_input.chunk(NUM_BLOCKS, dim=-1)
    of_r, of_z, of_n = of_hidden.chunk(NUM_BLOCKS, dim=-1)
    z = torch.sigmoid(z + of_z)
    return (1 - z) * torch.tanh(n + torch.sigmoid(r + of_r) * of_n) + z * hidden
