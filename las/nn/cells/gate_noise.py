"""Noise on the gates after their norm, which tests internal covariate shift (Santurkar et al. 2018, algorithm 1):

a_j <- s_j a_j + m_j,    m_j ~ U(μ_j − 0.1, μ_j + 0.1), s_j ~ N(σ_j, 0.1) per frame and utterance,
                         μ_j ~ U(−0.5, 0.5), σ_j ~ U(1, 1.25) per unit j and update

a are the gates' pre-activations after whatever norm the cell inside has, before their nonlinearities. Each layer's
distributions change at random with every update: if LN helped by keeping them stable, it would not help here. Around
a cell without a norm this is the control. The 0.1 of N is taken as its standard deviation, which the paper leaves open.
"""

import hashlib
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from las.nn.cells.base import Gates, Hidden, LSTMCell, LSTMState, Mask
from las.nn.cells.wrapper import WrapperLSTMCell
from las.runtime.errors import ConfigError

SHIFT, SCALE, WIDTH = 0.5, 1.25, 0.1


class GateNoiseLSTMCell(WrapperLSTMCell):
    """A cell whose gates are scaled and shifted at random while training; evaluation leaves them as they are.

    The draws of an update are a function of torch's seed, which a training sets before each, and of a number of the
    cell's own, so that all micro-batches of an update agree. The draws of a frame come from torch's generator.

    Args:
        options: those of `WrapperLSTMCell`. The cell inside must have the `step` of `LSTMCell`.
    """

    number: Tensor

    def __init__(self, input_size: int, hidden_size: int, **options: Any) -> None:
        super().__init__(input_size, hidden_size, **options)
        if type(self.cell).step is not LSTMCell.step:
            raise ConfigError(
                f"noise acts on the gates, but {type(self.cell).__name__} has a step of its own: wrap a different "
                "cell, or swap the order of the two wrappers"
            )
        self.register_buffer("number", torch.randint(1 << 62, ()))
        self._number: int | None = None  # the same on the CPU: reading it from a GPU at every frame would wait for it
        self.register_load_state_dict_pre_hook(self._forget_number)

    @staticmethod
    def _forget_number(cell: "GateNoiseLSTMCell", *given: object) -> None:
        cell._number = None

    def gates(self, input_gates: Gates, hidden: Hidden) -> Gates:
        gates = self.cell.gates(input_gates, hidden)
        if not self.training:
            return gates
        shift, scale = self._update_noise(gates)
        shift = shift + WIDTH * (2 * torch.rand_like(gates) - 1)
        return torch.addcmul(shift, gates, scale + WIDTH * torch.randn_like(gates))

    def step(self, input_gates: Gates, state: LSTMState) -> LSTMState:
        return self.cell.update_memory(self.gates(input_gates, state.hidden), state.cell)

    def padded_step(self, input_gates: Gates, state: LSTMState, frame: int, mask: Mask) -> LSTMState:
        return self.step(input_gates, state)

    def _update_noise(
        self, like: Float[Tensor, "*batch gates"]
    ) -> tuple[Float[Tensor, "gates"], Float[Tensor, "gates"]]:
        if self._number is None:
            self._number = int(self.number)
        seed = hashlib.sha256(f"noisy {torch.initial_seed()} {self._number}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(seed[:8], "big") >> 1)
        drawn = torch.rand(2, like.shape[-1], generator=generator).to(like.device, like.dtype, non_blocking=True)
        return SHIFT * (2 * drawn[0] - 1), 1 + (SCALE - 1) * drawn[1]
