"""Recurrent batch norm (Cooijmans et al. 2017, equations 6-8):

gates = BN(W x; gain_x) + BN(U h; gain_h) + b,    and BN of the memory by `cell_norm` (`output` in the paper)

A baseline for comparison: every step is normalised over the utterances that are long enough to have it.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from las.nn.cells.base import NUM_GATES, Gates, Hidden, LSTMCell, LSTMState, Mask
from las.nn.normalisation import RunningMoments, moment_norm


class BNRecurrentLSTMCell(LSTMCell):
    """An LSTM with batch norm on W x, on U h and, by `cell_norm`, on the memory. Parameters besides W and U: 12H.

    Args:
        num_steps: first steps with running statistics of their own; later ones share those of the last. With 1, all
            steps share them. A speller does not count its steps: it uses the last.
        momentum: weight of a batch in the running statistics that evaluation uses.
        input_gain, recurrent_gain, cell_gain: first values of the gains; with 1 the gradient vanishes through the tanh
            (their section 4).
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        num_steps: int = 100,
        momentum: float = 0.1,
        input_gain: float = 0.1,
        recurrent_gain: float = 0.1,
        cell_gain: float = 0.1,
        **options: Any,
    ) -> None:
        super().__init__(input_size, hidden_size, cell_gain=cell_gain, **options)
        size = NUM_GATES * hidden_size
        self.input_weight, self.recurrent_weight = self.weights()
        self.input_gain = nn.Parameter(torch.full((size,), float(input_gain)))
        self.recurrent_gain = nn.Parameter(torch.full((size,), float(recurrent_gain)))
        self.bias = nn.Parameter(torch.zeros(size))
        running = partial(RunningMoments, num_steps=num_steps, momentum=momentum)
        self.input_moments, self.recurrent_moments = running(size), running(size)
        self.num_steps = num_steps
        if self.cell_norm != "none":
            self.cell_moments = running(hidden_size)

    def gates(self, input_gates: Gates, hidden: Hidden) -> Gates:
        return self._gates(input_gates, hidden, self.num_steps, _all(hidden))

    def step(self, input_gates: Gates, state: LSTMState) -> LSTMState:
        return self.padded_step(input_gates, state, self.num_steps, _all(state.hidden))

    def padded_step(self, input_gates: Gates, state: LSTMState, frame: int, mask: Mask) -> LSTMState:
        gates = self._gates(input_gates, state.hidden, frame, mask)
        return self.update_memory(gates, state.cell, norm=partial(self._cell_norm, frame=frame, mask=mask))

    def _gates(self, input_gates: Tensor, hidden: Tensor, frame: int, mask: Tensor) -> Tensor:
        projected = functional.linear(hidden, self.recurrent_weight)
        of_input, of_hidden = (
            self.input_moments(input_gates, mask, frame),
            self.recurrent_moments(projected, mask, frame),
        )
        normalised = moment_norm(input_gates, of_input, self.input_gain, None, self.eps)
        return normalised + moment_norm(projected, of_hidden, self.recurrent_gain, self.bias, self.eps)

    def _cell_norm(self, cell: Tensor, frame: int, mask: Tensor) -> Tensor:
        return moment_norm(cell, self.cell_moments(cell, mask, frame), self.cell_gain, self.cell_bias, self.eps)


def _all(hidden: Tensor) -> Tensor:
    return torch.ones_like(hidden[..., 0], dtype=torch.bool)
