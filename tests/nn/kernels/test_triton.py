"""The kernel in Triton is the plain recurrence. Without a GPU its device code is interpreted, and compiled for one."""

from collections import OrderedDict
from importlib.metadata import version
from importlib.util import find_spec
from itertools import product
from typing import Any

import layouts
import pytest
import torch
import triton_elsewhere as elsewhere
from benchmarks import compilation
from kernel_cases import (
    CELLS,
    Case,
    Form,
    assert_no_further_off,
    at_once,
    both,
    equal,
    furthest,
    make,
    on_gpu,
    one,
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
from las.nn.kernels.forms import NORMS
from las.nn.kernels.graphs import capture
from las.nn.kernels.triton.plan import TritonPlan, rows_for

triton = choice.KERNELS["triton"]
DIFFERENT = ["lstm", "ln_global_all", "ln_joined", "ln_per_gate"]
TYPES = [torch.float32, torch.bfloat16, torch.float16]
SPILLED = 8 if find_spec("triton") and version("triton").startswith("3.6.") else 0
"""Bytes that a phase may spill: Triton 3.6 spills two registers at 1,024 units and 32 rows in fp32."""


def interpreted(interpreter: Elsewhere, form: Form, case: Case) -> list[Tensor]:
    found: list[Tensor] = interpreter(elsewhere.results_of, form, case)
    assert all(part.dtype == case.gates[0].dtype for part in found)
    return found


@needs_triton
@pytest.mark.parametrize(
    "name, cell_norm", rest_slow([*product(DIFFERENT, CELL_NORMS), ("ln_global_input", "none")], keep=4)
)
def test_equals_the_plain_recurrence(name: str, cell_norm: str, interpreter: Elsewhere) -> None:
    """As near to the plain recurrence in fp64 as fp32 can be."""
    case = make(name, LENGTHS, frames=FRAMES, cell_norm=cell_norm, forget_bias=1.0)
    found = interpreted(interpreter, one, case.to(torch.float32))
    assert furthest(found, results(one, PLAIN, case).all()) <= 5e-6


@needs_triton
def test_loops_of_a_whole_update_are_the_same(interpreter: Elsewhere) -> None:
    case = make("ln_joined", LENGTHS, frames=FRAMES, cell_norm="both").to(torch.float32)
    assert all(map(torch.equal, interpreter(elsewhere.recorded, both, case), interpreted(interpreter, both, case)))


NORMED = [("ln_joined", RMSNorm), ("ln_global_all", DynamicTanh), ("ln_per_gate", NoNorm)]
NORMED += [pair for pair in product(DIFFERENT[1:], NORMS) if pair not in NORMED]


@needs_triton
@pytest.mark.parametrize("name, norm", rest_slow(NORMED, keep=3))
def test_other_norms_equal_the_plain_recurrence(name: str, norm: type[CellNorm], interpreter: Elsewhere) -> None:
    cell_norm = "none" if norm is DynamicTanh else "both"
    case = make(name, LENGTHS, frames=FRAMES, cell_norm=cell_norm, norm=norm)
    found = interpreted(interpreter, both, case.to(torch.float32))
    assert furthest(found, results(both, PLAIN, case).all()) <= 5e-6


@needs_triton
@pytest.mark.parametrize(
    "name, eps", rest_slow([*((name, 1e-12) for name in DIFFERENT), ("ln_global_all", 0.0)], keep=1)
)
def test_starts_from_nothing_with_a_tiny_eps(name: str, eps: float, interpreter: Elsewhere) -> None:
    """U h = 0 at the first frame: 1 / sqrt(eps) is a million and more, and in fp32 an eps of 0 becomes 1e-45."""
    case = make(name, LENGTHS, frames=FRAMES, starts=False, cell_norm="both", eps=eps).to(torch.float32)
    assert furthest(interpreted(interpreter, one, case), results(one, PLAIN, case).all()) <= 2e-5


@needs_triton
@pytest.mark.parametrize("name, cell_norm", rest_slow([*zip(DIFFERENT, CELL_NORMS, strict=True)], keep=1))
def test_both_directions_side_by_side(name: str, cell_norm: str, interpreter: Elsewhere) -> None:
    """With NaN in padding, which must reach nothing."""
    case = make(name, LENGTHS, frames=FRAMES, cell_norm=cell_norm)
    padding = padding_of(case.lengths, FRAMES)
    poisoned = case.to(torch.float32).with_gates(lambda part: part.masked_fill(padding, float("nan")))
    found = interpreted(interpreter, both, poisoned)
    assert not any(part.masked_select(padding).any() for part in found[:3])
    assert furthest(found, results(both, PLAIN, case).all()) <= 5e-6


@needs_triton
@pytest.mark.parametrize("name", rest_slow(DIFFERENT, keep=1))
def test_layers_of_several_models_at_once(name: str, interpreter: Elsewhere) -> None:
    case = make(name, LENGTHS, frames=FRAMES, cell_norm="both", directions=6)
    found = interpreted(interpreter, at_once, case.to(torch.float32))
    assert furthest(found, results(pairs, PLAIN, case).all()) <= 5e-6


@needs_triton
@pytest.mark.parametrize("name", rest_slow(DIFFERENT, keep=1))
def test_layers_of_several_seeds_within_vmap(name: str, interpreter: Elsewhere) -> None:
    for together, alone in interpreter(elsewhere.of_seeds, name, 3):
        torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)


@needs_triton
@pytest.mark.parametrize("name", rest_slow(["lstm", "ln_global_all", "ln_per_gate"], keep=1))
def test_half_precision_is_no_further_off_than_plain(name: str, interpreter: Elsewhere) -> None:
    """fp16: the interpreter cannot multiply bf16."""
    exact = make(name, LENGTHS, frames=FRAMES, cell_norm="output", eps=1e-12)
    rounded = exact.to(torch.float16)
    ours, plain = interpreted(interpreter, both, rounded), results(both, PLAIN, rounded).all()
    assert_no_further_off(ours, plain, results(both, PLAIN, exact).all(), torch.float16)


@needs_triton
@pytest.mark.parametrize("name", rest_slow(["ln_joined", "lstm", "ln_global_all", "ln_per_gate"], keep=1))
def test_reads_tensors_of_any_layout(name: str, interpreter: Elsewhere) -> None:
    """Two directions, each from a state of its own."""
    case = layouts.Recurrence(name, "both", 2, False, torch.float32, (2, 1))
    chosen = layouts.drawn(len(name))
    found, (_, equal) = interpreter(elsewhere.relaid, case, chosen), layouts.relaid(case.tensors(), chosen)
    exact = [part.double() if part.is_floating_point() else part for part in equal]
    assert furthest(found, case._replace(dtype=torch.float64).by(PLAIN, exact)) <= 2e-5


@needs_triton
@pytest.mark.parametrize(
    "hidden_size, batch", [(100, 3), *(pytest.param(1024, batch, marks=pytest.mark.slow) for batch in (16, 32, 64))]
)
@pytest.mark.parametrize("plan", rest_slow(PLANS.values(), keep=0), ids=PLANS)
def test_compiles_for_a_gpu(plan: TritonPlan, hidden_size: int, batch: int, compiler: Elsewhere) -> None:
    assert_fits(compiler(elsewhere.compiled, plan, hidden_size, batch, 90), 90)


@needs_triton
@pytest.mark.parametrize("capability", rest_slow(compilation.SHARED_KIB, keep=0))
@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_compiles_for_every_architecture(plan: TritonPlan, capability: int, compiler: Elsewhere) -> None:
    assert_fits(compiler(elsewhere.compiled, plan, 512, 32, capability), capability)


def assert_fits(phases: list[compilation.Phase], capability: int) -> None:
    """All five phases are there, with the shared memory that there is, and nothing else is spilled than `SPILLED`."""
    assert tuple(phase.name for phase in phases) == compilation.PHASES
    assert all(phase.shared <= 1024 * compilation.SHARED_KIB[capability] for phase in phases)
    assert all(phase.spilled <= SPILLED and 0 < phase.registers <= 255 for phase in phases)


def test_batches_share_few_shapes() -> None:
    assert [rows_for(batch) for batch in (0, 1, 16, 17, 32, 33, 64, 65, 200)] == [16, 16, 16, 32, 32, 64, 64, 128, 256]


def test_the_shape_unused_for_longest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "_cache", OrderedDict())
    made: list[int] = []

    def make_one(key: int) -> int:
        return capture.cached(key, lambda: made.append(key) or key)

    for key in [*range(capture.LIMIT), 0, capture.LIMIT, 0, 1]:
        assert make_one(key) == key
    assert made == [*range(capture.LIMIT), capture.LIMIT, 1]


LONG = [40, 33, 0, 1, 34]
"""More frames than a graph has steps, and not so many that rounding grows to the size of gradients."""


@needs_gpu
@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_on_a_gpu_it_is_no_further_off_than_plain(name: str, dtype: torch.dtype) -> None:
    for cell_norm in CELL_NORMS:
        exact, here = on_gpu(name, 40, dtype, LONG, cell_norm=cell_norm, forget_bias=1.0)
        ours, plain = (results(both, kernel, here).all() for kernel in (triton, PLAIN))
        # Feedback over forty frames multiplies roundings: either kernel may have the larger error, by some factor.
        assert_no_further_off(ours, plain, results(both, PLAIN, exact).all(), dtype, factor=8.0)


@needs_gpu
@pytest.mark.parametrize("hidden", [1, 100, 256, 1024, 1280])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_on_a_gpu_of_any_size(hidden: int, dtype: torch.dtype) -> None:
    exact, here = on_gpu("ln_global_all", hidden, dtype, [9, 4] * 35, cell_norm="both")
    ours, plain = (results(both, kernel, here).all() for kernel in (triton, PLAIN))
    assert_no_further_off(ours, plain, results(both, PLAIN, exact).all(), dtype)


@needs_gpu
def test_on_a_gpu_graphs_and_launches_give_the_same_bits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, here = on_gpu("ln_per_gate", 64, torch.bfloat16, LONG, cell_norm="output")
    replayed = results(both, triton, here).all()
    monkeypatch.setattr(capture, "_cache", OrderedDict())

    def no_capture(*_: Any, **__: Any) -> None:
        raise RuntimeError("not today")

    monkeypatch.setattr(torch.cuda.CUDAGraph, "capture_begin", no_capture)
    assert equal(results(both, triton, here).all(), replayed)
    assert capsys.readouterr().out.count("not today") == 1


@needs_gpu
def test_on_a_gpu_ten_thousand_launches_repeat_their_bits() -> None:
    """Among them shorter batches, that replay the same graphs."""
    _, here = on_gpu("ln_global_all", 256, torch.bfloat16, LONG)
    first = results(both, triton, here).all()
    for size in range(1, 60):
        lengths = here.lengths.new_tensor([size, 1, size // 2])
        results(both, triton, here._replace(lengths=lengths).with_gates(lambda part, size=size: part[:3, :size]))
        assert equal(results(both, triton, here).all(), first)
