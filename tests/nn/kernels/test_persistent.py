"""A persistent layer is the plain recurrence, with many programs side by side in the interpreter, and on a GPU."""

from itertools import product

import layouts
import pytest
import torch
import triton_elsewhere as elsewhere
from benchmarks import compilation
from kernel_cases import (
    Case,
    Form,
    assert_no_further_off,
    at_once,
    both,
    equal,
    furthest,
    make,
    on_gpu,
    padding_of,
    pairs,
    results,
)
from tiers import needs_gpu, rest_slow
from torch import Tensor
from triton_elsewhere import FRAMES, LENGTHS, PLANS, Elsewhere, needs_triton

from las.nn.cells.base import CELL_NORMS
from las.nn.cells.norms import CellNorm, DynamicTanh, NoNorm, RMSNorm
from las.nn.kernels import choice
from las.nn.kernels.base import PLAIN
from las.nn.kernels.triton.division import Device, divisions

persistent = choice.KERNELS["persistent"]
HIDDEN, UNITS = 7, 4
"""Two programs forwards and four backwards, in each direction; the last have fewer units."""
NAMES = ["ln_global_all", "ln_joined", "ln_per_gate", "lstm"]


def interpreted(interpreter: Elsewhere, case: Case, form: Form = both) -> list[Tensor]:
    found: list[Tensor] = interpreter(elsewhere.results_of, form, case, "persistent", UNITS)
    return found


@needs_triton
@pytest.mark.parametrize("name, cell_norm", rest_slow([*product(NAMES, CELL_NORMS)], keep=0))
def test_equals_the_plain_recurrence(name: str, cell_norm: str, interpreter: Elsewhere) -> None:
    """With NaN in padding, which must reach nothing."""
    case = make(name, LENGTHS, frames=FRAMES, hidden=HIDDEN, cell_norm=cell_norm, forget_bias=1.0)
    padding = padding_of(case.lengths, FRAMES)
    poisoned = case.to(torch.float32).with_gates(lambda part: part.masked_fill(padding, float("nan")))
    found = interpreted(interpreter, poisoned)
    assert not any(part.masked_select(padding).any() for part in found[:3])
    assert furthest(found, results(both, PLAIN, case).all()) <= 5e-6


@needs_triton
@pytest.mark.parametrize(
    "name, norm", rest_slow([("ln_joined", RMSNorm), ("ln_global_all", DynamicTanh), ("ln_per_gate", NoNorm)], keep=0)
)
def test_other_norms_equal_the_plain_recurrence(name: str, norm: type[CellNorm], interpreter: Elsewhere) -> None:
    cell_norm = "none" if norm is DynamicTanh else "both"
    case = make(name, LENGTHS, frames=FRAMES, hidden=HIDDEN, cell_norm=cell_norm, norm=norm)
    assert furthest(interpreted(interpreter, case.to(torch.float32)), results(both, PLAIN, case).all()) <= 5e-6


@needs_triton
@pytest.mark.parametrize("name", rest_slow(["ln_joined", "lstm"], keep=1))
def test_layers_of_several_models_at_once(name: str, interpreter: Elsewhere) -> None:
    case = make(name, LENGTHS, frames=FRAMES, hidden=HIDDEN, cell_norm="both", directions=6)
    found = interpreted(interpreter, case.to(torch.float32), at_once)
    assert furthest(found, results(pairs, PLAIN, case).all()) <= 5e-6


@needs_triton
@pytest.mark.parametrize("name", rest_slow(["ln_joined", "ln_global_all", "lstm"], keep=1))
def test_half_precision_is_no_further_off_than_plain(name: str, interpreter: Elsewhere) -> None:
    """fp16: the interpreter cannot multiply bf16."""
    exact = make(name, LENGTHS, frames=FRAMES, hidden=HIDDEN, cell_norm="output", eps=1e-12)
    rounded = exact.to(torch.float16)
    ours, plain = interpreted(interpreter, rounded), results(both, PLAIN, rounded).all()
    assert_no_further_off(ours, plain, results(both, PLAIN, exact).all(), torch.float16)


@needs_triton
@pytest.mark.parametrize("name", rest_slow(["ln_joined", "lstm"], keep=0))
def test_reads_tensors_of_any_layout(name: str, interpreter: Elsewhere) -> None:
    case = layouts.Recurrence(name, "both", 2, False, torch.float32, (2, 1))
    chosen = layouts.drawn(len(name))
    _, equal_tensors = layouts.relaid(case.tensors(), chosen)
    found = interpreter(elsewhere.relaid, case, chosen, "persistent")
    exact = [part.double() if part.is_floating_point() else part for part in equal_tensors]
    assert furthest(found, case._replace(dtype=torch.float64).by(PLAIN, exact)) <= 2e-5


@needs_triton
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_words_keep_numbers(dtype: torch.dtype, interpreter: Elsewhere) -> None:
    """All but the last bit of every second number, which is rounded; infinities and NaN too."""
    numbers, found = interpreter(elsewhere.through_words, dtype)
    numbers = torch.where(numbers.abs() < torch.finfo(dtype).tiny, found, numbers)  # the interpreter flushes them
    odd, even = numbers[1::2], numbers[::2]
    assert torch.equal(found[1::2].nan_to_num(7), odd.nan_to_num(7))
    assert torch.equal(found.isnan(), numbers.isnan()) and torch.equal(found.isinf()[::2], even.isinf())
    fine = even.isfinite() & (even.abs() >= torch.finfo(dtype).tiny) & (even.abs() < torch.finfo(dtype).max / 2)
    apart = (found[::2].double() - even.double())[fine].abs() / even.double()[fine].abs()
    assert apart.max() <= torch.finfo(dtype).eps


def test_divisions_run_at_the_same_time() -> None:
    """No launch has more programs than multiprocessors, and together they cover directions, rows and units."""
    for hidden, directions, batch, shared in product((5, 100, 256, 768, 1024), (1, 2), (1, 33, 200), (99, 163, 227)):
        for found in divisions(hidden, directions, batch, 2, Device(132, 1024 * shared)):
            if found is None:
                assert hidden >= 768 and shared < 227
                continue
            assert found.programs * found.own >= hidden and found.rows * found.groups >= batch
            grids = [grid for grid, *_ in found.launches(directions)]
            assert all(programs * together * groups <= 132 for programs, together, groups in grids)
            assert sum(together * groups for _, together, groups in grids) == directions * found.groups


@needs_triton
@pytest.mark.parametrize("plan", rest_slow(["bf16", "mixed"], keep=0))
@pytest.mark.parametrize("capability, hidden_size", [(90, 256), (90, 768), (90, 1024), (80, 512), (86, 256)])
def test_compiles_for_a_gpu(plan: str, capability: int, hidden_size: int, compiler: Elsewhere) -> None:
    phases = compiler(elsewhere.persistent_phases, PLANS[plan], hidden_size, 32, capability)
    assert tuple(phase.name for phase in phases) == compilation.PERSISTENT_PHASES
    assert all(phase.shared <= 1024 * compilation.SHARED_KIB[capability] for phase in phases)
    assert all(phase.spilled <= 256 for phase in phases)


@needs_gpu
@pytest.mark.parametrize("hidden", [7, 100, 256, 512, 768, 1024])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_on_a_gpu_of_any_size(hidden: int, dtype: torch.dtype) -> None:
    for name, batch in zip(NAMES, (3, 32, 40, 70), strict=True):
        exact, here = on_gpu(name, hidden, dtype, [9, 4, 0, 1, 7] * (batch // 5 + 1), cell_norm="both")
        ours, plain = (results(both, kernel, here).all() for kernel in (persistent, PLAIN))
        assert_no_further_off(ours, plain, results(both, PLAIN, exact).all(), dtype)


@needs_gpu
def test_on_a_gpu_a_thousand_calls_repeat_their_bits() -> None:
    _, here = on_gpu("ln_global_all", 512, torch.bfloat16, [40, 33, 0, 1, 34])
    first = results(both, persistent, here).all()
    for _ in range(300):
        assert equal(results(both, persistent, here).all(), first)
