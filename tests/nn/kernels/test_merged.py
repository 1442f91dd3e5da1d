"""The kernel `merged`: projected LSTMs by the code of plain ones are the plain recurrence."""

from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from kernel_cases import compiles
from parameters import moved
from tiers import needs_gpu
from torch import Tensor

import las
from las.nn.cells.base import CELL_NORMS, LSTMState
from las.nn.kernels import choice
from las.nn.kernels.base import PLAIN
from las.nn.kernels.forms import NORMS
from las.nn.rnn import BidirectionalLayer, RecurrentLayer

pytestmark = compiles
LENGTHS = torch.tensor([3, 6, 0, 5])


def results(kernel: str, cells: list[las.ProjectedLSTMCell], case: list[Any]) -> list[Tensor]:
    """Outputs, last states, and the gradients of all tensors."""
    frames, lengths, states = case
    outputs, last = choice.KERNELS[kernel].layer(cells, frames, lengths, states)
    values = [outputs, *(part for state in last for part in state)]
    inputs = [frames, *(part for state in states if state for part in state)]
    inputs += [parameter for cell in cells for parameter in cell.parameters()]
    loss = torch.stack([part.square().sum() for part in values]).sum()
    return [*values, *torch.autograd.grad(loss, inputs, allow_unused=True, materialize_grads=True)]


@given(
    lengths=st.lists(st.integers(0, 6), min_size=1, max_size=5),
    sizes=st.tuples(st.integers(1, 5), st.integers(1, 19), st.integers(1, 9)),
    norm=st.sampled_from([*NORMS]),
    cell_norm=st.sampled_from(CELL_NORMS),
    given_states=st.lists(st.booleans(), min_size=1, max_size=2),
)
@settings(max_examples=60, derandomize=True, deadline=None)
def test_equals_plain_in_random_configurations(
    lengths: list[int], sizes: tuple[int, int, int], norm: Any, cell_norm: str, given_states: list[bool]
) -> None:
    """One direction and two, from states and without, also where the output is wider than the memory."""
    inputs, hidden, projected = sizes
    torch.manual_seed(1)
    assume(norm is not las.DynamicTanh or cell_norm == "none")  # which no code computes
    options = {"norm": norm, "cell_norm": cell_norm, "forget_bias": 1.0, "proj_size": projected}
    cells = [moved(las.ProjectedLSTMCell(inputs, hidden, **options).double(), 0.4) for _ in given_states]
    drawn = [LSTMState(torch.randn(len(lengths), projected), torch.randn(len(lengths), hidden)) for _ in cells]
    states = [
        LSTMState(*(part.double().requires_grad_() for part in state)) if is_given else None
        for state, is_given in zip(drawn, given_states, strict=True)
    ]
    frames = torch.randn(len(lengths), max(lengths) + 1, inputs, dtype=torch.float64, requires_grad=True)
    case = [frames, torch.tensor(lengths), states]
    torch.testing.assert_close(results("merged", cells, case), results("plain", cells, case), rtol=1e-9, atol=1e-9)


def test_it_is_chosen_and_says_why_it_is_not() -> None:
    cell = las.ProjectedLSTMCell(3, 4)
    like = torch.empty(0)
    assert choice.select_kernel(cell, like) is choice.KERNELS["merged"]
    assert choice.KERNELS["merged"].unsupported_reason(las.GRUCell(3, 4), like)
    tanh = las.ProjectedLSTMCell(3, 4, cell_norm="output", norm=las.DynamicTanh)
    assert choice.select_kernel(tanh, like) is PLAIN and "dynamic tanh" in choice.explain(tanh, like)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_gpu)])
@pytest.mark.parametrize(("dtype", "rounds"), [(torch.float32, False), (torch.float32, True), (torch.bfloat16, True)])
def test_autocast_and_half_precision_are_near(dtype: torch.dtype, rounds: bool, device: str) -> None:
    torch.manual_seed(1)
    layer, frames = BidirectionalLayer(las.ProjectedLSTMCell, 3, 16), torch.randn(4, 6, 3)
    with choice.use_kernel("plain"):
        expected = layer(frames, LENGTHS)
    with torch.autocast(device, torch.bfloat16, enabled=rounds), choice.use_kernel("merged"):
        found = layer.to(device, dtype)(frames.to(device, dtype), LENGTHS.to(device))
    near = 0.05 if rounds else 1e-3
    torch.testing.assert_close(found.float().cpu(), expected, rtol=near, atol=near)


def test_gradients_are_differentiated_once_more() -> None:
    torch.manual_seed(1)
    layer = RecurrentLayer(las.ProjectedLSTMCell, 3, 6).double()
    frames, found = torch.randn(4, 6, 3, dtype=torch.float64, requires_grad=True), []
    for kernel in ("merged", "plain"):
        with choice.use_kernel(kernel), pytest.warns(UserWarning) if kernel == "merged" else choice.use_kernel(kernel):
            (slope,) = torch.autograd.grad(layer(frames, LENGTHS)[0].square().sum(), frames, create_graph=True)
            found.append(torch.autograd.grad(slope.square().sum(), [frames, *layer.parameters()]))
    torch.testing.assert_close(found[0], found[1], rtol=1e-9, atol=1e-9)
