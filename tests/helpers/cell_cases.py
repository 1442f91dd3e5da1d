"""Every option of configs/cell/ as a factory, cells and frames, and the common properties that a cell lacks."""

import functools
from typing import Any

import pytest
import torch
from options import names, part
from parameters import moved
from torch import Tensor

from las.nn.cells.base import LSTMCell, LSTMState, RecurrentCell, State
from las.nn.cells.wrapper import WrapperLSTMCell
from las.nn.kernels.base import unroll
from las.nn.nested import mapped
from las.nn.rnn import CellFactory

INPUT, HIDDEN, BATCH, FRAMES = 5, 6, 3, 4
OPTIONS = names("cell")
every_cell = pytest.mark.parametrize("name", OPTIONS)

LACKING = {
    "gains start at a number": {
        "weight_norm": "its gains start as the lengths of the rows",
        "zeineldeen2020_global_gain01": "one gain starts at another",
        "zeineldeen2020_global_cell_gain01": "one gain starts at another",
    },
    "is an LSTM but for its norms": {
        "projected_lstm": "its output is a projection",
        "zoneout": "a part of the state always stays as it was",
        "ba2016_swapped": "reads the memory where an LSTM reads the hidden state",
    },
}
"""Property, option, reason. In evaluation all other properties hold for every option; `test_cells_compared.py` has what
training changes: batch norm looks at a whole batch, zoneout and dropout draw."""


@functools.cache
def factory_of(name: str) -> CellFactory:
    """What an option builds, with the cell inside that its defaults choose."""
    factory: CellFactory = part("cell", name)
    return factory


LSTMS = [name for name in OPTIONS if isinstance(factory_of(name)(INPUT, HIDDEN), LSTMCell)]
every_lstm = pytest.mark.parametrize("name", LSTMS)


def cells_whose(*properties: str) -> pytest.MarkDecorator:
    """Parametrises `name` with the LSTMs that lack none of these properties."""
    lacking = {option for each in properties for option in LACKING[each]}
    assert lacking < set(LSTMS)
    return pytest.mark.parametrize("name", [option for option in LSTMS if option not in lacking])


def equations_of(cell: Any) -> Any:
    """The cell whose equations a wrapped one has, itself for all others."""
    return equations_of(cell.cell) if isinstance(cell, WrapperLSTMCell) else cell


def make(name: str, input_size: int = INPUT, hidden_size: int = HIDDEN, **options: object) -> Any:
    """The cell of an option in float64 and in evaluation, every parameter moved away from where it starts."""
    torch.manual_seed(1)
    return moved(factory_of(name)(input_size, hidden_size, **options).double().eval(), 0.5)


def material(
    batch: int = BATCH, frames: int = FRAMES, size: int = INPUT, hidden: int = HIDDEN
) -> tuple[Tensor, LSTMState]:
    """Frames and a state to start from, the same for every caller."""
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(batch, frames, size, generator=generator, dtype=torch.float64)
    h, c = torch.randn(2, batch, hidden, generator=generator, dtype=torch.float64)
    return x, LSTMState(h, c)


def state_of(cell: RecurrentCell, batch: int) -> State:
    """A state that the cell may be in, that after two frames, as tensors to start from."""
    like, generator = next(cell.parameters()), torch.Generator().manual_seed(3)
    frames = torch.randn(batch, 2, cell.input_size, generator=generator, dtype=torch.float64).to(like.dtype)
    with torch.no_grad():
        return mapped(unroll(cell, cell.input_gates(frames), torch.full((batch,), 2))[1], torch.clone)


def run(cell: RecurrentCell, x: Tensor, state: State | None = None) -> Tensor:
    """Outputs [batch, frames, output size] of whole rows."""
    return unroll(cell, cell.input_gates(x), torch.full((len(x),), x.shape[1]), state)[0]
