"""The self-test of an implementation at first use: what passes, what is left out, and what is said."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from gpu_stand_in import GPU, stand_in
from kernel_cases import compiles
from torch import Tensor

from las.decoding import beam_expansion
from las.nn import ctc_prefix, dropout, gammatone, speller
from las.nn.cells.ln_global import LNGlobalLSTMCell
from las.nn.cells.ln_joined import LNJoinedLSTMCell
from las.nn.cells.lstm import PlainLSTMCell
from las.nn.kernels import choice
from las.nn.kernels.base import PLAIN, Kernel, PlainKernel
from las.nn.kernels.choice import Compiled, Trial
from las.nn.kernels.triton import layer as triton_layer
from las.runtime.errors import ConfigError

CPU = torch.device("cpu")


def attempt(kernel: Kernel, own: torch.dtype = torch.float32, operand: torch.dtype | None = None) -> Trial:
    return Trial(kernel, LNGlobalLSTMCell, 6, "both", "layer", (("biases", "all"),), own, operand or own, CPU)


@pytest.fixture(autouse=True)
def no_earlier_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "_failures", {})


class Wrong(PlainKernel):
    """One of its results, outputs (0) or last states (1), is a little off."""

    def __init__(self, change: float, part: int) -> None:
        self.change, self.part = change, part

    def recurrence(self, *given: Any) -> Any:
        outputs, last = super().recurrence(*given)
        if self.part == 0:
            return outputs * (1 + self.change), last
        return outputs, [last[0]._replace(cell=last[0].cell + self.change), *last[1:]]


class Broken(PlainKernel):
    """Raises an error, and counts."""

    def __init__(self, error: Exception) -> None:
        self.error, self.calls = error, 0

    def recurrence(self, *given: Any) -> Any:
        self.calls += 1
        raise self.error


@pytest.mark.parametrize("part", [0, 1])
def test_a_kernel_that_differs_is_left_out_and_said_once(part: int, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = Wrong(0.02, part)
    for _ in range(2):
        reason = attempt(wrong).failure()
        assert reason.startswith("fails its self-test: LNGlobalLSTMCell differs by 0.0")
    said = " ".join(capsys.readouterr().out.split())
    assert said.count(reason) == 1 and "Wrong" in said and "torch.float32 on cpu" in said
    assert attempt(Wrong(1e-5, part)).failure() == ""


def test_a_kernel_that_gives_nan_or_raises_is_left_out() -> None:
    assert "by nan" in attempt(Wrong(float("nan"), 0)).failure()
    broken = Broken(RuntimeError("ptxas: no kernel image\nmore of it"))
    assert attempt(broken).failure() == "fails its self-test: RuntimeError: ptxas: no kernel image"


@pytest.mark.parametrize("own", [torch.bfloat16, torch.float32])
def test_a_kernel_may_round_as_the_plain_one_does(own: torch.dtype) -> None:
    """At this size bf16 takes gradients of Global further from fp64 than is usual for the type."""
    rounding = attempt(Wrong(0.0, 0), own, torch.bfloat16)._replace(hidden_size=64, cell_norm="none")
    torch.manual_seed(1)
    apart = max(choice.difference(ours.detach(), right.detach()) for _, ours, right in rounding.results())
    assert apart > rounding.tolerance and rounding.failure() == ""
    assert "differs by" in rounding._replace(kernel=Wrong(0.5, 0)).failure()


def test_too_little_memory_says_nothing_about_a_kernel() -> None:
    kernel = Broken(torch.OutOfMemoryError("CUDA out of memory"))
    for _ in range(2):
        with pytest.raises(torch.OutOfMemoryError):
            attempt(kernel).failure()
    assert kernel.calls == 2


@compiles
def test_self_tests_leave_random_numbers_alone_whatever_is_set_around_them() -> None:
    cell = LNGlobalLSTMCell(3, 4)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        assert choice.refusal(choice.KERNELS["cpu"], cell, torch.zeros(1)) == ""
        assert not choice.compiled_here(torch.zeros(1)).count("not ")
    assert torch.equal(torch.rand(3), expected)


PARTS = (
    *(*speller.PASSES.values(), *speller.STEPS.values(), dropout.DROPOUT, gammatone.FILTERS),
    *(beam_expansion.BEAMS, ctc_prefix.PREFIXES),
)


@compiles
@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_what_is_compiled_is_compared_before_it_is_used(part: Compiled, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU, in fp32 and fp64 alone; each tensor that differs is found."""
    assert part.refusal(torch.zeros(1)) == ""
    assert "bfloat16" in part.refusal(torch.zeros(1, dtype=torch.bfloat16))
    assert "meta" in part.refusal(torch.zeros(1, device="meta"))
    results = [*part.trial()]
    for number, (name, ours, right) in enumerate(results):
        if ours.is_floating_point() and ours.any():
            wrong = [*results]
            wrong[number] = name, 1.01 * ours, right
            monkeypatch.setattr(choice, "_failures", {})
            monkeypatch.setattr(part, "trial", lambda found=wrong: found)
            assert f"{name} differs" in part.refusal(torch.zeros(1))


class OnAGPU(Tensor):
    """A tensor that says it is on a GPU, which is all that kernels ask of it."""

    device = property(lambda self: torch.device("cuda", 0))  # type: ignore[assignment]


def on_a_gpu() -> Tensor:
    return torch.zeros(1).as_subclass(OnAGPU)


def test_the_next_kernel_is_taken_where_one_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that says it has an NVIDIA GPU, whose kernels all fail their trials."""
    tried = []

    def fails(trial: Trial) -> str:
        tried.append((trial.kernel, trial.cell, trial.hidden_size, trial.operand))
        return "fails its self-test: it is made to"

    persistent, triton = choice.KERNELS["persistent"], choice.KERNELS["triton"]
    monkeypatch.setattr(Trial, "failure", fails)
    monkeypatch.setattr(triton_layer, "find_spec", lambda name: object())
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    like, cell = on_a_gpu(), PlainLSTMCell(3, 5)
    assert choice.select_kernel(cell, like) is PLAIN
    assert tried == [(triton, PlainLSTMCell, 5, torch.float32)]
    explained = choice.explain(cell, like)
    assert explained.startswith("recurrences: plain (persistent: ") and "; triton: fails its self-test" in explained
    tried.clear()
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device_type: device_type == "cuda")
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda device_type: torch.bfloat16)
    properties = SimpleNamespace(multi_processor_count=132, shared_memory_per_block_optin=227 * 1024)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    assert choice.select_kernel(LNJoinedLSTMCell(3, 5), like) is PLAIN
    assert tried == [(kernel, LNJoinedLSTMCell, 5, torch.bfloat16) for kernel in (persistent, triton)]
    with choice.use_kernel("triton"), pytest.raises(ConfigError, match="fails its self-test"):
        choice.select_kernel(cell, like)


def test_a_trial_on_a_gpu_has_a_batch_of_few_rows_and_one_of_many() -> None:
    sizes = []

    class Noting(PlainKernel):
        def recurrence(self, cells: Any, input_gates: Any, *given: Any) -> Any:
            sizes.append(len(input_gates[0]))
            return super().recurrence(cells, input_gates, *given)

    with stand_in():
        assert attempt(Noting())._replace(device=GPU).failure() == ""
    assert sizes == [3, 33]
