"""Recurrent dropout without memory loss (Semeniuta et al. 2016, equation 14; as RETURNN's and tf.contrib's cells do):

c_t = sigmoid(f) * c_{t-1} + sigmoid(i) * d(tanh(g))

d is inverted dropout, drawn per unit, step and utterance while training. The memory is never dropped, only
its update.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from las.config.build import require
from las.nn.cells.base import Gates, LSTMCell, LSTMState, Mask
from las.nn.cells.wrapper import WrapperLSTMCell
from las.runtime.errors import ArgumentError, ConfigError


class RecurrentDropoutLSTMCell(WrapperLSTMCell):
    """A cell whose candidate tanh(g) is dropped out; draws come from torch's generator.

    Args:
        dropout: probability that a unit's candidate is dropped.
        options: those of `WrapperLSTMCell`. The cell inside must have the `step` of `LSTMCell`.
    """

    def __init__(self, input_size: int, hidden_size: int, *, dropout: float = 0.25, **options: Any) -> None:
        super().__init__(input_size, hidden_size, **options)
        require("dropout", dropout, 0.0, 1.0)
        if dropout == 1.0:
            raise ArgumentError(f"dropout={dropout} must be at least 0 and less than 1")
        if type(self.cell).step is not LSTMCell.step:
            raise ConfigError(
                f"recurrent dropout acts inside the step, but {type(self.cell).__name__} has a step of its own: wrap "
                "a different cell, or swap the order of the two wrappers"
            )
        self.dropout = dropout

    def step(self, input_gates: Gates, state: LSTMState) -> LSTMState:
        return self.cell.update_memory(
            self.cell.gates(input_gates, state.hidden), state.cell, candidate=self._candidate
        )

    def padded_step(self, input_gates: Gates, state: LSTMState, frame: int, mask: Mask) -> LSTMState:
        return self.step(input_gates, state)

    def _candidate(self, g: Tensor) -> Tensor:
        return functional.dropout(torch.tanh(g), self.dropout, self.training)
