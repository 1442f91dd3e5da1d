"""Batch norm on the projection of the input alone (Laurent et al. 2016; Amodei et al. 2016, "Deep Speech 2"):

gates = BN(W x; gain, bias) + U h

A baseline for comparison: its statistics are over all true frames of all utterances of a batch.
"""

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from las.nn.cells.base import NUM_GATES, Frames, Gates, LSTMCell, Mask
from las.nn.normalisation import RunningMoments, moment_norm


class BNInputLSTMCell(LSTMCell):
    """An LSTM with batch norm on W x. Parameters besides W and U: 8H.

    In a speller the statistics are over the utterances of the batch, token by token.

    Args:
        momentum: weight of a batch in the running statistics that evaluation uses.
    """

    def __init__(
        self, input_size: int, hidden_size: int, *, momentum: float = 0.1, gain: float = 1.0, **options: Any
    ) -> None:
        super().__init__(input_size, hidden_size, **options)
        self.input_weight, self.recurrent_weight = self.weights()
        self.gain = nn.Parameter(torch.full((NUM_GATES * hidden_size,), float(gain)))
        self.bias = nn.Parameter(torch.zeros(NUM_GATES * hidden_size))
        self.input_moments = RunningMoments(NUM_GATES * hidden_size, momentum=momentum)

    def input_gates(self, frames: Frames) -> Gates:
        return self.padded_input_gates(frames, torch.ones_like(frames[..., 0], dtype=torch.bool))

    def padded_input_gates(self, frames: Frames, mask: Mask) -> Gates:
        projected = functional.linear(frames, self.input_weight)
        return moment_norm(projected, self.input_moments(projected, mask), self.gain, self.bias, self.eps)
