"""The trial of a kernel when a process first uses it: a small layer against the plain equations, values and gradients.

A kernel that cannot be compiled for this device, cannot be captured in a graph, or differs from the equations is not
used; the next one is. The trial has two directions and padding, and the size, norm and types that are asked for.
"""

from types import ModuleType
from typing import NamedTuple, cast

import torch
from torch import Tensor

from las.nn.cells.base import LSTMCell
from las.nn.kernels import plain
from las.nn.kernels.base import Kernel, LayerKernel
from las.runtime import progress

TOLERANCES = {torch.float64: 1e-6, torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""Largest difference by the type of a product's operands, as a share of the largest value of a tensor."""

TF32 = 1e-2
"""Largest difference where torch may compute fp32 products in TF32."""

INPUT_SIZE = 7
LENGTHS = (5, 2, 4)


class Trial(NamedTuple):
    """A kernel, and what it is to compute."""

    kernel: ModuleType
    cell: type[LSTMCell]
    hidden_size: int
    cell_norm: str
    own: torch.dtype
    """Type of parameters and frames."""
    operand: torch.dtype
    """Type of the operands of products, which autocast may choose."""
    device: torch.device

    @classmethod
    def of(cls, kernel: ModuleType, cell: LSTMCell, input_gates: Tensor) -> "Trial":
        """The trial for a cell on a tensor's device, in the types of both and of autocast there."""
        own, device = torch.promote_types(input_gates.dtype, next(cell.parameters()).dtype), input_gates.device
        operand = torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else own
        return cls(kernel, type(cell), cell.hidden_size, cell.cell_norm, own, operand, device)

    @property
    def tolerance(self) -> float:
        """The largest difference that rounding explains."""
        tf32 = self.device.type == "cuda" and torch.backends.cuda.matmul.allow_tf32
        return TF32 if tf32 and self.operand == torch.float32 else TOLERANCES[self.operand]


_failures: dict[Trial, str] = {}


def failure(trial: Trial) -> str:
    """The reason why a kernel is not used, empty if it passes. The first call tries it, and prints a failure."""
    if trial not in _failures:
        _failures[trial] = reason = _failure(trial)
        if reason:
            name = trial.kernel.__name__.rpartition(".")[2]
            progress.say(f"recurrences: {name} is not used with {trial.operand} on {trial.device}: it {reason}")
    return _failures[trial]


def _failure(trial: Trial) -> str:
    try:
        largest = difference(trial)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        first_line = str(error).strip().partition("\n")[0]
        return f"fails its self-test: {type(error).__name__}: {first_line}"
    if largest <= trial.tolerance:
        return ""
    return f"fails its self-test: {trial.cell.__name__} differs by {largest:.1g} of its size"


def difference(trial: Trial) -> float:
    """The largest difference of a kernel from the plain equations in fp64, over outputs, states and gradients.

    It is a share of the largest value of its tensor; NaN where a result is.
    """
    with torch.random.fork_rng(devices=[]), torch.inference_mode(False), torch.enable_grad():
        torch.manual_seed(1)
        sizes = INPUT_SIZE, trial.hidden_size
        cells = [trial.cell(*sizes, cell_norm=trial.cell_norm, forget_bias=1.0).double() for _ in range(2)]
        frames = torch.linspace(-9, 9, len(LENGTHS) * max(LENGTHS) * INPUT_SIZE, dtype=torch.float64).sin()
        frames = frames.view(len(LENGTHS), max(LENGTHS), INPUT_SIZE)
        with torch.autocast("cpu", enabled=False):
            right = _results(cast(Kernel, plain), cells, frames.clone().requires_grad_())
        there = [cell.to(trial.device, trial.own) for cell in cells]
        with torch.autocast(trial.device.type, trial.operand, enabled=trial.operand != trial.own):
            ours = _results(cast(Kernel, trial.kernel), there, frames.to(trial.device, trial.own).requires_grad_())
    pairs = [(mine.double().cpu(), part) for mine, part in zip(ours, right, strict=True)]
    shares = [(mine - part).abs().max() / part.abs().max() for mine, part in pairs]
    return float(torch.stack(shares).max())


def _results(kernel: Kernel, cells: list[LSTMCell], frames: Tensor) -> list[Tensor]:
    """Outputs, last states, and the gradients of the sum of their squares."""
    lengths = torch.tensor(LENGTHS)
    if isinstance(kernel, LayerKernel):
        outputs, last = kernel.layer(cells, frames, lengths, [None, None])
    else:
        outputs, last = kernel.recurrence(cells, [each.input_gates(frames) for each in cells], lengths, [None, None])
    results = [outputs, *(part for state in last for part in state)]
    inputs = [frames, *(parameter for cell in cells for parameter in cell.parameters())]
    loss = torch.stack([part.double().square().sum() for part in results]).sum()
    return [part.detach() for part in (*results, *torch.autograd.grad(loss, inputs))]
