"""The trial of a kernel at first contact: what passes, what is left out, and what is said."""

import types
from importlib.util import find_spec
from typing import Any

import pytest
import torch
import triton_elsewhere as elsewhere
from torch import Tensor

from las.nn import rnn
from las.nn.cells.ln_global import LNGlobalLSTMCell
from las.nn.cells.ln_joined import LNJoinedLSTMCell
from las.nn.cells.lstm import PlainLSTMCell
from las.nn.kernels import cudnn, trial
from las.nn.kernels import plain as plain_kernel
from las.nn.kernels.torch import layer as autograd
from las.nn.kernels.trial import Trial
from las.runtime.errors import ConfigError

CPU = torch.device("cpu")


def attempt(kernel: types.ModuleType, own: torch.dtype = torch.float32, operand: torch.dtype | None = None) -> Trial:
    return Trial(kernel, LNGlobalLSTMCell, 6, "both", own, operand or own, CPU)


@pytest.fixture(autouse=True)
def no_earlier_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "_failures", {})


def wrong(change: float, part: int) -> types.ModuleType:
    """`autograd` with one of its results, outputs or last states, a little off."""
    kernel = types.ModuleType("las.nn.kernels.wrong")

    def recurrence(*given: Any) -> Any:
        outputs, last = autograd.recurrence(*given)
        if part == 0:
            return outputs * (1 + change), last
        return outputs, [last[0]._replace(cell=last[0].cell + change), *last[1:]]

    kernel.recurrence = recurrence  # type: ignore[attr-defined]
    kernel.unsupported_reason = autograd.unsupported_reason  # type: ignore[attr-defined]
    return kernel


@pytest.mark.parametrize(
    ("own", "operand"),
    [
        (torch.float64, torch.float64),
        (torch.float32, torch.float32),
        (torch.float32, torch.bfloat16),
        (torch.bfloat16, torch.bfloat16),
        (torch.float16, torch.float16),
    ],
)
@pytest.mark.parametrize("kernel", [autograd, plain_kernel])
def test_kernels_that_are_right_pass_in_every_type(
    kernel: types.ModuleType, own: torch.dtype, operand: torch.dtype, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trial.failure(attempt(kernel, own, operand)) == ""
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("part", [0, 1])
def test_a_kernel_that_differs_is_left_out_and_said_once(part: int, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        reason = trial.failure(attempt(wrong(0.02, part)))
        assert reason.startswith("fails its self-test: LNGlobalLSTMCell differs by 0.0")
    said = capsys.readouterr().out
    assert f"recurrences: wrong is not used with torch.float32 on cpu: it {reason}" in " ".join(said.split())
    # The two kernels of the loop are two modules; each is tried, and said, once.
    assert said.count("is not used") == 2
    assert trial.failure(attempt(wrong(1e-5, part))) == ""


def test_a_kernel_that_gives_nan_or_raises_is_left_out() -> None:
    assert "differs by nan" in trial.failure(attempt(wrong(float("nan"), 0)))
    broken = types.ModuleType("las.nn.kernels.broken")

    def recurrence(*given: Any) -> Any:
        raise RuntimeError("ptxas: no kernel image\nmore of it")

    broken.recurrence = recurrence  # type: ignore[attr-defined]
    broken.unsupported_reason = autograd.unsupported_reason  # type: ignore[attr-defined]
    assert trial.failure(attempt(broken)) == "fails its self-test: RuntimeError: ptxas: no kernel image"


def test_too_little_memory_says_nothing_about_a_kernel() -> None:
    kernel, given = types.ModuleType("las.nn.kernels.large"), []

    def recurrence(*arguments: Any) -> Any:
        given.append(arguments)
        raise torch.OutOfMemoryError("CUDA out of memory")

    kernel.recurrence = recurrence  # type: ignore[attr-defined]
    kernel.unsupported_reason = autograd.unsupported_reason  # type: ignore[attr-defined]
    for _ in range(2):
        with pytest.raises(torch.OutOfMemoryError):
            trial.failure(attempt(kernel))
    assert len(given) == 2


class OnAGPU(Tensor):
    """A tensor that says it is on a GPU, which is all that kernels ask of it."""

    device = property(lambda self: torch.device("cuda", 0))  # type: ignore[assignment]


def on_a_gpu() -> Tensor:
    return torch.zeros(1).as_subclass(OnAGPU)


def test_the_next_kernel_is_taken_where_one_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that says it has an NVIDIA GPU, whose kernels all fail their trials."""
    tried = []

    def fails(trial: Trial) -> str:
        tried.append((trial.kernel.__name__.rpartition(".")[2], trial.cell, trial.hidden_size, trial.operand))
        return "fails its self-test: it is made to"

    triton = rnn.KERNELS["triton"]
    for module in (cudnn, triton):
        monkeypatch.setattr(module, "failure", fails)
    monkeypatch.setattr(triton, "find_spec", lambda name: object())
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.backends.cudnn, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    like, cell = on_a_gpu(), PlainLSTMCell(3, 5)
    assert rnn.select_kernel(cell, like) is rnn.KERNELS["autograd"]
    assert tried == [(name, PlainLSTMCell, 5, torch.float32) for name in ("triton", "cudnn")]
    left_out = "triton, cudnn: fails its self-test: it is made to; cpu: it computes on a CPU, not on cuda"
    assert rnn.explain(cell, like) == f"recurrences: autograd ({left_out})"
    tried.clear()
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device_type: device_type == "cuda")
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda device_type: torch.bfloat16)
    assert rnn.select_kernel(LNJoinedLSTMCell(3, 5), like) is rnn.KERNELS["autograd"]
    assert tried == [("triton", LNJoinedLSTMCell, 5, torch.bfloat16)]
    with rnn.use_kernel("triton"), pytest.raises(ConfigError, match="fails its self-test"):
        rnn.select_kernel(cell, like)


@pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
def test_the_kernel_in_triton_passes_its_trial_interpreted() -> None:
    for run in elsewhere.process(TRITON_INTERPRET="1"):
        assert run(elsewhere.tried, "ln_global_all", torch.float32) < trial.TOLERANCES[torch.float32]


def test_cudnn_needs_a_gpu_and_the_plain_lstm(monkeypatch: pytest.MonkeyPatch) -> None:
    like = on_a_gpu()
    assert cudnn.unsupported_reason(PlainLSTMCell(3, 5), torch.zeros(1)) == "needs an NVIDIA GPU"
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert cudnn.unsupported_reason(LNGlobalLSTMCell(3, 5), like) == "computes the plain LSTM only"
    assert cudnn.unsupported_reason(PlainLSTMCell(3, 5, cell_norm="state"), like) == "computes the plain LSTM only"
    monkeypatch.setattr(torch.backends.cudnn, "is_available", lambda: False)
    assert cudnn.unsupported_reason(PlainLSTMCell(3, 5), like) == "cuDNN is not available"


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("lengths", [[3, 6, 0, 5], [0, 0], [7], []])
def test_cudnns_code_is_the_plain_recurrence_on_a_cpu(directions: int, lengths: list[int]) -> None:
    torch.manual_seed(3)
    cells = [PlainLSTMCell(4, 5, forget_bias=1.0).double() for _ in range(directions)]
    frames = torch.randn(len(lengths), 7, 4, dtype=torch.float64, requires_grad=True)
    states = [cell.initial_state(len(lengths))._replace(hidden=torch.randn(len(lengths), 5).double()) for cell in cells]

    def results(layer: Any) -> list[Tensor]:
        outputs, last = layer(cells, frames, torch.tensor(lengths, dtype=torch.long), states)
        parts = [outputs, *(part for state in last for part in state)]
        loss = sum(part.square().sum() for part in parts)
        inputs = [frames, *(parameter for cell in cells for parameter in cell.parameters())]
        return [*parts, *torch.autograd.grad(loss, inputs, allow_unused=True)]

    def plain(cells: Any, frames: Tensor, num_frames: Tensor, states: Any) -> Any:
        return plain_kernel.recurrence(cells, [cell.input_gates(frames) for cell in cells], num_frames, states)

    for ours, expected in zip(results(cudnn.layer), results(plain), strict=True):
        if ours is None:
            assert expected is None or not expected.any()
        else:
            torch.testing.assert_close(ours, torch.zeros_like(ours) if expected is None else expected)


def test_cudnns_code_from_gates_and_without_gradients() -> None:
    cells, frames, lengths = [PlainLSTMCell(4, 5)], torch.randn(2, 3, 4), torch.tensor([3, 2])
    with torch.no_grad():
        expected, _ = plain_kernel.recurrence(cells, [cells[0].input_gates(frames)], lengths, [None])
        for outputs, _ in (
            cudnn.layer(cells, frames, lengths, [None]),
            cudnn.recurrence(cells, [cells[0].input_gates(frames)], lengths, [None]),
        ):
            torch.testing.assert_close(outputs, expected)
