"""Every option of configs/cell/ is tested by being there; the mathematics is that of docs/equations."""

import inspect
import sys
from typing import Any

import pytest
import torch
from cell_cases import (
    BATCH,
    FRAMES,
    HIDDEN,
    INPUT,
    cells_whose,
    equations_of,
    every_cell,
    every_lstm,
    factory_of,
    make,
    material,
    run,
    state_of,
)
from torch import Tensor, nn
from torch.func import functional_call

from las.nn.cells.base import CELL_NORMS
from las.nn.cells.norms import LayerNorm
from las.nn.cells.wrapper import WrapperLSTMCell
from las.nn.kernels.base import unroll
from las.nn.nested import filled

every_cell_norm = pytest.mark.parametrize("cell_norm", CELL_NORMS)


def without_norms(cell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace layer norm, and every function called *_norm that the cell's modules use, by the identity."""
    monkeypatch.setattr(LayerNorm, "forward", lambda self, values, *_: values)
    modules = {cls.__module__ for cls in type(equations_of(cell)).__mro__ if cls.__module__.startswith("las.")}
    for module in map(sys.modules.__getitem__, modules):
        for function in [key for key in vars(module) if key.endswith("_norm")]:
            monkeypatch.setattr(module, function, lambda values, *_: values)


@cells_whose("gains start at a number")
def test_gains_start_at_one_and_biases_at_zero(name: str) -> None:
    """The gains of recurrent batch norm start at 0.1."""
    start = 0.1 if name == "bn_recurrent" else 1.0
    for key, parameter in factory_of(name)(INPUT, HIDDEN).named_parameters():
        if not key.endswith("_weight"):
            assert torch.equal(parameter, torch.full_like(parameter, start * key.endswith("gain"))), key


@cells_whose("is an LSTM but for its norms")
@every_cell_norm
def test_without_its_norms_a_cell_is_the_lstm_of_torch(
    name: str, cell_norm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = make(name, cell_norm=cell_norm)
    without_norms(cell, monkeypatch)
    oracle = nn.LSTM(INPUT, HIDDEN, batch_first=True, dtype=torch.float64)
    zeros = torch.zeros(1, INPUT, dtype=torch.float64)
    with torch.no_grad():
        oracle.weight_ih_l0.copy_(equations_of(cell).input_weight)
        oracle.weight_hh_l0.copy_(equations_of(cell).recurrent_weight)
        oracle.bias_ih_l0.copy_(cell.gates(cell.input_gates(zeros), zeros.new_zeros(1, HIDDEN))[0])
        oracle.bias_hh_l0.zero_()
        oracle.bias_hh_l0[HIDDEN : 2 * HIDDEN] = cell.forget_bias  # torch's order is i f g o as well
    x, state = material()
    outputs, (h, c) = oracle(x, (state.hidden[None], state.cell[None]))
    ours, last = unroll(cell, cell.input_gates(x), torch.full((BATCH,), FRAMES), state)
    torch.testing.assert_close(ours, outputs, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(last.hidden, h[0], rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(last.cell, c[0], rtol=1e-9, atol=1e-12)


@every_cell
def test_gradients_equal_finite_differences(name: str) -> None:
    """Of outputs and last state, with a padded row, towards frames, first state and every parameter."""
    cell = make(name, 2, 3)
    x, state = material(2, 3, 2, 3)[0], state_of(cell, 2)
    parameters = {key: parameter.detach().requires_grad_() for key, parameter in cell.named_parameters()}

    class Unrolled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = cell

        def forward(self, x: Tensor, *parts: Tensor) -> tuple[Tensor, ...]:
            gates = self.cell.input_gates(x)
            outputs, last = unroll(self.cell, gates, torch.tensor([3, 2]), filled(state, parts))
            return outputs, *last

    def function(*given: Tensor) -> tuple[Tensor, ...]:
        values = given[1 + len(state) :]
        named = {f"cell.{key}": value for key, value in zip(parameters, values, strict=True)}
        return functional_call(Unrolled(), named, given[: 1 + len(state)])

    inputs = [part.requires_grad_() for part in (x, *state)]
    assert torch.autograd.gradcheck(function, (*inputs, *parameters.values()), fast_mode=True)


@every_lstm
@every_cell_norm
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_zero_recurrent_input_at_the_first_frame_stays_finite(name: str, cell_norm: str, dtype: torch.dtype) -> None:
    """U h = 0 has no variance: the slope of its norm is 1 / sqrt(eps), which must not become inf * 0."""
    cell = make(name, cell_norm=cell_norm, eps=1e-12).to(dtype)
    x = material()[0].to(dtype).requires_grad_()
    outputs, state = unroll(cell, cell.input_gates(x), torch.tensor([FRAMES, FRAMES, 2]))
    outputs.float().square().mean().backward()
    assert outputs.isfinite().all() and state.cell.isfinite().all()
    assert x.grad is not None and x.grad.isfinite().all() and x.grad.any()
    for key, parameter in cell.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), key


@every_cell
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_automatic_mixed_precision_stays_finite_and_near(name: str, dtype: torch.dtype) -> None:
    cell = make(name).float()
    x = material()[0].float()
    with torch.autocast("cpu", dtype=dtype):
        outputs = run(cell, x)
    torch.testing.assert_close(outputs.float(), run(cell, x), rtol=0.1, atol=0.1)
    outputs.float().square().mean().backward()
    assert all(parameter.grad.isfinite().all() for parameter in cell.parameters())


@every_lstm
def test_every_gain_begins_at_the_value_given_and_no_other_does(name: str) -> None:
    cell = factory_of(name)(6, 4)
    if isinstance(cell, WrapperLSTMCell) or name == "weight_norm":  # whose gains are the lengths of rows
        return
    constructors = (inspect.signature(kind.__init__).parameters for kind in type(cell).__mro__)
    taken = {option for parameters in constructors for option in parameters if option.endswith("gain")}
    has = {key for key, _ in cell.named_parameters() if key.endswith("gain")}
    assert "cell_gain" in taken
    for gain in has & taken:  # all of them in this package; a cell of one's own may leave them at one
        given = dict(factory_of(name)(6, 4, **{gain: 0.25}).named_parameters())
        assert (given[gain] == 0.25).all()
        assert all(torch.equal(given[other], cell.get_parameter(other)) for other in has - {gain})
