"""Every kernel is the plain recurrence: each in `choice.KERNELS` is tested by being there, where it computes."""

import copy
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from kernel_cases import (
    CELLS,
    FORMS,
    INPUT,
    Form,
    arriving,
    both,
    equal,
    every_cell,
    every_cell_norm,
    every_form,
    every_kernel,
    furthest,
    make,
    padding_of,
    place,
    results,
)
from tiers import needs_gpu
from torch import nn

import las
from las.nn.cells.base import CELL_NORMS
from las.nn.cells.lstm import PlainLSTMCell
from las.nn.cells.norms import CellNorm, DynamicTanh, LayerNorm
from las.nn.kernels import choice
from las.nn.kernels.base import PLAIN
from las.nn.kernels.forms import NORMS, uncompiled
from las.nn.rnn import RecurrentLayer

LENGTHS = [3, 6, 0, 5]
FRAMES = 7  # one more than the longest row has

NORMED_HISTORY = ("ln_global_all", "ln_global_input", "ln_recurrent_projection")
"""Cells with a norm of U h alone, which amplifies rounding where that is small."""

NEAR = {torch.float64: 1e-9, torch.float32: 5e-4}
"""How far a kernel may be from plain, in units of the largest value: a norm of nearly nothing multiplies rounding."""


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    frames = draw(st.integers(0, 7))
    norm = draw(st.sampled_from([*NORMS]))
    return {
        "norm": norm,
        "dtype": draw(st.sampled_from([*NEAR])),
        "name": draw(st.sampled_from(sorted(CELLS))),
        "cell_norm": draw(st.sampled_from(CELL_NORMS[: 1 if norm is DynamicTanh else None])),
        "forget_bias": draw(st.sampled_from([0.0, 1.0])),
        "eps": draw(st.sampled_from([1e-12, 1e-8, 1e-5, 1e-3])),
        "lengths": draw(st.lists(st.integers(0, frames), max_size=draw(st.sampled_from([5, 17])))),
        "frames": frames,
        "hidden": draw(st.integers(1, 9) | st.sampled_from([17, 33, 130])),
        "starts": draw(st.booleans()),
        "seed": draw(st.integers(0, 10_000)),
    }


def check(kernel: str, dtype: torch.dtype, **options: Any) -> None:
    """Compares with plain. Leaves out norms of few values in fp32: they divide the rounding of zeros by sqrt(eps)."""
    at = place(kernel)
    assume(dtype in (at.widest, torch.float32))
    assume(not uncompiled(make(**options).cells[0], at.device))
    assume(dtype == torch.float64 or options["hidden"] > 4 or options["eps"] == 1e-3)
    for form in FORMS:
        case = make(**options)
        expected = results(form, PLAIN, case)
        ours = results(form, at.kernel, case.to(at.device, dtype))
        assert all(part.dtype == dtype for part in ours.all())
        assert furthest(ours.all(), expected.all()) <= NEAR[dtype]


@every_kernel
@given(options=cases())
@settings(max_examples=50, derandomize=True)
def test_equals_plain_in_random_configurations(kernel: str, options: dict[str, Any]) -> None:
    check(kernel, **options)


@every_kernel
@pytest.mark.slow
@given(options=cases())
@settings(max_examples=2000, derandomize=True)
def test_equals_plain_in_2000_random_configurations(kernel: str, options: dict[str, Any]) -> None:
    check(kernel, **options)


@every_kernel
@every_cell
@every_cell_norm
@pytest.mark.parametrize("eps", [0.0, 1e-12])
def test_a_first_state_of_zeros_and_hardly_any_eps(kernel: str, name: str, cell_norm: str, eps: float) -> None:
    """U h = 0 has no variance: the slope of its norm is 1 / sqrt(eps), which may not become inf * 0."""
    at = place(kernel)
    case = make(name, LENGTHS, frames=FRAMES, starts=False, cell_norm=cell_norm, eps=eps)
    for form in FORMS:
        ours = results(form, at.kernel, case.to(at.device, at.widest))
        assert furthest(ours.all(), results(form, PLAIN, case).all()) <= NEAR[at.widest]
        single = results(form, at.kernel, case.to(at.device, torch.float32)).all()
        assert all(part.dtype == torch.float32 and part.isfinite().all() for part in single)


@every_kernel
@every_form
@every_cell
@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_what_padding_holds_reaches_nothing(kernel: str, form: Form, name: str, poison: float) -> None:
    """Neither what it holds in gates or frames, nor what arrives in its gradient."""
    at = place(kernel)
    case = make(name, LENGTHS, frames=FRAMES, cell_norm="both").to(at.device, at.widest)
    padding = padding_of(case.lengths, FRAMES)
    clean = results(form, at.kernel, case)
    poisoned = case.with_gates(lambda part: part.masked_fill(padding, poison))
    assert equal(results(form, at.kernel, poisoned).all(), clean.all())
    for part in (clean.values[0], *clean.gates[: 2 if form is both else 1]):
        assert part.any() and not part.masked_select(padding).any()
    outputs, wanted = form(at.kernel, poisoned)[0], [poisoned.gates[0], *poisoned.cells[0].parameters()]
    options = {"retain_graph": True, "allow_unused": True, "materialize_grads": True}
    zero, other = (
        torch.autograd.grad(outputs, wanted, torch.ones_like(outputs).masked_fill(padding, value), **options)
        for value in (0.0, poison)
    )
    assert equal([*zero], [*other])


def errors(layer: nn.Module, kernel: str, dtype: torch.dtype) -> list[float]:
    """Of outputs and of the gradients of frames and of U, relative to what the same rounded weights give in fp64."""
    frames, device = torch.randn(8, 60, 6, generator=torch.Generator().manual_seed(2)), next(layer.parameters()).device
    layer, frames, lengths = copy.deepcopy(layer).to(dtype), frames.to(device, dtype), torch.full((8,), 60).to(device)
    found = []
    for module, name, kind in ((layer, kernel, dtype), (copy.deepcopy(layer).double(), "plain", torch.float64)):
        given, weight = frames.to(kind, copy=True).requires_grad_(), [*module.parameters()][1]
        with choice.use_kernel(name):
            outputs = module(given, *([lengths] if isinstance(layer, RecurrentLayer) else []))[0]
        grads = torch.autograd.grad(outputs, [given, weight], arriving(outputs, 0))
        found.append([part.detach().double() for part in (outputs, *grads)])
    return [float((low - high).norm() / high.norm()) for low, high in zip(*found, strict=True)]


@every_kernel
@every_cell
@pytest.mark.filterwarnings("ignore:RNN module weights are not part")  # nn.LSTM's in bf16 on a GPU: it flattens no bf16
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_errors_are_those_of_the_lstm_of_torch(kernel: str, name: str, dtype: torch.dtype) -> None:
    """But for Global: its norm of U h divides by nearly nothing in the first frames, whoever computes it."""
    at = place(kernel, dtype)
    torch.manual_seed(1)
    theirs = errors(nn.LSTM(6, 32, batch_first=True).to(at.device), "plain", dtype)
    layer = RecurrentLayer(CELLS[name], 6, 32).to(at.device)
    with torch.no_grad():
        for gain in (part for key, part in layer.named_parameters() if key.endswith("gain")):
            gain.fill_(0.5)  # with gains of 1 an untrained Global amplifies any difference from frame to frame
    ours, plain = (errors(layer, each, dtype) for each in (kernel, "plain"))
    for own, other, loop in zip(ours, theirs, plain, strict=True):
        assert own <= (3 * max(other, loop) if name in NORMED_HISTORY else 2 * other)


@every_kernel
@every_form
@every_cell
def test_results_are_the_same_bit_by_bit_when_computed_again(kernel: str, form: Form, name: str) -> None:
    at = place(kernel)
    case = make(name, [20, 19, 12, 20, 1, 15], frames=20, hidden=48, cell_norm="output").to(at.device, torch.float32)
    for count in (1, 2):
        torch.set_num_threads(count)
        first, again, later = (results(form, at.kernel, case).all() for _ in range(3))
        assert equal(again, first) and equal(later, first)


@every_kernel
@every_form
@every_cell
@pytest.mark.parametrize("operand", [torch.float32, torch.bfloat16], ids=str)
def test_without_gradients_the_results_are_the_same(kernel: str, form: Form, name: str, operand: torch.dtype) -> None:
    at = place(kernel, operand)
    case = make(name, LENGTHS, frames=FRAMES, hidden=33, cell_norm="state").to(at.device, torch.float32)
    with torch.autocast(at.device, operand, enabled=operand != torch.float32):
        found = form(at.kernel, case)
        with torch.no_grad():
            without = form(at.kernel, case)
        with torch.inference_mode():
            inferred = form(at.kernel, case)
    assert found[0].requires_grad and not without[0].requires_grad
    assert equal(found, without) and equal(without, inferred)


@every_cell
@pytest.mark.parametrize("hidden", [7, 40])
def test_an_utterance_alone_has_the_bits_that_it_has_in_a_batch(name: str, hidden: int) -> None:
    """Products of one row, and of many, add in one order (`Panels.multiply`, `multiply` of `matrices.h`)."""
    at = place("cpu")
    layer = las.LSTM(INPUT, hidden, cell=CELLS[name], bidirectional=True, batch_first=True)
    frames, lengths = torch.randn(13, FRAMES, INPUT), torch.randint(1, FRAMES + 1, (13,))
    with choice.use_kernel(at.kernel), torch.no_grad():
        together = layer(frames, lengths=lengths)[0]
        for row, length in enumerate(lengths.tolist()):
            alone = layer(frames[row : row + 1, :length])[0]
            assert torch.equal(alone[0], together[row, :length])


@every_kernel
def test_a_norm_of_ones_own_is_left_to_the_plain_kernel(kernel: str) -> None:
    class Shifted(LayerNorm):
        def forward(self, values: torch.Tensor, *others: Any) -> torch.Tensor:
            return super().forward(values, *others) + 1.0

    at = place(kernel)
    refused: list[tuple[str, type[CellNorm], str]] = [("ln_joined", Shifted, "none"), ("lstm", DynamicTanh, "output")]
    for name, norm, cell_norm in refused:
        (cell, _), *_ = make(name, LENGTHS, frames=FRAMES, norm=norm, cell_norm=cell_norm).to(at.device, torch.float32)
        assert choice.refusal(at.kernel, cell, next(cell.parameters()))
        assert choice.select_kernel(cell, next(cell.parameters())) is PLAIN


@needs_gpu
@pytest.mark.parametrize("forget_bias", [0.0, 1.0])
def test_the_update_of_a_plain_memory_is_that_of_a_cpu(forget_bias: float) -> None:
    """On a GPU it is one kernel of torch's."""
    cell, found = PlainLSTMCell(3, 5, forget_bias=forget_bias).double(), []
    for device in ("cpu", "cuda"):
        gates, memory = (torch.linspace(-3, 3, 8 * size).sin().double().view(4, 2, size) for size in (20, 5))
        read = [part.to(device).requires_grad_() for part in (gates, memory)]
        state = cell.to(device).update_memory(*read)
        grads = torch.autograd.grad((state.hidden.square() + state.cell.sin()).sum(), read)
        found.append([part.detach().cpu() for part in (*state, *grads)])
    torch.testing.assert_close(found[1], found[0], rtol=1e-9, atol=1e-11)


@pytest.mark.unchecked
@every_cell
def test_torch_compiles_a_layer_of_every_cell(name: str) -> None:
    torch.compiler.reset()
    lstm, frames = las.LSTM(INPUT, 5, cell=CELLS[name]), torch.randn(7, 2, INPUT)
    compiled = torch.compile(lstm, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(frames)[0], lstm(frames)[0])
