"""Cells, gates and states to put into the hand-written kernels of `choice.KERNELS`, and what comes out of them."""

import copy
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import pytest
import torch
from parameters import moved
from torch import Tensor

from las.nn.cells.base import CELL_NORMS, LSTMCell, LSTMState
from las.nn.cells.ln_global import LNGlobalLSTMCell
from las.nn.cells.ln_joined import LNJoinedLSTMCell
from las.nn.cells.ln_one_projection import LNOneProjectionLSTMCell
from las.nn.cells.ln_per_gate import LNPerGateLSTMCell
from las.nn.cells.ln_selected_gates import LNSelectedGatesLSTMCell
from las.nn.cells.lstm import PlainLSTMCell
from las.nn.kernels import choice
from las.nn.kernels.base import Kernel
from las.nn.kernels.cpp import build as cpp_build

INPUT = 3
CELLS: dict[str, Callable[..., LSTMCell]] = {
    "lstm": PlainLSTMCell,
    "ln_global_all": partial(LNGlobalLSTMCell, biases="all"),
    "ln_global_input": partial(LNGlobalLSTMCell, biases="input"),
    "ln_joined": LNJoinedLSTMCell,
    "ln_per_gate": LNPerGateLSTMCell,
    "ln_input_projection": partial(LNOneProjectionLSTMCell, normalised="input"),
    "ln_recurrent_projection": partial(LNOneProjectionLSTMCell, normalised="recurrent"),
    "ln_gates_f_o": partial(LNSelectedGatesLSTMCell, gates="fo"),
}


def compiler() -> str:
    try:
        return cpp_build.find_compiler()
    except cpp_build.Unavailable:
        return ""


compiles = pytest.mark.skipif(not compiler(), reason="there is no C++ compiler")
IN_HALF_PRECISION = "persistent"
"""The kernel that `test_persistent` tests, as it computes nothing else."""
EXACT = [name for name, each in choice.KERNELS.items() if each.device and name != IN_HALF_PRECISION]
every_kernel = pytest.mark.parametrize("kernel", EXACT)
every_cell = pytest.mark.parametrize("name", CELLS)
every_cell_norm = pytest.mark.parametrize("cell_norm", CELL_NORMS)


class Place(NamedTuple):
    """A kernel where it computes."""

    kernel: Kernel
    device: str
    widest: torch.dtype


@cache
def _find(kernel: str) -> Place | str:
    found, cell, reason = choice.KERNELS[kernel], PlainLSTMCell(1, 1), ""
    for device in ("cuda", "cpu") if torch.cuda.is_available() else ("cpu",):
        for dtype in (torch.float64, torch.float32):
            reason = choice.refusal(found, cell.to(device, dtype), torch.empty(0, device=device, dtype=dtype))
            if not reason:
                return Place(found, device, dtype)
    return reason


def place(kernel: str, *dtypes: torch.dtype) -> Place:
    """Where a kernel computes on this machine. The test is skipped where nothing could: without a GPU or compiler."""
    if not (torch.cuda.is_available() if kernel == "triton" else compiler()):
        pytest.skip(f"{kernel}: there is no GPU or no compiler")
    found = _find(kernel)
    assert not isinstance(found, str), found
    for dtype in dtypes:
        cell = PlainLSTMCell(1, 1).to(found.device, dtype)
        assert choice.refusal(found.kernel, cell, torch.empty(0, device=found.device, dtype=dtype)) == ""
    return found


class Case(NamedTuple):
    """Arguments of `unroll`, for the first cell, and of `unroll_both`."""

    cells: list[LSTMCell]
    gates: list[Tensor]
    """[batch, frames, 4H], one for each cell."""
    lengths: Tensor
    state: LSTMState | None

    def to(self, *where: Any) -> "Case":
        """A copy in another type or on another device."""
        cells = [copy.deepcopy(cell).to(*where) for cell in self.cells]
        gates = [part.detach().to(*where).requires_grad_() for part in self.gates]
        state = self.state and LSTMState(*(part.detach().to(*where).requires_grad_() for part in self.state))
        return Case(cells, gates, self.lengths.to(gates[0].device), state)

    def with_gates(self, change: Callable[[Tensor], Tensor]) -> "Case":
        """The same cells and lengths with other gates, made of these."""
        return self._replace(gates=[change(part.detach()).clone().requires_grad_() for part in self.gates])


def make(
    name: str,
    lengths: list[int],
    *,
    frames: int,
    hidden: int = 5,
    starts: bool = True,
    seed: int = 1,
    directions: int = 2,
    **options: Any,
) -> Case:
    """In float64, every parameter moved away from where it starts; `options` are the cells'."""
    torch.manual_seed(seed)
    cells = [CELLS[name](INPUT, hidden, **options).double() for _ in range(directions)]
    for cell in cells:
        moved(cell, 0.4)
    gates = torch.randn(directions, len(lengths), frames, 4 * hidden, dtype=torch.float64)
    state = torch.randn(2, len(lengths), hidden, dtype=torch.float64)
    case = Case(cells, [*gates], torch.tensor(lengths, dtype=torch.long), LSTMState(*state) if starts else None)
    return case.to(torch.float64)


def unrolled(
    kernel: Any, cell: LSTMCell, gates: Tensor, lengths: Tensor, state: LSTMState | None = None
) -> tuple[Tensor, LSTMState]:
    """One cell by a kernel."""
    outputs, (last,) = kernel.recurrence([cell], [gates], lengths, [state])
    return outputs, last


def unroll_both(kernel: Any, cells: list[LSTMCell], gates: list[Tensor], lengths: Tensor) -> Tensor:
    """Outputs of two cells in opposite directions by a kernel."""
    return kernel.recurrence(cells, gates, lengths, [None, None])[0]


def layer_both(kernel: Any, cells: list[LSTMCell], frames: Tensor, lengths: Tensor) -> Tensor:
    """Outputs of two cells in opposite directions by a kernel, from the frames themselves."""
    return kernel.layer(cells, frames, lengths, [None, None])[0]


def one(kernel: Kernel, case: Case) -> list[Tensor]:
    outputs, last = unrolled(kernel, case.cells[0], case.gates[0], case.lengths, case.state)
    return [outputs, *last]


def both(kernel: Kernel, case: Case) -> list[Tensor]:
    return [unroll_both(kernel, case.cells, case.gates, case.lengths)]


def pairs(kernel: Kernel, case: Case) -> list[Tensor]:
    """Layers of two directions each, one after the other."""
    layers = [slice(number, number + 2) for number in range(0, len(case.cells), 2)]
    found = [unroll_both(kernel, case.cells[each], case.gates[each], case.lengths) for each in layers]
    return [torch.cat(found, dim=-1)]


def at_once(kernel: Kernel, case: Case) -> list[Tensor]:
    """The same layers in one call, as models of several seeds have them."""
    return [kernel.recurrence(case.cells, case.gates, case.lengths, [None] * len(case.cells))[0]]


def layer(kernel: Kernel, case: Case) -> list[Tensor]:
    """Both directions from frames, which are the first values of the gates."""
    outputs, last = kernel.layer(case.cells, case.gates[0][..., :INPUT], case.lengths, [case.state, None])
    return [outputs, *(part for state in last for part in state)]


Form = Callable[[Kernel, Case], list[Tensor]]
FORMS: list[Form] = [one, both, layer]
every_form = pytest.mark.parametrize("form", FORMS)


def arriving(found: Tensor, number: int) -> Tensor:
    """A gradient of the form's result [batch, ...] of this number: different everywhere, whatever padding follows."""
    axes = [torch.arange(size, device=found.device, dtype=torch.float64) for size in found.shape]
    grid = torch.meshgrid(axes, indexing="ij")
    phases = [factor * axis for factor, axis in zip((0.7, 1.9, 2.3), grid, strict=False)]
    return sum(phases, start=torch.tensor(float(number))).cos().to(found)


class Results(NamedTuple):
    """What a form gives, then the gradients of what it was given."""

    values: list[Tensor]
    gates: list[Tensor]
    state: list[Tensor]
    parameters: list[Tensor]

    def all(self) -> list[Tensor]:
        return [*self.values, *self.gates, *self.state, *self.parameters]


def results(form: Form, kernel: Kernel, case: Case) -> Results:
    """With the gradients of `arriving`."""
    values = form(kernel, case)
    given = case.gates, [*(case.state or ())], [parameter for cell in case.cells for parameter in cell.parameters()]
    wanted = [part for parts in given for part in parts]
    pairs = [(value, arriving(value, number)) for number, value in enumerate(values) if value.requires_grad]
    grads = [torch.zeros_like(part) for part in wanted]  # without a frame there may be nothing to differentiate
    if pairs:
        found, weights = zip(*pairs, strict=True)
        grads = [*torch.autograd.grad(found, wanted, weights, allow_unused=True, materialize_grads=True)]
    left = iter(grads)
    return Results([value.detach() for value in values], *([next(left) for _ in parts] for parts in given))


def furthest(actual: list[Tensor], expected: list[Tensor]) -> float:
    """The largest difference, relative to the largest value of each tensor where that is more than 1."""
    worst = 0.0
    for ours, theirs in zip(actual, expected, strict=True):
        assert ours.shape == theirs.shape and bool(ours.isfinite().all())
        if ours.numel():
            ours, theirs = ours.detach().double().cpu(), theirs.detach().double().cpu()
            worst = max(worst, float((ours - theirs).abs().max() / theirs.abs().max().clamp(min=1)))
    return worst


def equal(actual: list[Tensor], expected: list[Tensor]) -> bool:
    """Bit by bit."""
    return all(map(torch.equal, actual, expected))


def padding_of(lengths: Tensor, frames: int) -> Tensor:
    """True where there is padding, [batch, frames, 1]."""
    return (torch.arange(frames, device=lengths.device) >= lengths.unsqueeze(1)).unsqueeze(-1)


def on_gpu(name: str, hidden: int, dtype: torch.dtype, lengths: list[int], **options: Any) -> tuple[Case, Case]:
    """Two cells of any size with input gates, made on the CPU; and the same on the GPU in another type."""
    torch.manual_seed(5)
    cells = [CELLS[name](INPUT, hidden, **options).double() for _ in range(2)]
    gates = [torch.randn(len(lengths), max(lengths), 4 * hidden, dtype=torch.float64).requires_grad_() for _ in cells]
    exact = Case(cells, gates, torch.tensor(lengths), None)
    return exact, exact.to("cuda", dtype)


def assert_no_further_off(
    ours: list[Tensor], plain: list[Tensor], exact: list[Tensor], dtype: torch.dtype, factor: float = 4.0
) -> None:
    """Than the plain recurrence in the same type, but for a factor and a few roundings."""
    for mine, other, true in zip(ours, plain, exact, strict=True):
        assert mine.dtype == dtype
        distance, allowed = ((part.double().cpu() - true).abs().max() for part in (mine, other))
        assert distance <= factor * allowed + 4 * torch.finfo(dtype).eps * true.abs().max()
