"""A cell that takes its hidden state for its memory and its memory for its hidden state.

c_t = sigmoid(f) * h_{t-1} + sigmoid(i) * tanh(g),    gates of x_t and c_{t-1}

This is a deliberate mistake: in a public fork of nabu that appears to be Ben Othman 2018's, the cell of the
"LN decoder" unpacks TensorFlow's (c, h) as (h, c). It cuts the path along which an LSTM carries its memory, which would
explain a phone error rate of 66.6 %. A hypothesis for the reproduction, not for other use.
"""

from las.nn.cells.base import LSTMState
from las.nn.cells.wrapper import WrapperLSTMCell


class SwappedStateLSTMCell(WrapperLSTMCell):
    """A cell whose h and c are exchanged before each step. Args are those of `WrapperLSTMCell`."""

    def before(self, state: LSTMState) -> LSTMState:
        return LSTMState(hidden=state.cell, cell=state.hidden)
