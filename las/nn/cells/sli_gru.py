"""The stabilised light GRU, SLi-GRU (Moumen and Parcollet 2023): a Li-GRU with a layer norm of U h too.

z  = sigmoid(norm(W_z x) + norm(U_z h))
h' = z * h + (1 - z) * relu(norm(W_h x) + norm(U_h h))

The ReLU has no bound: a Li-GRU's state, and with it its gradient, may grow from frame to frame. Here U h keeps its
size whatever that of h. As in SpeechBrain, each norm is one of both products together.
"""

from collections.abc import Callable

import torch
from torch import nn

from las.nn.cells.base import Gates, Hidden
from las.nn.cells.li_gru import NUM_BLOCKS, LiGRUCell
from las.nn.cells.norms import CellNorm, LayerNorm
from las.nn.factories import made


class SLiGRUCell(LiGRUCell):
    """A Li-GRU with layer norms of W x and of U h. Parameters: those of a Li-GRU, and the gain of U h [2H].

    Args:
        norm: makes both norms (`las.nn.cells.norms`).
        eps: added to their variances.
    """

    def __init__(
        self, input_size: int, hidden_size: int, *, norm: Callable[[], CellNorm] = LayerNorm, eps: float = 1e-5
    ) -> None:
        super().__init__(input_size, hidden_size, norm=norm, eps=eps)
        self.recurrent_gain = nn.Parameter(torch.ones(NUM_BLOCKS * hidden_size))
        self.recurrent_norm = made("norm", norm)

    def recurrent_gates(self, hidden: Hidden) -> Gates:
        return self.recurrent_norm(super().recurrent_gates(hidden), self.recurrent_gain, None, self.eps)
