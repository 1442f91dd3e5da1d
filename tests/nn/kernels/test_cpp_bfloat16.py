"""Products of the compiled kernel, those in bfloat16 by every unit that this processor has, against torch.

The reference of layers in bfloat16 is the plain recurrence in fp64 whose products round their operands to bfloat16,
forwards and backwards. A number that differs in the last digits of fp32 may be rounded the other way, about once in ten
thousand times: it then differs by 2^-8 of itself, and what follows from it by less. So single values may differ by
2^-7 of the largest one, and all together by 2^-12 on average; without rounding the average is 2^-9.
"""

from statistics import mean
from typing import Any

import pytest
import torch
from kernel_cases import CELLS, compiles, every_cell_norm
from parameters import moved
from tiers import rest_slow
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from las.nn.attention.base import AttentionMemory
from las.nn.attention.dot import DotAttention
from las.nn.cells.base import LSTMState
from las.nn.cells.ln_joined import LNJoinedLSTMCell
from las.nn.cells.lstm import PlainLSTMCell
from las.nn.kernels import choice
from las.nn.kernels.cpp import build as cpp_build
from las.nn.kernels.cpp import layer as cpu
from las.nn.kernels.cpp import speller as cpp_speller
from las.nn.kernels.cpp.tensors import CppLibrary
from las.nn.rnn import BidirectionalLayer, RecurrentLayer

LARGEST, AVERAGE = 2.0**-7, 2.0**-12
UNITS = {"emulated": 0, "avx512_bf16": 1, "amx_bf16": 2}
INPUT = 37

pytestmark = compiles


def number_of(name: str) -> int:
    """Of a unit; the test is skipped where the processor or the compiler has none."""
    if UNITS[name] > cpu.fastest_unit():
        pytest.skip(f"this processor or compiler has no {name}")
    return UNITS[name]


@pytest.fixture(params=UNITS)
def unit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The number of a unit, by which layers multiply while the test runs."""
    number = number_of(request.param)
    monkeypatch.setattr(cpu, "bfloat16_unit", lambda: number)
    return number


def rounded(tensor: Tensor) -> Tensor:
    return tensor.to(torch.bfloat16).to(tensor.dtype)


class RoundedLinear(torch.autograd.Function):
    """inputs W^T of rounded operands, also in its backward pass."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        return rounded(inputs) @ rounded(weight).t()

    @staticmethod
    def backward(ctx: Any, grads: Tensor) -> Any:
        inputs, weight = map(rounded, ctx.saved_tensors)
        d_weight = rounded(grads).flatten(0, -2).t() @ inputs.flatten(0, -2)
        return rounded(grads) @ weight, d_weight


class Rounding(TorchFunctionMode):
    """Context in which `functional.linear` rounds."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is functional.linear:
            inputs, weight, *biases = args
            return sum((bias for bias in biases if bias is not None), start=RoundedLinear.apply(inputs, weight))
        return function(*args, **(kwargs or {}))


def bidirectional(name: str, hidden: int, **options: Any) -> BidirectionalLayer:
    torch.manual_seed(1)
    return moved(BidirectionalLayer(lambda *sizes: CELLS[name](*sizes, **options), INPUT, hidden), 0.1)


def results(
    layer: Any, dtype: torch.dtype, batch: int, frames: int, *starting: Tensor, autocast: bool = True
) -> list[Tensor]:
    """Outputs and gradients: of the compiled kernel under autocast in fp32, of the reference in fp64."""
    generator = torch.Generator().manual_seed(2)
    lengths = torch.randint(0, frames + 1, (batch,), generator=generator)
    given = torch.randn(batch, frames, INPUT, generator=generator).to(dtype).requires_grad_()
    weights = torch.randn(batch, frames, layer.output_size, generator=generator).to(dtype)
    state = [part.to(dtype).requires_grad_() for part in starting]
    layer = layer.to(dtype)
    if dtype == torch.float64:
        with Rounding(), choice.use_kernel("plain"):
            outputs = layer(given, lengths, *([LSTMState(*state)] if state else []))
    else:
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast), choice.use_kernel("cpu"):
            outputs = layer(given, lengths, *([LSTMState(*state)] if state else []))
    last = []
    if state:
        outputs, last = outputs[0], [*outputs[1]]
    wanted = [given, *state, *layer.parameters()]
    total = (outputs * weights).sum() + sum(part.sum() for part in last)
    return [part.detach() for part in (outputs, *last, *torch.autograd.grad(total, wanted))]


def differences(actual: list[Tensor], expected: list[Tensor]) -> tuple[float, float]:
    """The largest difference and the average of the tensors' averages, relative to the largest entry of each: one
    number on the edge between two of bfloat16 moves a small tensor as a whole."""
    scaled = [(one - other).abs() / other.abs().max() for one, other in zip(actual, expected, strict=True)]
    return max(float(each.max()) for each in scaled), mean(float(each.mean()) for each in scaled)


def assert_near(actual: list[Tensor], expected: list[Tensor]) -> None:
    largest, average = differences(actual, expected)
    assert largest < LARGEST and average < AVERAGE


@every_cell_norm
@pytest.mark.parametrize("name", CELLS)
def test_layers_equal_the_rounding_reference(unit: int, name: str, cell_norm: str) -> None:
    layer = bidirectional(name, 21, cell_norm=cell_norm, forget_bias=1.0)
    ours = results(layer, torch.float32, 7, 9)
    assert all(part.dtype == torch.float32 for part in ours)
    assert_near(ours, results(layer, torch.float64, 7, 9))


@pytest.mark.parametrize("hidden", [1, 5, 16, 33, 64, 130])
@pytest.mark.parametrize("batch", rest_slow([17, 1, 16, 40]))
def test_sizes_that_fill_no_tile(unit: int, hidden: int, batch: int) -> None:
    layer = bidirectional("lstm", hidden)
    assert_near(results(layer, torch.float32, batch, 6), results(layer, torch.float64, batch, 6))


def test_an_utterance_does_not_depend_on_how_many_there_are(unit: int) -> None:
    layer = bidirectional("lstm", 33)
    frames, lengths = torch.randn(6, 7, INPUT), torch.tensor([7, 7, 6, 5, 5, 4])
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16), choice.use_kernel("cpu"):
        together = layer(frames, lengths)
        for count in range(1, 6):
            assert torch.equal(layer(frames[:count], lengths[:count]), together[:count]), f"{count} utterances"


@pytest.mark.parametrize("name", CELLS)
def test_a_layer_starts_from_a_state(unit: int, name: str) -> None:
    torch.manual_seed(3)
    layer, state = RecurrentLayer(CELLS[name], INPUT, 19), torch.randn(2, 5, 19)
    assert_near(results(layer, torch.float32, 5, 4, *state), results(layer, torch.float64, 5, 4, *state))


def test_the_tolerance_tells_rounded_products_from_others(unit: int) -> None:
    layer = bidirectional("ln_global_all", 33)
    reference = results(layer, torch.float64, 7, 9)
    largest, average = differences(results(layer, torch.float32, 7, 9, autocast=False), reference)
    assert largest > LARGEST and average > 2 * AVERAGE


@pytest.mark.parametrize("name", CELLS)
def test_results_are_the_same_bit_by_bit_again_and_on_two_threads(unit: int, name: str) -> None:
    layer, found = bidirectional(name, 33, cell_norm="both"), []
    for number in (1, 1, 2, 5):
        torch.set_num_threads(number)
        found.append(results(layer, torch.float32, 37, 12))
    assert all(all(map(torch.equal, found[0], other)) for other in found[1:])


def spelled(rounding: bool, dtype: torch.dtype) -> list[Tensor]:
    """Contexts of a pass of the speller and gradients: compiled under autocast, or step by step in `Rounding`."""
    torch.manual_seed(5)
    attention = DotAttention(21, 37, key_size=19).to(dtype)
    cells = [cls(size, 21).to(dtype) for cls, size in ((PlainLSTMCell, 37), (LNJoinedLSTMCell, 21))]
    encoded, mask = torch.randn(9, 7, 37).to(dtype).requires_grad_(), torch.full((9, 5, 21), 2.0).to(dtype)
    memory = attention.prepare(encoded, torch.tensor([7, 3, 1, 2, 7, 6, 5, 4, 2]))
    if rounding:
        context, weights, contexts = encoded.new_zeros(9, 37), attention.initial_state(memory), []
        states = [cell.initial_state(9) for cell in cells]
        with Rounding():
            for step in range(5):
                below = context
                for number, cell in enumerate(cells):
                    states[number] = cell.step(cell.input_gates(below), states[number])
                    below = states[number].hidden * mask[:, step]
                context, weights = (part.squeeze(1) for part in attend(attention, states[-1].hidden, memory, weights))
                contexts.append(context)
        found = torch.stack(contexts, 1)
    else:
        nothing, tokens = torch.zeros(9, 5, 0), torch.zeros(9, 5, dtype=torch.long)
        with torch.autocast("cpu", torch.bfloat16):
            passed = cpp_speller.forward(cells, attention, memory, tokens, lambda _, steps: nothing[:, steps], [mask])
        found = passed.contexts
    wanted = [encoded, *attention.parameters(), *(parameter for cell in cells for parameter in cell.parameters())]
    return [found.detach(), *torch.autograd.grad((found * found.detach().cos()).sum(), wanted)]


def attend(attention: DotAttention, hidden: Tensor, memory: AttentionMemory, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Context and weights of one step, with an axis of one beam."""
    return attention.attend(hidden.unsqueeze(1), memory, weights.view(9, 1, -1))[:2]


def test_a_pass_of_the_speller_equals_the_rounding_reference(unit: int) -> None:
    assert_near(spelled(False, torch.float32), spelled(True, torch.float64))


# Rows, inner size and columns on both sides of the edges of tiles and blocks (`matrices.h`, `rounded.h`).
SIZES = [
    *((1, 1, 1), (5, 3, 7), (6, 384, 16), (7, 385, 17), (16, 32, 16), (17, 33, 18)),
    *((145, 20, 33), (300, 1800, 40), (3, 5, 4100), (4, 0, 5), (109, 256, 40), (25, 257, 49), (90, 1100, 100)),
]


@pytest.mark.parametrize(("left_transposed", "right_transposed"), [(False, False), (False, True), (True, False)])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("by", [torch.float32, torch.float64, *UNITS], ids=str)
def test_products(
    by: torch.dtype | str, size: tuple[int, int, int], left_transposed: bool, right_transposed: bool
) -> None:
    """Of any type, against fp64: a sum is off by its epsilon for each number added, on any number of threads."""
    torch.manual_seed(1)
    dtype, unit = (torch.float32, number_of(by)) if isinstance(by, str) else (by, None)
    rows, inner, columns = size
    left = (torch.randn(inner, rows).t() if left_transposed else torch.randn(rows, inner)).to(dtype)
    right = (torch.randn(columns, inner).t() if right_transposed else torch.randn(inner, columns)).to(dtype)
    exact = left.double() @ right.double() if unit is None else rounded(left).double() @ rounded(right).double()
    tolerance = 8 * torch.finfo(dtype).eps * max(inner, 1)
    library = CppLibrary(cpp_build.library(), unit)
    found = []
    for count in (1, 2):
        torch.set_num_threads(count)
        found.append(library.product(left, right))
        before = torch.ones(rows, columns, dtype=dtype)
        added = library.product(left, right, before)
        assert added.data_ptr() == before.data_ptr()
        torch.testing.assert_close(added.double(), exact + 1, rtol=0, atol=tolerance)
    assert torch.equal(*found)
    torch.testing.assert_close(found[0].double(), exact, rtol=0, atol=tolerance)


def test_operands_are_rounded_to_the_nearest_and_of_two_to_the_even(unit: int) -> None:
    values = [1.0, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, -1 - 2**-8, 3e38, 3.4e38, torch.inf, -torch.inf]
    library = CppLibrary(cpp_build.library(), unit)
    for value in [*values, torch.nan]:
        given = torch.tensor([[value]])
        found = library.product(given, torch.ones(1, 1)), library.product(torch.ones(1, 1), given)
        for each in found:
            torch.testing.assert_close(each, rounded(given), rtol=0, atol=0, equal_nan=True)


def test_a_unit_that_fails_its_trial_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trial of the fastest unit is made to fail: then the next one is used, and the emulation always can be."""
    product, broken = CppLibrary.product, cpu.fastest_unit()
    if not broken:
        pytest.skip("this processor has no unit")

    def wrong(library: CppLibrary, *operands: Tensor) -> Tensor:
        return product(library, *operands) * (1.01 if library.unit == broken else 1)

    monkeypatch.setattr(CppLibrary, "product", wrong)
    cpu.bfloat16_unit.cache_clear()
    try:
        assert cpu.bfloat16_unit() == broken - 1
    finally:
        cpu.bfloat16_unit.cache_clear()


def test_only_autocast_to_bfloat16_of_fp32_rounds() -> None:
    fp32, fp64, half = torch.ones(1), torch.ones(1).double(), torch.ones(1).bfloat16()
    assert not cpu.rounds(fp32)
    with torch.autocast("cpu", torch.bfloat16):
        assert cpu.rounds(fp32, None, half) and not cpu.rounds(fp32, fp64)
        with torch.autocast("cpu", enabled=False):
            assert not cpu.rounds(fp32)
    with torch.autocast("cpu", torch.float16):
        assert not cpu.rounds(fp32)
