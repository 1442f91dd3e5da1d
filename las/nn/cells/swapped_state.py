"""A cell that takes its hidden state for its memory and its memory for its hidden state.

c_t = sigmoid(f) * h_{t-1} + sigmoid(i) * tanh(g),    gates of x_t and c_{t-1}

This is a mistake, and here on purpose: in a public fork of nabu that appears to be Ben Othman 2018's, the cell of the
"LN decoder" unpacks TensorFlow's (c, h) as (h, c). It cuts the path along which an LSTM remembers, which would explain
a phone error rate of 66.6 %. A hypothesis to be tested, nothing to be used.
"""

from las.nn.cells.base import LSTMState
from las.nn.cells.wrapper import WrappedLSTMCell


class SwappedLSTMCell(WrappedLSTMCell):
    """Args are those of `WrappedLSTMCell`."""

    def before(self, state: LSTMState) -> LSTMState:
        return LSTMState(hidden=state.cell, cell=state.hidden)
