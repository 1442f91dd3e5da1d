"""Candidates of one shape: the baselines, and every kernel with every cell, or the reason why one is refused."""

import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from benchmarks.baselines import BASELINES, NO_STACK, Baseline
from benchmarks.shapes import Shape
from las.nn.cells.base import RecurrentCell
from las.nn.kernels import choice
from las.nn.listener import reduce_time
from las.nn.rnn import BidirectionalLayer, CellFactory, RecurrentLayer

MAX_COMPILED_FRAMES = 20
COMPILED = "plain_compiled"


@dataclass(frozen=True)
class Candidate:
    """Layers to be measured; `prepare_s` is the time of compiling or capturing them, in seconds."""

    implementation: str
    cell: str
    dtype: torch.dtype
    layers: nn.Module
    prepare_s: float | None = None


@dataclass(frozen=True)
class Refused:
    """A candidate that cannot be measured at this shape, and the reason."""

    implementation: str
    cell: str
    reason: str


class Stack(nn.Module):
    """Layers one above the other as in a listener, each followed by the maximum over neighbouring rows."""

    def __init__(self, shape: Shape, layer: Callable[[int, int, int], nn.Module]) -> None:
        super().__init__()
        self.reduction = shape.reduction
        inner = shape.directions * shape.hidden_size
        sizes = [shape.input_size, *(inner for _ in shape.reduction[1:])]
        self.layers = nn.ModuleList(layer(size, shape.hidden_size, shape.directions) for size in sizes)

    def forward(self, frames: Tensor, num_frames: Tensor) -> Tensor:
        for layer, factor in zip(self.layers, self.reduction, strict=True):
            frames = layer(frames, num_frames)
            frames, num_frames = reduce_time(frames, num_frames, factor, "max_pool")
        return frames


class KernelLayer(nn.Module):
    """A recurrent layer computed by a kernel."""

    def __init__(self, kernel: str, cell: CellFactory, input_size: int, hidden_size: int, directions: int) -> None:
        super().__init__()
        self.kernel = kernel
        self.layer = (BidirectionalLayer if directions == 2 else RecurrentLayer)(cell, input_size, hidden_size)

    def forward(self, frames: Tensor, num_frames: Tensor) -> Tensor:
        with choice.use_kernel(self.kernel):
            outputs = self.layer(frames, num_frames)
        return outputs if isinstance(outputs, Tensor) else outputs[0]


class LayerLoop(nn.Module):
    """The plain recurrence over rows of equal length, in operations that `torch.compile` can trace."""

    def __init__(self, cell: CellFactory, input_size: int, hidden_size: int, directions: int) -> None:
        super().__init__()
        self.cells = nn.ModuleList(cell(input_size, hidden_size) for _ in range(directions))

    def forward(self, frames: Tensor, num_frames: Tensor) -> Tensor:
        outputs = []
        for turn, cell in enumerate(cast(Iterable[RecurrentCell], self.cells)):
            state, rows = cell.initial_state(len(frames)), []
            for gates in cell.input_gates(frames.flip(1) if turn else frames).unbind(1):
                state = cell.step(gates, state)
                rows.append(state.hidden)
            outputs.append(torch.stack(rows[::-1] if turn else rows, dim=1))
        return torch.cat(outputs, dim=-1)


def candidates(
    shape: Shape,
    cells: Mapping[str, CellFactory],
    kernels: Sequence[str],
    baselines: Sequence[str],
    dtype: torch.dtype,
    frames: Tensor,
) -> list[Candidate | Refused]:
    """The candidates in the order of the table. `frames` [batch, frames, input] are their input."""
    all_candidates: list[Candidate | Refused] = [
        _baseline(name, shape, dtype, frames) for name in baselines if name != COMPILED
    ]
    for name, cell in cells.items():
        if COMPILED in baselines:
            all_candidates.append(_compiled(name, shape, cell, dtype, frames))
        all_candidates += [_kernel(kernel, name, shape, cell, dtype, frames) for kernel in kernels]
    return all_candidates


def _baseline(name: str, shape: Shape, dtype: torch.dtype, frames: Tensor) -> Candidate | Refused:
    baseline: Baseline = BASELINES[name]
    if reason := baseline.unsupported_reason(shape, frames.device):
        return Refused(name, baseline.cell, reason)
    layers = Stack(shape, baseline.layer).to(frames.device, baseline.dtype or dtype)
    if not baseline.captured:
        return Candidate(name, baseline.cell, baseline.dtype or dtype, layers)
    began = time.perf_counter()
    sample = (frames.detach().to(dtype).requires_grad_(), shape.num_frames().to(frames.device))
    captured = cast(nn.Module, torch.cuda.make_graphed_callables(layers, sample))
    return Candidate(name, baseline.cell, dtype, captured, time.perf_counter() - began)


def _kernel(
    kernel: str, name: str, shape: Shape, cell: CellFactory, dtype: torch.dtype, frames: Tensor
) -> Candidate | Refused:
    layers = Stack(shape, partial(KernelLayer, kernel, cell)).to(frames.device, dtype)
    first_cell = next(module for module in layers.modules() if isinstance(module, RecurrentCell))
    reason = choice.refusal(choice.KERNELS[kernel], first_cell, frames.to(dtype))
    if len(shape.reduction) > 1 and first_cell.output_size != shape.hidden_size:
        reason = NO_STACK
    return Refused(kernel, name, reason) if reason else Candidate(kernel, name, dtype, layers)


def _compiled(name: str, shape: Shape, cell: CellFactory, dtype: torch.dtype, frames: Tensor) -> Candidate | Refused:
    """The plain recurrence by `torch.compile`, compiled by a first pass without and one with gradients."""
    if shape.frames > MAX_COMPILED_FRAMES or shape.ragged:
        reason = f"takes minutes to compile: only for rows of one length, at most {MAX_COMPILED_FRAMES} frames"
        return Refused(COMPILED, name, reason)
    layers = Stack(shape, partial(LayerLoop, cell)).to(frames.device, dtype)
    rows, num_frames = frames.detach().to(dtype).requires_grad_(), shape.num_frames()
    began = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about torch's own modules
            compiled = cast(nn.Module, torch.compile(layers))
            with torch.no_grad():
                compiled(rows, num_frames)
            compiled(rows, num_frames).sum().backward()
    except RuntimeError as error:
        return Refused(COMPILED, name, str(error).strip().splitlines()[0])
    return Candidate(COMPILED, name, dtype, compiled, time.perf_counter() - began)
