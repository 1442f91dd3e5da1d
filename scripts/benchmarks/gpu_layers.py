"""`make gpu`, part layers: kernels on a GPU next to the plain kernel there, then their times next to cuDNN's best."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks import lstm, side_by_side
from benchmarks.candidates import KernelLayer
from benchmarks.ledger import Ledger
from benchmarks.records import Row, TableColumn, number, text
from benchmarks.settings import DTYPES, Settings
from benchmarks.shapes import SHAPES
from las.nn.cells.base import LSTMCell
from las.nn.cells.ln_global import LNGlobalLSTMCell
from las.nn.cells.ln_joined import LNJoinedLSTMCell
from las.nn.cells.ln_per_gate import LNPerGateLSTMCell
from las.nn.cells.lstm import PlainLSTMCell
from las.nn.kernels import choice
from las.nn.rnn import CellFactory
from las.runtime import devices, progress

CELLS: dict[str, CellFactory] = {
    "ln_global": LNGlobalLSTMCell,
    "ln_joined": LNJoinedLSTMCell,
    "ln_per_gate": LNPerGateLSTMCell,
    "lstm": PlainLSTMCell,
}
TRIED_FRAMES, TRIED_INPUT = 40, 96
"""Frames and values per frame of what is compared with the plain kernel."""

CHECK_COLUMNS = (
    TableColumn("kernel", text("implementation")),
    TableColumn("cell", text("cell")),
    TableColumn("size", text("work")),
    TableColumn("type", text("dtype")),
    TableColumn("largest difference", number("difference", 5)),
    TableColumn("tolerance", number("tolerance", 3)),
)


class Round(NamedTuple):
    """Cells at shapes in a type, next to baselines."""

    dtype: str
    cells: tuple[str, ...]
    shapes: tuple[str, ...]
    baselines: tuple[str, ...]


OTHERS = ("ln_joined", "ln_per_gate", "lstm")
BEST = ("lstm_best",)
ON_GPU = (
    Round("bfloat16", ("ln_global",), ("S1", "S7", "S8", "S3", "S4", "S2", "S5"), (*BEST, "lstm")),
    Round("bfloat16", ("ln_global",), ("S9", "S6", "S10"), (*BEST, "lstm", "lstm_packed")),
    Round("bfloat16", OTHERS, ("S4", "S3", "S1", "S7"), BEST),
    Round("float16", ("ln_global",), ("S4", "S3", "S1", "S7", "S5", "S2", "S8"), BEST),
    Round("float32", tuple(CELLS), ("S4", "S3"), BEST),
    Round("float16", OTHERS, ("S4", "S3"), BEST),
    Round("bfloat16", (), ("S4", "S3", "S1"), ("lstm_graph",)),
)
"""What is measured: the rows of the targets, and after the checks all others. Products of float32 take operands of
TF32."""
IN_SMALL = (Round("float32", ("ln_global", "lstm"), ("C5",), ("lstm",)),)

Size = tuple[str, str, int, int, int]
"""Type, cell, H, rows of a batch, directions."""
CHECKED: tuple[Size, ...] = (
    *(("bfloat16", "ln_global", size, rows, way) for size, rows, way in ((1024, 32, 2), (512, 32, 2), (768, 16, 1))),
    *(("bfloat16", cell, 1024, 32, 2) for cell in OTHERS),
    *((dtype, "ln_global", 1024, 32, 2) for dtype in ("float16", "float32")),
    *(("bfloat16", "ln_global", size, rows, 2) for size, rows in ((1024, 64), (1024, 16), (256, 16))),
)
"""What is compared with the plain kernel, at the tiles that training uses."""
CHECKED_IN_SMALL: tuple[Size, ...] = (("float32", "ln_global", 16, 16, 2), ("float32", "lstm", 16, 3, 1))


def measure(ledger: Ledger) -> None:
    """Measure the first round, compare with the plain kernel, then measure the other rounds."""
    settings, on_gpu = ledger.settings, ledger.settings.device.type == "cuda"
    first, *others = ON_GPU if on_gpu else IN_SMALL
    checked = CHECKED if on_gpu else CHECKED_IN_SMALL
    compiling_s = 0.0
    lots: list[tuple[tuple[Size, ...], Round | None]] = [((), first), (checked, None), *(((), each) for each in others)]
    for sizes, each in lots:
        if on_gpu:
            began_s = ledger.elapsed_s
            if began_s + compiling_s > ledger.budget_s:
                ledger.not_run.append(f"{each.dtype}: {', '.join(each.shapes)}" if each else "checks")
                continue
            of_round = [(each.dtype, cell, *_size(name)) for cell in each.cells for name in each.shapes] if each else []
            side_by_side.compiled(_compile, _offered(settings, [*sizes, *of_round]))
            compiling_s = max(compiling_s, ledger.elapsed_s - began_s)
            progress.say(f"kernels compiled: {ledger.elapsed_s - began_s:.0f} s")
        for size in sizes:
            ledger.measure(f"check of {size[1]}, {_named(size)}", partial(_checked, settings, size))
        if each is None:
            continue
        for name in each.shapes:
            ledger.measure(
                f"{name}, {each.dtype}: {', '.join(each.cells or each.baselines)}",
                partial(_timed, settings, each, name),
            )


def kernels(settings: Settings) -> list[str]:
    """The kernels that compute on the device, plain ones left out where there are others."""
    return [name for name, kernel in choice.KERNELS.items() if kernel.device == settings.device.type]


def _size(name: str) -> tuple[int, int, int]:
    shape = SHAPES[name]
    return shape.hidden_size, shape.batch, shape.directions


def _named(size: Size) -> str:
    dtype, _, hidden_size, rows, directions = size
    return f"{_type(dtype)}, H={hidden_size} B={rows}, {directions} direction{'s' * (directions - 1)}"


def _type(dtype: str) -> str:
    return "tf32" if dtype == "float32" and torch.cuda.is_available() else dtype


def _timed(settings: Settings, each: Round, name: str) -> Iterator[Row]:
    measured = replace(
        settings,
        dtype=DTYPES[each.dtype],
        shapes={name: SHAPES[name]},
        kernels=kernels(settings),
        baselines=list(each.baselines),
    )
    for row in lstm.measured(measured, name, {cell: CELLS[cell] for cell in each.cells}):
        dtype, own = _type(row["dtype"]), _type(each.dtype)
        yield row | {"dtype": dtype} | ({} if dtype == own else {"work": f"beside {own}"})


def _checked(settings: Settings, size: Size) -> Iterator[Row]:
    """Rows of the largest differences of outputs and gradients from those of the plain kernel in fp64."""
    dtype, cell, hidden_size, rows, directions = size
    for kernel in kernels(settings):
        torch.manual_seed(1)
        layer = KernelLayer(kernel, CELLS[cell], TRIED_INPUT, hidden_size, directions)
        layer.to(settings.device, DTYPES[dtype])
        shape = f"{TRIED_FRAMES} frames, each row of another length"
        row = settings.row(kernel, cell, shape) | {"suite": "check", "work": _named(size), "dtype": _type(dtype)}
        own = next(module for module in layer.modules() if isinstance(module, LSTMCell))
        frames = torch.randn(rows, TRIED_FRAMES, TRIED_INPUT, device=settings.device, dtype=DTYPES[dtype])
        if reason := choice.refusal(choice.KERNELS[kernel], own, frames):
            yield row | {"refused": reason}
            continue
        plain = copy.deepcopy(layer)
        plain.kernel = "plain"
        exact = _results(copy.deepcopy(plain).double(), frames.double())
        difference, of_plain = (
            max(choice.difference(*pair) for pair in zip(_results(each, frames), exact, strict=True))
            for each in (layer, plain)
        )
        # Rounding grows over frames where U h is small: as much for the plain kernel in the same type.
        usual = choice.TF32 if row["dtype"] == "tf32" else choice.TOLERANCES[DTYPES[dtype]]
        tolerance = max(usual, choice.TIMES_ROUNDING * of_plain)
        yield row | {"difference": difference, "tolerance": tolerance}
        if not difference <= tolerance:
            raise AssertionError(f"{kernel} differs by {difference:.3g} of the largest value (at most {tolerance})")


def _results(layer: KernelLayer, frames: Tensor) -> list[Tensor]:
    """Outputs of rows of no frames to all frames, and the gradients of frames and parameters."""
    frames = frames.detach().requires_grad_()
    lengths = torch.linspace(0, frames.shape[1], len(frames)).long().flip(0).to(frames.device)
    outputs = layer(frames, lengths)
    weights = torch.arange(outputs.numel(), dtype=torch.float64, device=frames.device).sin()
    inputs = [frames, *layer.parameters()]
    grads = torch.autograd.grad(outputs, inputs, weights.view_as(outputs).to(outputs.dtype))
    return [outputs.detach(), *grads]


def _offered(settings: Settings, sizes: Sequence[Size]) -> Iterator[tuple[str, Size]]:
    """The kernels that compute layers, with the sizes of these."""
    for size in sizes:
        dtype, cell, hidden_size, _, _ = size
        own, like = CELLS[cell](1, hidden_size).to(DTYPES[dtype]), torch.empty(0, dtype=DTYPES[dtype])
        for kernel in kernels(settings):
            if not choice.KERNELS[kernel].unsupported_reason(own, like.to(settings.device)):
                yield kernel, size


def _compile(task: tuple[str, Size]) -> None:
    """Run a layer forwards and backwards, and forwards alone."""
    kernel, (dtype, cell, hidden_size, rows, directions) = task
    torch.set_num_threads(1)
    devices.allow_tf32(True)
    device = torch.device("cuda")
    frames = torch.randn(rows, 16, TRIED_INPUT, device=device, dtype=DTYPES[dtype], requires_grad=True)
    layer = KernelLayer(kernel, CELLS[cell], TRIED_INPUT, hidden_size, directions).to(device, DTYPES[dtype])
    lengths = torch.full((rows,), 16, device=device)
    layer(frames, lengths).sum().backward()
    with torch.no_grad():
        layer(frames, lengths)
    torch.cuda.synchronize()
