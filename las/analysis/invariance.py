"""Invariances of normalisation methods (Ba et al. 2016, table 1), measured.

The normalised values of a = W x, without gain and bias, are compared before and after a change of weights or data.

In float64 with eps = 0. All factors are positive: a negative one changes the sign of the normalised values.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import torch
from rich.table import Table
from torch import Tensor
from torch.nn import functional

from las.nn.cells.base import LSTMCell, LSTMState
from las.nn.cells.ln_global import LNGlobalLSTMCell
from las.nn.cells.ln_joined import LNJoinedLSTMCell
from las.nn.cells.ln_per_gate import LNPerGateLSTMCell
from las.nn.cells.lstm import PlainLSTMCell
from las.nn.cells.weight_norm import weight_norm
from las.nn.kernels.base import unroll
from las.nn.normalisation import layer_norm, moment_norm, moments

SAME, MOVES = 1e-9, 1e-2
"""The largest relative difference that counts as invariant, and the smallest that counts as a change."""
CASES, UNITS, INPUTS, FRAMES = 7, 5, 6, 4

Map = Callable[[Tensor], Tensor]


class Change(NamedTuple):
    """A change of W [units, inputs] and of x [cases, inputs]."""

    name: str
    weight: Map
    data: Map


OF_UNITS = torch.linspace(0.3, 2.5, UNITS, dtype=torch.float64).unsqueeze(1)
OF_INPUTS = torch.linspace(-1.0, 2.0, INPUTS, dtype=torch.float64)
OF_CASES = torch.linspace(0.4, 3.0, CASES, dtype=torch.float64).unsqueeze(1)


def same(values: Tensor) -> Tensor:
    """Return the values unchanged: no change."""
    return values


CHANGES = (
    Change("weight matrix re-scaled", lambda w: 3 * w, same),
    Change("weight matrix re-centred", lambda w: w + OF_INPUTS, same),
    Change("weight vectors re-scaled", lambda w: OF_UNITS * w, same),
    Change("data set re-scaled", same, lambda x: 3 * x),
    Change("data set re-centred", same, lambda x: x + OF_INPUTS),
    Change("single cases re-scaled", same, lambda x: OF_CASES * x),
)
"""Changes of W and x, in the order of the paper's table; one vector is added to every row of W, or to every x."""


def batch_normalised(weight: Tensor, data: Tensor) -> Tensor:
    """Batch normalisation, BN(W x) with the statistics of the cases."""
    summed = functional.linear(data, weight)
    all_cases = torch.ones(len(data), dtype=torch.bool)
    return moment_norm(summed, moments(summed, all_cases, (0,))[0], torch.ones(UNITS, dtype=data.dtype), None, 0.0)


def weight_normalised(weight: Tensor, data: Tensor) -> Tensor:
    """Weight normalisation, (w / ‖w‖) x for each row w."""
    return functional.linear(data, weight_norm(weight, torch.ones(UNITS, dtype=data.dtype)))


def layer_normalised(weight: Tensor, data: Tensor) -> Tensor:
    """Layer normalisation, LN(W x)."""
    return layer_norm(functional.linear(data, weight), torch.ones(UNITS, dtype=data.dtype), None, 0.0)


NORMS = {"batch norm": batch_normalised, "weight norm": weight_normalised, "layer norm": layer_normalised}


TABLE_1 = {
    "batch norm": ("yes", "no", "yes", "yes", "yes", "no"),
    "weight norm": ("yes", "no", "yes", "no", "no", "no"),
    "layer norm": ("yes", "yes", "no", "yes", "no", "yes"),
}
"""Ba et al. 2016, table 1, in its order. (Their text says that weight norm does not notice re-scaled data: the table is
right.)"""


def difference(values: Tensor, changed: Tensor) -> float:
    """Return the largest difference relative to the largest value."""
    return float((values - changed).abs().max() / values.abs().max())


def verdict(change: float) -> str:
    """Return the invariance in a word: `yes`, `no`, or `unclear` for a difference between the two bounds."""
    return "yes" if change < SAME else "no" if change > MOVES else f"unclear ({change:.0e})"


def of_norms(seed: int = 1) -> dict[str, dict[str, float]]:
    """Return the difference that each change makes to each norm, by norm and change."""
    generator = torch.Generator().manual_seed(seed)
    weight, data = (torch.randn(size, INPUTS, generator=generator, dtype=torch.float64) for size in (UNITS, CASES))
    return {
        norm: {
            change.name: difference(normalise(weight, data), normalise(change.weight(weight), change.data(data)))
            for change in CHANGES
        }
        for norm, normalise in NORMS.items()
    }


def departures(seed: int = 1) -> list[str]:
    """Return entries of the paper's table 1 that are measured otherwise, as `layer norm, data set re-centred: yes`."""
    return [
        f"{norm}, {change}: {verdict(moved)}"
        for norm, changes in of_norms(seed).items()
        for (change, moved), expected in zip(changes.items(), TABLE_1[norm], strict=True)
        if verdict(moved) != expected
    ]


class CellChange(NamedTuple):
    """A change of W [4H, inputs], of U [4H, H] and of the frames [cases, frames, inputs]."""

    name: str
    input: Map
    recurrent: Map
    frames: Map = same


def _forget_rows(weight: Tensor) -> Tensor:
    """W with the rows of the forget gate three times as long."""
    i, f, g, o = weight.chunk(4)
    return torch.cat([i, 3 * f, g, o])


def _frame_by_frame(frames: Tensor) -> Tensor:
    return frames * torch.linspace(0.4, 3.0, FRAMES, dtype=frames.dtype).view(1, FRAMES, 1)


def _centred(weight: Tensor) -> Tensor:
    return weight + torch.linspace(-1.0, 2.0, weight.shape[1], dtype=weight.dtype)


CELLS: dict[str, type[LSTMCell]] = {
    "lstm": PlainLSTMCell,
    "ln_global": LNGlobalLSTMCell,
    "ln_joined": LNJoinedLSTMCell,
    "ln_per_gate": LNPerGateLSTMCell,
}
CELL_CHANGES = (
    CellChange("W re-scaled", lambda w: 3 * w, same),
    CellChange("U re-scaled", same, lambda u: 3 * u),
    CellChange("W and U re-scaled", lambda w: 3 * w, lambda u: 3 * u),
    CellChange("forget rows of both re-scaled", _forget_rows, _forget_rows),
    CellChange("W re-centred", _centred, same),
    CellChange("U re-centred", same, _centred),
    CellChange("all frames re-scaled", same, same, lambda x: 3 * x),
    CellChange("single frames re-scaled", same, same, _frame_by_frame),
)


def of_cells(seed: int = 1) -> dict[str, dict[str, float]]:
    """Return the difference that each change makes to outputs of each cell over a few frames, by cell and change."""
    return {name: {change.name: _moved(cell, change, seed) for change in CELL_CHANGES} for name, cell in CELLS.items()}


@torch.no_grad()
def _moved(kind: type[LSTMCell], change: CellChange, seed: int) -> float:
    """Return the difference that a change makes to the outputs of a cell.

    The initial state is not zero, so that U matters from the first frame on.
    """
    generator = torch.Generator().manual_seed(seed)
    draw = functools.partial(torch.randn, generator=generator, dtype=torch.float64)
    cell, frames = kind(INPUTS, UNITS, eps=0.0).double(), draw(CASES, FRAMES, INPUTS)
    weights = cell.get_parameter("input_weight"), cell.get_parameter("recurrent_weight")
    for weight in weights:
        weight.copy_(draw(weight.shape))
    state, lengths = LSTMState(draw(CASES, UNITS), draw(CASES, UNITS)), torch.full((CASES,), FRAMES)
    original_outputs, _ = unroll(cell, cell.input_gates(frames), lengths, state)
    for weight, changed in zip(weights, (change.input, change.recurrent), strict=True):
        weight.copy_(changed(weight))
    changed_outputs, _ = unroll(cell, cell.input_gates(change.frames(frames)), lengths, state)
    return difference(original_outputs, changed_outputs)


def table(results: dict[str, dict[str, float]], title: str) -> Table:
    """Return a table of invariances: one row for each change, one column for each norm or cell."""
    table = Table("the same after", *results, title=title)
    for change in next(iter(results.values())):
        table.add_row(change, *(verdict(changes[change]) for changes in results.values()))
    return table
