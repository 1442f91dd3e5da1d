"""Choice of the implementation that computes something here, and the reason why no faster one does.

A recurrent layer has several kernels, of which `KERNELS` lists the fastest first. What is a `Compiled` is computed by
C++ on a CPU and by torch's operations elsewhere. Before a process uses an implementation, it compares a small case with
the plain equations: what cannot be compiled for this device or differs is not used, the next one is.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from itertools import takewhile
from typing import Any, NamedTuple

import torch
from torch import Tensor

from las.nn.cells.base import LSTMCell, RecurrentCell
from las.nn.kernels.base import PLAIN, Kernel
from las.nn.kernels.cpp import build
from las.nn.kernels.cpp.layer import CppKernel
from las.nn.kernels.forms import CLASSES, norm_of, uncompiled
from las.nn.kernels.graphs import capture as graphs
from las.nn.kernels.graphs.replayed import Capture
from las.nn.kernels.merged import MergedKernel
from las.nn.kernels.triton.layer import PersistentKernel, TritonKernel
from las.nn.kernels.unrolled import TorchKernel
from las.runtime import progress
from las.runtime.errors import ConfigError, suggest

KERNELS: dict[str, Kernel] = {
    "persistent": PersistentKernel(),
    "triton": TritonKernel(),
    "cpu": CppKernel(),
    "torch": TorchKernel(),
    "merged": MergedKernel(lambda cell, like: _compiled(cell, like)),
    "plain": PLAIN,
}
"""Kernels by name, fastest first."""

REPLACED = {
    "autograd": "cpu computes the same on a CPU with a C++ compiler, plain everywhere",
    "cudnn": "triton computes the same on an NVIDIA GPU, in less time",
}
"""Kernels of earlier versions, and what is there instead."""

_kernel: ContextVar[str | Kernel] = ContextVar("kernel", default="auto")


@contextmanager
def use_kernel(kernel: str | Kernel) -> Iterator[None]:
    """Context in which layers compute their recurrence by the named kernel; `auto` selects the fastest possible.

    A kernel that is not in `KERNELS` is passed itself. Raises ConfigError for an unknown name.

    >>> import las, torch
    >>> lstm, frames = las.LSTM(8, 16), torch.randn(20, 2, 8)
    >>> with las.use_kernel("plain"):
    ...     expected, _ = lstm(frames)
    ...
    >>> torch.allclose(lstm(frames)[0], expected, atol=1e-5)
    True
    """
    if isinstance(kernel, str) and kernel in REPLACED:
        raise ConfigError(f"kernel={kernel} was removed: {REPLACED[kernel]}. Use kernel=auto")
    if isinstance(kernel, str) and kernel not in ("auto", *KERNELS):
        raise ConfigError(
            f"The kernel {kernel!r} does not exist.{suggest(kernel, ('auto', *KERNELS))} `las doctor` says which "
            "can be used on this machine"
        )
    token = _kernel.set(kernel)
    try:
        yield
    finally:
        _kernel.reset(token)


def requested() -> str | Kernel:
    """Return the argument of the `use_kernel` around, `auto` without one."""
    return _kernel.get()


def select_kernel(cell: RecurrentCell, like: Tensor) -> Kernel:
    """Return the kernel of `use_kernel`, or the fastest that computes this cell on this tensor's device and type.

    Raises ConfigError if the named kernel cannot compute the cell.
    """
    asked = requested()
    if asked == "auto":
        return next(kernel for kernel in KERNELS.values() if not refusal(kernel, cell, like))
    kernel = KERNELS[asked] if isinstance(asked, str) else asked
    if reason := refusal(kernel, cell, like):
        raise ConfigError(f"kernel={asked} cannot compute {type(cell).__name__}: {reason}. Choose kernel=auto")
    return kernel


def refusal(kernel: Kernel, cell: Any, like: Tensor) -> str:
    """Return the reason why a kernel does not compute a cell on a tensor's device and type; empty if it does."""
    if kernel.device is None:
        return kernel.unsupported_reason(cell, like)
    reason = uncompiled(cell, kernel.device) or _elsewhere(kernel.device, like) or kernel.unsupported_reason(cell, like)
    return reason or Trial.of(kernel, cell, like).failure()


def _compiled(cell: LSTMCell, like: Tensor) -> Kernel | str:
    """Return the fastest hand-written kernel that computes a cell on a tensor's device and type, or why none does."""
    able = (kernel for kernel in KERNELS.values() if kernel.device and not refusal(kernel, cell, like))
    return next(able, None) or _reasons((name for name, kernel in KERNELS.items() if kernel.device), cell, like)


def _elsewhere(device: str, like: Tensor) -> str:
    """Return the reason why a tensor is not where something is computed; empty if it is."""
    if device == "cuda":
        return "" if like.device.type == "cuda" and torch.version.cuda else "needs an NVIDIA GPU"
    return "" if like.device.type == device else f"it computes on a CPU, not on {like.device.type}"


def has_graphs(device: torch.device) -> bool:
    """Return True for a device with CUDA graphs."""
    return graphs.is_real(device)


def capture_on(device: torch.device) -> Capture | None:
    """Return the way to capture functions that are called again and again; None on a device without CUDA graphs, and
    for parts of what is captured as a whole.
    """
    return partial(graphs.captured, count=1) if has_graphs(device) and graphs.captures_parts() else None


def explain(cell: RecurrentCell, like: Tensor) -> str:
    """Return a line for the log of a run: the kernel that `select_kernel` returns here, and why no faster one.

    Only the tensor's device and type matter; it may be empty. Raises `ConfigError` where `select_kernel` does.
    """
    picked = select_kernel(cell, like)
    name = next(name for name, kernel in KERNELS.items() if kernel is picked)
    if requested() != "auto":
        return f"recurrences: {name} (as asked)"
    listed = _reasons(takewhile(lambda other: other != name, KERNELS), cell, like)
    return f"recurrences: {name} ({listed})" if listed else f"recurrences: {name}"


def available(cell: RecurrentCell) -> str:
    """Return the kernels that compute a cell where it is, fastest first, and why others cannot: `cpu, plain (triton:
    ...)`.
    """
    like = next(cell.parameters())
    able = [name for name, kernel in KERNELS.items() if not refusal(kernel, cell, like)]
    listed = _reasons((name for name in KERNELS if name not in able), cell, like)
    return ", ".join(able) + (f" (not {listed})" if listed else "")


def _reasons(names: Iterable[str], cell: RecurrentCell, like: Tensor) -> str:
    """Reasons why kernels cannot compute a cell: `triton, cpu: ...; ...`."""
    return _grouped({name: refusal(KERNELS[name], cell, like) for name in names})


def _grouped(reasons: dict[str, str]) -> str:
    """Reasons by name, those with the same one together."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        by_reason.setdefault(reason, []).append(name)
    return "; ".join(f"{', '.join(names)}: {reason}" for reason, names in by_reason.items())


Differences = Iterable[tuple[str, Tensor, Tensor]]
"""Results to compare: of what, of the implementation, and of the reference."""


class Compiled:
    """Something that C++ computes on a CPU, and torch's operations elsewhere.

    Args:
        name: of what is computed, for messages.
        trial: computes a small case both ways.
        tolerance: largest difference that rounding explains, as a share of the largest value of a tensor.
    """

    def __init__(self, name: str, trial: Callable[[], Differences], tolerance: float) -> None:
        self.name, self.trial, self.tolerance = name, trial, tolerance
        COMPILED[name] = self

    def refusal(self, like: Tensor) -> str:
        """Return the reason why C++ does not compute it on a tensor's device and type; empty if it does."""
        if reason := _elsewhere("cpu", like):
            return reason
        if like.dtype not in (torch.float32, torch.float64):
            return f"it does not compute {like.dtype}"
        return build.unavailable() or failure(self.name, f"{self.name}: cpu is not used", self.trial, self.tolerance)


COMPILED: dict[str, Compiled] = {}
"""All that the imported modules have compiled, by name."""


def compiled_here(like: Tensor) -> str:
    """List what C++ computes on a tensor's device and type, and why not the rest: `C++: dropout (not beams: ...)`."""
    reasons = {name: each.refusal(like) for name, each in COMPILED.items()}
    able = ", ".join(name for name, reason in reasons.items() if not reason)
    listed = _grouped({name: reason for name, reason in reasons.items() if reason})
    return f"C++: {able or 'nothing'}" + (f" (not {listed})" if listed else "")


_failures: dict[Hashable, str] = {}


def failure(
    key: Hashable,
    unused: str,
    trial: Callable[[], Differences],
    tolerance: float,
    rounded: Callable[[], Differences] = tuple,
) -> str:
    """Return the reason why an implementation fails its self-test, empty if it passes.

    The first call with a key runs the trial, and prints a failure after the words of `unused`. `rounded` are the same
    results of the reference in the types of the implementation, which are computed where one differs by more than the
    tolerance: it may be no more than what rounding does to that case.
    """
    if key not in _failures:
        _failures[key] = reason = _failure(trial, tolerance, rounded)
        if reason:
            progress.say(f"{unused}: it {reason}")
    return _failures[key]


def _failure(trial: Callable[[], Differences], tolerance: float, rounded: Callable[[], Differences]) -> str:
    found: dict[str, float] = {}
    try:
        # Whatever the caller has set: rounding is no error, and his random numbers stay as they are.
        with (
            torch.random.fork_rng(devices=[]),
            torch.inference_mode(False),
            torch.enable_grad(),
            torch.autocast("cpu", enabled=False),
        ):
            apart = _differences(trial)
            if any(not share <= tolerance for _, share in apart):
                usual = max((share for _, share in _differences(rounded)), default=0.0)
                tolerance = max(tolerance, min(TIMES_ROUNDING * usual, MOST))
            for name, share in apart:
                if not share <= tolerance:
                    found[name] = max(share, found.get(name, share))
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        first_line = str(error).strip().partition("\n")[0]
        return f"fails its self-test: {type(error).__name__}: {first_line}"
    wrong = ", ".join(f"{name} differs by {apart:.1g} of its size" for name, apart in found.items())
    return wrong and f"fails its self-test: {wrong}"


def _differences(trial: Callable[[], Differences]) -> list[tuple[str, float]]:
    torch.manual_seed(1)
    return [(name, difference(ours.detach(), right.detach())) for name, ours, right in trial()]


def difference(ours: Tensor, right: Tensor) -> float:
    """Return the largest difference as a share of the largest finite value; NaN where a result is."""
    ours, right = ours.double().cpu(), right.double().cpu()
    apart = (ours - right).abs().masked_fill(ours == right, 0.0)  # equal infinities too
    return float(apart.max() / right.abs().masked_fill(right.isinf(), 0.0).max().clamp(min=1e-300))


TOLERANCES = {torch.float64: 1e-6, torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""Largest difference of a layer by the type of a product's operands."""

TF32 = 1e-2
"""Largest difference where torch may compute fp32 products in TF32."""

TIMES_ROUNDING = 4
"""A kernel may be so many times as far from fp64 as the plain one in its types."""

MOST = 0.3
"""The largest difference, however far off the plain one is: beyond, a kernel could compute anything."""

INPUT_SIZE = 7
LENGTHS = (5, 2, 4)
BATCHES = {"cpu": (LENGTHS,), "cuda": (LENGTHS, 11 * LENGTHS)}
"""Lengths of the batches of a trial. From 33 rows on a GPU has other instructions for a product than for a few."""


class Trial(NamedTuple):
    """A kernel, and the layer of two directions and padded rows that it is to compute."""

    kernel: Kernel
    cell: type[LSTMCell]
    hidden_size: int
    cell_norm: str
    norm: str
    equation_options: tuple[tuple[str, str], ...]
    own: torch.dtype
    """Type of parameters and frames."""
    operand: torch.dtype
    """Type of the operands of products, which autocast may choose."""
    device: torch.device

    @classmethod
    def of(cls, kernel: Kernel, cell: LSTMCell, like: Tensor) -> "Trial":
        """Return the trial for a cell on a tensor's device, in the kernel's own case or in the types of both."""
        device, size = like.device, cell.hidden_size
        own = torch.promote_types(like.dtype, next(cell.parameters()).dtype)
        operand = torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else own
        if kernel.tried_as is not None:
            size, own = kernel.tried_as
            operand = own
        equations = type(cell), size, cell.cell_norm, str(norm_of(cell)), tuple(cell.equation_options.items())
        return cls(kernel, *equations, own, operand, device)

    def failure(self) -> str:
        """Return the reason why the kernel is not used, empty if it passes."""
        name = next((name for name, kernel in KERNELS.items() if kernel is self.kernel), type(self.kernel).__name__)
        unused = f"recurrences: {name} is not used with {self.operand} on {self.device}"
        return failure(self, unused, self.results, self.tolerance, self._replace(kernel=PLAIN).results)

    @property
    def tolerance(self) -> float:
        """The largest difference that rounding explains."""
        tf32 = self.device.type == "cuda" and torch.backends.cuda.matmul.allow_tf32
        return TF32 if tf32 and self.operand == torch.float32 else TOLERANCES[self.operand]

    def results(self) -> Differences:
        """Yield the outputs, states and gradients of the kernel, and of the plain equations in fp64 on the CPU."""
        for lengths in BATCHES.get(self.device.type, BATCHES["cpu"]):
            yield from self._results(torch.tensor(lengths))

    def _results(self, lengths: Tensor) -> Differences:
        """Return the results of one batch."""
        sizes = INPUT_SIZE, self.hidden_size
        options: dict[str, Any] = dict(cell_norm=self.cell_norm, norm=CLASSES[self.norm], forget_bias=1.0)
        options.update(self.equation_options)
        cells = [self.cell(*sizes, **options).double() for _ in range(2)]
        shape = len(lengths), int(lengths.max()), INPUT_SIZE
        frames = torch.linspace(-9, 9, math.prod(shape), dtype=torch.float64).sin().view(shape)
        right = _results(PLAIN, cells, frames.clone().requires_grad_(), lengths)
        there = [cell.to(self.device, self.own) for cell in cells]
        with torch.autocast(self.device.type, self.operand, enabled=self.operand != self.own):
            ours = _results(self.kernel, there, frames.to(self.device, self.own).requires_grad_(), lengths)
        return [(self.cell.__name__, mine, part) for mine, part in zip(ours, right, strict=True)]


def _results(kernel: Kernel, cells: Sequence[LSTMCell], frames: Tensor, lengths: Tensor) -> list[Tensor]:
    """Return the outputs, last states, and the gradients of the sum of their squares."""
    outputs, last = kernel.layer(cells, frames, lengths, [None, None])
    results = [outputs, *(part for state in last for part in state)]
    inputs = [frames, *(parameter for cell in cells for parameter in cell.parameters())]
    loss = torch.stack([part.double().square().sum() for part in results]).sum()
    return [part.detach() for part in (*results, *torch.autograd.grad(loss, inputs))]
