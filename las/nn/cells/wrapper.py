"""Base class of cells that wrap another cell: they change how its state is updated, not its equations.

Wherever a config chooses a cell, it may choose a wrapper and the cell inside it: `cell@model.listener.cell=zoneout` and
`cell@model.listener.cell.cell=ln_joined`.
"""

from collections.abc import Callable
from typing import Any

from las.nn.cells.base import Frames, Gates, Hidden, LSTMCell, LSTMState, Mask
from las.nn.factories import made
from las.runtime.errors import ConfigError


class WrapperLSTMCell(LSTMCell):
    """A cell around another one, whose parameters, gates and memory update it uses.

    Args:
        cell: makes the cell inside from (input_size, hidden_size).
        options: keyword arguments of the cell inside.
    """

    def __init__(self, input_size: int, hidden_size: int, *, cell: Callable[..., LSTMCell], **options: Any) -> None:
        super().__init__(input_size, hidden_size)
        self.cell = made("cell", cell, input_size, hidden_size, **options)
        if not isinstance(self.cell, LSTMCell):
            raise ConfigError(f"{type(self).__name__} takes LSTM cells, and {type(self.cell).__name__} is none")
        self.output_size = self.cell.output_size
        self.cell_norm, self.forget_bias, self.eps = self.cell.cell_norm, self.cell.forget_bias, self.cell.eps

    def input_gates(self, frames: Frames) -> Gates:
        return self.cell.input_gates(frames)

    def padded_input_gates(self, frames: Frames, mask: Mask) -> Gates:
        return self.cell.padded_input_gates(frames, mask)

    def gates(self, input_gates: Gates, hidden: Hidden) -> Gates:
        return self.cell.gates(input_gates, hidden)

    def step(self, input_gates: Gates, state: LSTMState) -> LSTMState:
        return self.after(self.cell.step(input_gates, self.before(state)), state)

    def padded_step(self, input_gates: Gates, state: LSTMState, frame: int, mask: Mask) -> LSTMState:
        return self.after(self.cell.padded_step(input_gates, self.before(state), frame, mask), state)

    def initial_state(self, *batch: int) -> LSTMState:
        return self.cell.initial_state(*batch)

    def before(self, state: LSTMState) -> LSTMState:
        """Return the state from which the inner cell starts its step."""
        return state

    def after(self, new: LSTMState, old: LSTMState) -> LSTMState:
        """Return the new state, from the one that the inner cell computed and the old one."""
        return new
