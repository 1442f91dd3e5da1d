"""Noise on gates: of the distribution that algorithm 1 names, new with every update, and only while training."""

import functools

import pytest
import torch
from cell_cards import factory_of
from torch import Tensor

from las.nn.cells.base import LSTMState
from las.nn.cells.bn_recurrent import BNRecurrentLSTMCell
from las.nn.cells.gate_noise import NoisyLSTMCell
from las.nn.cells.lstm import PlainLSTMCell
from las.nn.rnn import RecurrentLayer
from las.runtime.errors import ConfigError

INPUT, HIDDEN, ROWS = 3, 4, 40000


def cell_of(number: int) -> NoisyLSTMCell:
    torch.manual_seed(number)
    return NoisyLSTMCell(INPUT, HIDDEN, cell=functools.partial(PlainLSTMCell)).train()


def drawn(cell: NoisyLSTMCell, seed: int, value: float) -> Tensor:
    """Noisy gates of many frames whose gates are all of one value."""
    torch.manual_seed(seed)
    return cell.gates(torch.full((ROWS, 4 * HIDDEN), value), torch.zeros(ROWS, HIDDEN)).detach()


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
    means = [(drawn(cell_of(1), seed, 0.0).mean(0), drawn(cell_of(1), seed, 1000.0).mean(0)) for seed in range(40)]
    mu, sigma = (torch.cat(part) for part in zip(*means, strict=True))
    assert mu.mean() == pytest.approx(0.0, abs=0.05) and mu.std() == pytest.approx(1 / 12**0.5, rel=0.1)
    assert sigma.mean() / 1000 == pytest.approx(1.125, abs=0.02)


def test_steps_of_an_update_share_their_units_and_updates_and_layers_do_not() -> None:
    """Forty thousand frames of one call and of the next: the same μ, other m."""
    cell, other = cell_of(1), cell_of(2)
    first = drawn(cell, 5, 0.0)
    second = cell.gates(torch.zeros(ROWS, 4 * HIDDEN), torch.zeros(ROWS, HIDDEN)).detach()
    assert not torch.equal(first, second)
    torch.testing.assert_close(first.mean(0), second.mean(0), rtol=0, atol=0.002)
    for another in (drawn(cell, 6, 0.0), drawn(other, 5, 0.0)):
        assert (first.mean(0) - another.mean(0)).abs().max() > 0.1
    assert torch.equal(first, drawn(cell, 5, 0.0))


def test_evaluation_is_the_cell_inside() -> None:
    cell = cell_of(1).eval()
    x = torch.randn(5, INPUT)
    state = LSTMState(torch.randn(5, HIDDEN), torch.randn(5, HIDDEN))
    expected = cell.cell.step(cell.cell.input_gates(x), state)
    torch.testing.assert_close(cell.step(cell.input_gates(x), state), expected)


@pytest.mark.parametrize("inside", ["ln_global", "lstm", "bn_input"])
def test_a_layer_learns_under_noise(inside: str) -> None:
    layer = RecurrentLayer(lambda *sizes: NoisyLSTMCell(*sizes, cell=factory_of(inside)), INPUT, HIDDEN).train()
    outputs, _ = layer(torch.randn(2, 6, INPUT), torch.tensor([6, 4]))
    outputs.square().sum().backward()
    assert outputs.isfinite().all() and not outputs[1, 4:].any()
    assert all(each.grad is not None and each.grad.isfinite().all() for each in layer.parameters())


def test_the_number_of_a_cell_travels_with_it() -> None:
    one, two = cell_of(1), cell_of(2)
    assert one.number != two.number
    two.load_state_dict(one.state_dict())
    assert torch.equal(drawn(one, 3, 0.0), drawn(two, 3, 0.0))


def test_a_cell_with_a_step_of_its_own_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"noise acts on the gates, but BNRecurrentLSTMCell has a step of its own"):
        NoisyLSTMCell(INPUT, HIDDEN, cell=BNRecurrentLSTMCell)
