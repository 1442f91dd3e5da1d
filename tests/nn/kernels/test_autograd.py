"""The kernel is the plain recurrence: same results and same gradients, for every cell, length and state."""

import itertools
import warnings
from typing import Any

import pytest
import torch
from autograd_cases import FRAMES, HIDDEN, Doubled, assert_near, make, material, results
from kernel_cases import INPUT, every_cell, every_cell_norm, unroll
from tiers import rest_slow
from torch import Tensor, nn

from las.nn import rnn
from las.nn.cells.base import LSTMCell, LSTMState
from las.nn.cells.ln_global import LNGlobalLSTMCell
from las.nn.cells.lstm import PlainLSTMCell
from las.nn.kernels import plain as plain_kernel
from las.nn.kernels.torch import bptt
from las.nn.kernels.torch import layer as autograd
from las.runtime.errors import ConfigError

LENGTHS = {"equal": [6, 6, 6, 6], "ragged": [3, 6, 0, 5], "padded": [4, 0, 0, 1], "empty": [0, 0, 0, 0]}


@every_cell
@every_cell_norm
@pytest.mark.parametrize("eps", rest_slow([1e-5, 1e-12, 0.0]))
def test_equals_the_plain_recurrence(name: str, cell_norm: str, eps: float) -> None:
    for forget_bias, lengths, starts in itertools.product([0.0, 1.0], LENGTHS.values(), [True, False]):
        cell = make(name, cell_norm=cell_norm, forget_bias=forget_bias, eps=eps)
        given, state = material()
        case = cell, lengths, given, state if starts else None
        expected = results(plain_kernel, *case)
        assert all(part.isfinite().all() for part in expected)
        assert_near(results(autograd, *case), expected, 1e-12)


@every_cell
@pytest.mark.parametrize("chunk", [1, 4])
def test_the_gradients_do_not_depend_on_how_many_frames_are_taken_at_once(
    name: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = make(name, cell_norm="both"), LENGTHS["ragged"], *material()
    whole = results(autograd, *case)
    monkeypatch.setattr(bptt, "CHUNK", chunk)
    assert_near(results(autograd, *case), whole, 1e-12)


@every_cell
@every_cell_norm
def test_without_gradients_the_results_are_the_same(name: str, cell_norm: str) -> None:
    cell = make(name, cell_norm=cell_norm, forget_bias=1.0)
    given, state = material()
    for lengths in map(torch.tensor, LENGTHS.values()):
        expected, expected_last = plain_kernel.unroll(cell, given, lengths, state)
        with torch.no_grad():
            outputs, last = unroll(autograd, cell, given, lengths, state)
        assert not outputs.requires_grad
        assert_near([outputs, *last], [expected.detach(), *(part.detach() for part in expected_last)], 1e-12)


@every_cell
@every_cell_norm
def test_gradients_equal_finite_differences(name: str, cell_norm: str) -> None:
    cell = make(name, cell_norm=cell_norm, forget_bias=1.0)
    given, state = material(frames=3)
    parameters = {key: value for key, value in cell.named_parameters() if not key.startswith("input")}
    if isinstance(cell, PlainLSTMCell | LNGlobalLSTMCell):
        parameters.pop("bias", None)  # within the input gates, which are given

    class Unrolled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = cell

        def forward(self, given: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, ...]:
            outputs, last = unroll(autograd, self.cell, given, torch.tensor([3, 1, 0, 2]), LSTMState(h, c))
            return outputs, *last

    def function(given: Tensor, h: Tensor, c: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
        named = {f"cell.{key}": value for key, value in zip(parameters, values, strict=True)}
        return torch.func.functional_call(Unrolled(), named, (given, h, c))

    assert torch.autograd.gradcheck(function, (given, *state, *parameters.values()), fast_mode=True)


@every_cell
@every_cell_norm
def test_single_precision_is_near_double(name: str, cell_norm: str) -> None:
    double = make(name, cell_norm=cell_norm)
    exact = results(plain_kernel, double, LENGTHS["ragged"], *material())
    single = make(name, torch.float32, cell_norm=cell_norm)
    ours = results(autograd, single, LENGTHS["ragged"], *material(torch.float32))
    assert all(part.dtype == torch.float32 for part in ours)
    assert_near([part.double() for part in ours], exact, 5e-5)


@every_cell
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_no_further_off_than_plain(name: str, dtype: torch.dtype) -> None:
    cell, (given, _) = make(name, dtype, cell_norm="both", eps=1e-12), material(dtype)
    ours = results(autograd, cell, LENGTHS["ragged"], given, None)
    assert all(part.dtype == dtype and part.isfinite().all() for part in ours)
    ours, plain, exact = (
        results(kernel, cell.to(kind), LENGTHS["ragged"], given.detach().to(kind).requires_grad_(), None)[0].double()
        for kernel, kind in [(autograd, dtype), (plain_kernel, dtype), (plain_kernel, torch.float64)]
    )
    assert (ours - exact).abs().max() <= (plain - exact).abs().max() + torch.finfo(dtype).eps


@every_cell
def test_automatic_mixed_precision(name: str) -> None:
    """Input gates of a lower type than the state: results have the types of the plain recurrence."""
    cell = make(name, torch.float32)
    frames = torch.randn(2, 4, INPUT)
    lengths = torch.tensor([4, 3])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        given = cell.input_gates(frames)
        ours, last = unroll(autograd, cell, given, lengths)
        plain, plain_last = plain_kernel.unroll(cell, given, lengths)
    assert ours.dtype == plain.dtype and last.cell.dtype == plain_last.cell.dtype
    torch.testing.assert_close(ours, plain, rtol=0.05, atol=0.05)
    ours.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in cell.parameters() if parameter.grad is not None)


@every_cell
def test_what_padding_holds_is_never_read(name: str) -> None:
    cell = make(name, cell_norm="both")
    clean, state = material()
    mask = torch.arange(FRAMES) < torch.tensor(LENGTHS["ragged"]).unsqueeze(1)
    poisoned = clean.detach().masked_fill(~mask.unsqueeze(-1), float("nan")).requires_grad_()
    expected = results(autograd, cell, LENGTHS["ragged"], clean, state)
    assert all(map(torch.equal, results(autograd, cell, LENGTHS["ragged"], poisoned, state), expected))
    outputs, _ = unroll(autograd, cell, poisoned, torch.tensor(LENGTHS["ragged"]), state)
    outputs.backward(torch.ones_like(outputs).masked_fill(~mask.unsqueeze(-1), float("nan")))
    assert poisoned.grad is not None and poisoned.grad.isfinite().all()
    assert not poisoned.grad[~mask].any() and not outputs[~mask].any()


@every_cell
def test_no_frames_leave_the_state_as_it_is(name: str) -> None:
    given, state = material(frames=0)
    outputs, last = unroll(autograd, make(name), given, torch.zeros(4, dtype=torch.long), state)
    assert outputs.shape == (4, 0, HIDDEN)
    assert torch.equal(last.hidden, state.hidden) and torch.equal(last.cell, state.cell)


@every_cell
def test_no_rows(name: str) -> None:
    outputs, last = unroll(autograd, make(name), material()[0][:0], torch.zeros(0, dtype=torch.long))
    assert outputs.shape == (0, FRAMES, HIDDEN) and last.hidden.shape == last.cell.shape == (0, HIDDEN)


def test_the_gradient_may_be_taken_twice_but_not_differentiated() -> None:
    cell, (given, _) = make("ln_global_all"), material()
    outputs, _ = unroll(autograd, cell, given, torch.tensor(LENGTHS["ragged"]))
    first, second = (torch.autograd.grad(outputs.sum(), given, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second) and first.any()
    (grad,) = torch.autograd.grad(outputs.square().sum(), given, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()


def test_a_weight_may_change_before_the_backward_pass() -> None:
    """As an optimiser does that steps early: gradients are those of what was computed."""
    cell, (given, _) = make("ln_joined"), material()
    found = []
    for factor in (1, 2):
        outputs, _ = unroll(autograd, cell, given, torch.tensor(LENGTHS["ragged"]))
        with torch.no_grad():
            cell.get_parameter("recurrent_weight").mul_(factor)
        found.append(torch.autograd.grad(outputs.sum(), given)[0])
    assert torch.equal(*found) and found[0].any()


def counted(monkeypatch: pytest.MonkeyPatch) -> list[LSTMCell]:
    """The cells that the kernel computes from now on."""
    seen: list[LSTMCell] = []
    kernel = autograd.layer

    def counting(cells: list[LSTMCell], *rest: Any) -> Any:
        seen.extend(cells)
        return kernel(cells, *rest)

    monkeypatch.setattr(autograd, "layer", counting)
    return seen


def test_layers_use_the_kernel_where_it_applies(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = counted(monkeypatch)
    # Another table, not this one without an entry: put back, that would stand at its end, as the slowest, ever after.
    others = {name: kernel for name, kernel in rnn.KERNELS.items() if name != "cpu"}
    monkeypatch.setattr(rnn, "KERNELS", others)
    frames, lengths = torch.randn(2, 4, INPUT), torch.tensor([4, 2])
    for cls, applies in [(LNGlobalLSTMCell, True), (Doubled, False)]:
        layer = rnn.RecurrentLayer(cls, INPUT, HIDDEN)
        assert bool(autograd.unsupported_reason(layer.cell, frames)) is not applies
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            outputs, _ = layer(frames, lengths)
        assert (seen == [layer.cell]) is applies
        seen.clear()
        with rnn.use_kernel("plain"):
            plain, _ = layer(frames, lengths)
        assert not seen
        torch.testing.assert_close(outputs, plain, rtol=1e-5, atol=1e-6)


def test_an_unknown_kernel_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="'plian' does not exist\\. Did you mean plain"), rnn.use_kernel("plian"):
        pass
