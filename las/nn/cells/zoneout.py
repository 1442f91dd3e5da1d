"""Zoneout (Krueger et al. 2017): while training, units of the state keep their old value at random.

h_t = d_h * h_{t-1} + (1 - d_h) * h'_t,    c_t likewise with d_c;    d ~ Bernoulli per unit, step and utterance

h'_t and c'_t are the state that the cell inside computes. Evaluation uses the expected value of d.
"""

from typing import Any

import torch
from torch import Tensor

from las.config.build import require
from las.nn.cells.base import LSTMState
from las.nn.cells.wrapper import WrapperLSTMCell


class ZoneoutLSTMCell(WrapperLSTMCell):
    """A cell whose units keep their old value at random; draws come from torch's generator.

    Args:
        zoneout_hidden: probability that a unit of h keeps its value.
        zoneout_cell: the same for c.
        options: those of `WrapperLSTMCell`.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        zoneout_hidden: float = 0.05,
        zoneout_cell: float = 0.5,
        **options: Any,
    ) -> None:
        super().__init__(input_size, hidden_size, **options)
        require("zoneout_hidden", zoneout_hidden, 0.0, 1.0)
        require("zoneout_cell", zoneout_cell, 0.0, 1.0)
        self.zoneout_hidden = zoneout_hidden
        self.zoneout_cell = zoneout_cell

    def after(self, new: LSTMState, old: LSTMState) -> LSTMState:
        return LSTMState(
            self._mix(new.hidden, old.hidden, self.zoneout_hidden), self._mix(new.cell, old.cell, self.zoneout_cell)
        )

    def _mix(self, new: Tensor, old: Tensor, probability: float) -> Tensor:
        if self.training:
            return torch.where(torch.rand_like(new) < probability, old.to(new.dtype), new)
        return probability * old + (1.0 - probability) * new
