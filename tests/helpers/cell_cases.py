"""Cells and frames for tests."""

import torch
from cell_cards import factory_of
from torch import Tensor

from las.nn.cells.base import LSTMCell, LSTMState
from las.nn.kernels import plain as plain_kernel

INPUT, HIDDEN, BATCH, FRAMES = 5, 6, 3, 4


def make(name: str, input_size: int = INPUT, hidden_size: int = HIDDEN, **options: object) -> LSTMCell:
    """The cell of a card in float64 and in evaluation, every parameter moved away from where it starts."""
    torch.manual_seed(1)
    cell: LSTMCell = factory_of(name)(input_size, hidden_size, **options).double().eval()
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    return cell


def material(
    batch: int = BATCH, frames: int = FRAMES, size: int = INPUT, hidden: int = HIDDEN
) -> tuple[Tensor, LSTMState]:
    """Frames and a state to start from, the same for every caller."""
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(batch, frames, size, generator=generator, dtype=torch.float64)
    h, c = torch.randn(2, batch, hidden, generator=generator, dtype=torch.float64)
    return x, LSTMState(h, c)


def run(cell: LSTMCell, x: Tensor, state: LSTMState | None = None) -> Tensor:
    """Outputs [batch, frames, H] of whole rows."""
    return plain_kernel.unroll(cell, cell.input_gates(x), torch.full((len(x),), x.shape[1]), state)[0]
