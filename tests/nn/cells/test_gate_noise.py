"""Noise on gates: of the distribution that algorithm 1 names, new with every update, and only while training."""

import functools

import pytest
import torch
from torch import Tensor

from las.nn.cells.gate_noise import GateNoiseLSTMCell
from las.nn.cells.lstm import PlainLSTMCell

INPUT, HIDDEN, ROWS = 3, 4, 20000


def cell_of(number: int) -> GateNoiseLSTMCell:
    torch.manual_seed(number)
    return GateNoiseLSTMCell(INPUT, HIDDEN, cell=functools.partial(PlainLSTMCell)).train()


def drawn(cell: GateNoiseLSTMCell, seed: int, value: float, rows: int = ROWS) -> Tensor:
    """Noisy gates of many frames whose gates are all of one value."""
    torch.manual_seed(seed)
    return cell.gates(torch.full((rows, 4 * HIDDEN), value), torch.zeros(rows, HIDDEN)).detach()


def test_the_noise_of_an_update_has_the_moments_of_the_algorithm() -> None:
    """s a + m with m ~ U(μ ± 0.1), s ~ N(σ, 0.1): at a = 0 only m is left, at a = 1000 next to nothing of it."""
    cell = cell_of(1)
    shift, scaled = drawn(cell, 2, 0.0), drawn(cell, 2, 1000.0) / 1000
    mu, sigma = shift.mean(0), scaled.mean(0)
    assert (shift - mu).abs().max() < 0.102 and shift.std(0) == pytest.approx(0.2 / 12**0.5, rel=0.02)
    assert scaled.std(0) == pytest.approx(0.1, rel=0.03)
    assert (mu.abs() <= 0.5).all() and ((sigma > 0.99) & (sigma < 1.26)).all()
    assert mu.std() > 0.1 and sigma.std() > 0.03  # each unit has its own


def test_units_are_drawn_evenly_from_their_ranges() -> None:
    cell = cell_of(1)
    mu, sigma = (torch.cat([drawn(cell, seed, value, 500).mean(0) for seed in range(40)]) for value in (0.0, 1000.0))
    assert mu.mean() == pytest.approx(0.0, abs=0.05) and mu.std() == pytest.approx(1 / 12**0.5, rel=0.1)
    assert sigma.mean() / 1000 == pytest.approx(1.125, abs=0.02)


def test_steps_of_an_update_share_their_units_and_updates_and_layers_do_not() -> None:
    """Twenty thousand frames of one call and of the next: the same μ, other m."""
    cell, other = cell_of(1), cell_of(2)
    first = drawn(cell, 5, 0.0)
    second = cell.gates(torch.zeros(ROWS, 4 * HIDDEN), torch.zeros(ROWS, HIDDEN)).detach()
    assert not torch.equal(first, second)
    torch.testing.assert_close(first.mean(0), second.mean(0), rtol=0, atol=0.002)
    for another in (drawn(cell, 6, 0.0), drawn(other, 5, 0.0)):
        assert (first.mean(0) - another.mean(0)).abs().max() > 0.1
    assert torch.equal(first, drawn(cell, 5, 0.0))


def test_the_number_of_a_cell_travels_with_it() -> None:
    one, two = cell_of(1), cell_of(2)
    assert one.number != two.number
    two.load_state_dict(one.state_dict())
    assert torch.equal(drawn(one, 3, 0.0), drawn(two, 3, 0.0))
