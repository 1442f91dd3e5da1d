"""Cells that change how another cell remembers, and leave its equations alone.

Where a card chooses a cell, one of these may stand with that cell inside: `cell@model.listener.cell=zoneout` and
`cell@model.listener.cell.cell=ln_joined`.
"""

from collections.abc import Callable
from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor

from las.nn.cells.base import LSTMCell, LSTMState


class WrappedLSTMCell(LSTMCell):
    """What they share: parameters, gates and memory are those of the cell inside.

    Args:
        cell: makes the cell inside from (input_size, hidden_size).
        options: for the cell inside, in place of its own.
    """

    def __init__(self, input_size: int, hidden_size: int, *, cell: Callable[..., LSTMCell], **options: Any) -> None:
        super().__init__(input_size, hidden_size)
        self.cell = cell(input_size, hidden_size, **options)
        self.cell_norm, self.forget_bias, self.eps = self.cell.cell_norm, self.cell.forget_bias, self.cell.eps

    def input_gates(self, frames: Float[Tensor, "*batch input"]) -> Float[Tensor, "*batch gates"]:
        return self.cell.input_gates(frames)

    def padded_input_gates(
        self, frames: Float[Tensor, "*batch input"], mask: Bool[Tensor, "*batch"]
    ) -> Float[Tensor, "*batch gates"]:
        return self.cell.padded_input_gates(frames, mask)

    def gates(
        self, input_gates: Float[Tensor, "*batch gates"], hidden: Float[Tensor, "*batch hidden"]
    ) -> Float[Tensor, "*batch gates"]:
        return self.cell.gates(input_gates, hidden)

    def step(self, input_gates: Float[Tensor, "*batch gates"], state: LSTMState) -> LSTMState:
        return self.after(self.cell.step(input_gates, self.before(state)), state)

    def padded_step(
        self, input_gates: Float[Tensor, "*batch gates"], state: LSTMState, frame: int, mask: Bool[Tensor, "*batch"]
    ) -> LSTMState:
        return self.after(self.cell.padded_step(input_gates, self.before(state), frame, mask), state)

    def before(self, state: LSTMState) -> LSTMState:
        """The state that the cell inside starts its step from."""
        return state

    def after(self, new: LSTMState, old: LSTMState) -> LSTMState:
        """What becomes of the state that the cell inside made of the old one."""
        return new
