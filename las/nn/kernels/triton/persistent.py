"""The loops of `las.nn.kernels.triton.layer` in one launch each: U' stays in shared memory over all frames.

Programs own units (`persistent_forward`, `persistent_backward`), and exchange h and the sums of norms at every frame
(`exchange`). They wait for each other, so that no more of them are launched than run at the same time; what is left of
the directions and rows follows in launches of its own. Persistent recurrences: Diamos et al. 2016.

Importing this module needs Triton.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from triton import cdiv, next_power_of_2

from las.nn.cells.base import NUM_GATES
from las.nn.kernels.triton import loops, persistent_backward, persistent_forward
from las.nn.kernels.triton.loops import KINDS
from las.nn.kernels.triton.plan import NUM_STATISTICS, TritonEquations, TritonGradients, TritonTrace

OWN = 16
"""Units of a program: with four gates, the 64 rows of a product on a tensor core of compute capability 9.0."""

SIDES = (1, 2, 4, 8)
"""Tiles of U' in a row and in a column, backwards."""

SLACK = 12 * 1024
"""Bytes of shared memory that a program needs besides its tiles."""


class Device(NamedTuple):
    """What divides the work."""

    multiprocessors: int
    shared: int
    """Bytes of shared memory that a program can have."""

    @classmethod
    def of(cls, device: torch.device) -> "Device":
        if device.type != "cuda":
            return cls(132, 227 * 1024)  # an H100, for the interpreter
        found: Any = torch.cuda.get_device_properties(device)
        return cls(found.multi_processor_count, found.shared_memory_per_block_optin)


class Division(NamedTuple):
    """How programs divide a layer and a batch."""

    programs: int
    """Of a direction of a group of rows."""
    own: int
    """Units of a program."""
    rows: int
    """Of a group, rounded up."""
    groups: int
    together: int
    """The largest number of groups, of all directions, that run at the same time."""
    side: int = 0

    @classmethod
    def forward(cls, hidden_size: int, directions: int, batch: int, itemsize: int, device: Device) -> "Division | None":
        """Return the division of the forward pass; None if none fits on the device."""
        block = max(16, next_power_of_2(hidden_size))
        programs = cdiv(hidden_size, OWN)

        def tiles(rows: int) -> int:
            return (NUM_GATES * OWN + rows) * block * itemsize

        return cls._of(programs, OWN, directions, batch, tiles, device)

    @classmethod
    def backward(
        cls, hidden_size: int, directions: int, batch: int, itemsize: int, device: Device
    ) -> "Division | None":
        """Return the division of the backward pass; None if none fits on the device."""
        side = next((side for side in SIDES if side * side * OWN >= hidden_size), SIDES[-1])
        own = 2 * cdiv(hidden_size, 2 * side * side)  # two numbers in half precision are a word
        span = max(16, next_power_of_2(side * own))

        def tiles(rows: int) -> int:
            return NUM_GATES * span * (span + rows) * itemsize

        division = cls._of(side * side, own, directions, batch, tiles, device)
        return division and division._replace(side=side)

    @classmethod
    def _of(
        cls, programs: int, own: int, directions: int, batch: int, tiles: Callable[[int], int], device: Device
    ) -> "Division | None":
        together = device.multiprocessors // programs
        fitting = [rows for rows in (16, 32, 64) if tiles(rows) + SLACK <= device.shared]
        if not together or not fitting:
            return None
        at_once = (rows for rows in fitting if directions * cdiv(batch, rows) <= together)
        rows = next(at_once, fitting[-1])
        return cls(programs, own, rows, max(1, cdiv(batch, rows)), together)

    @property
    def slots(self) -> int:
        """Rows of all groups."""
        return self.rows * self.groups

    def launches(self, directions: int) -> Iterator[tuple[tuple[int, int, int], int, int]]:
        """Return the grids that run one after the other, with the first direction and the first group of each."""
        side_by_side = min(directions, self.together)
        groups = min(self.groups, self.together // side_by_side)
        for direction in range(0, directions, side_by_side):
            for group in range(0, self.groups, groups):
                yield (self.programs, side_by_side, min(groups, self.groups - group)), direction, group

    def words(self, like: Tensor, directions: int, parts: int = 1) -> Tensor:
        """Return the buffer of operands for two turns, `parts` numbers for each unit and row."""
        units = self.programs * self.own * like.element_size() // 4
        return like.new_zeros(2, directions, self.slots, parts * units, dtype=torch.int32)

    def sums(self, like: Tensor, directions: int) -> Tensor:
        """Return the buffer of sums for two turns, at most eight for each row."""
        return like.new_zeros(directions * self.groups, 2, self.programs, 8 * self.rows, dtype=torch.int32)


def divisions(hidden_size: int, directions: int, batch: int, itemsize: int, device: Device) -> list[Division | None]:
    """Return how both passes are divided."""
    given = hidden_size, directions, batch, itemsize, device
    return [Division.forward(*given), Division.backward(*given)]


def _options(recipe: TritonEquations, division: Division) -> dict[str, Any]:
    """Return the arguments that both kernels are compiled for."""
    plan = recipe.plan
    return {
        "H": recipe.hidden_size,
        "OWN": division.own,
        "UNITS": max(4, next_power_of_2(division.own)),
        "ROWS": division.rows,
        "PROGRAMS": division.programs,
        "PADDED": next_power_of_2(division.programs),
        "DIRECTIONS": recipe.directions,
        "NORM": plan.norm,
        "CELL_NORM": plan.cell_norm,
        "KIND": plan.kind,
        "OPERAND": KINDS[plan.operand],
        "OUTPUT": KINDS[plan.outputs],
        "PRECISION": plan.precision,
        "num_warps": 8,
        "num_stages": 1,  # nothing may be read before it is waited for
        "launch_cooperative_grid": True,
    }


def forward(
    recipe: TritonEquations, lengths: Tensor, first: Tensor, weight: Tensor, affine: Tensor, inputs: Sequence[Tensor]
) -> tuple[Tensor, Tensor, TritonTrace]:
    """Return what `loops.forward` does, which computes batches that take several launches: it is faster there."""
    plan, size, directions = recipe.plan, recipe.hidden_size, recipe.directions
    batch, frames, _ = inputs[0].shape
    lengths = lengths.int()
    division = Division.forward(size, directions, batch, plan.operand.itemsize, Device.of(recipe.device))
    if division is None or len([*division.launches(directions)]) > 1:
        return loops.forward(recipe, lengths, first, weight, affine, inputs)
    kept = frames if plan.keep else 0
    outputs = weight.new_zeros(batch, frames, directions * size, dtype=plan.outputs)
    trace = TritonTrace(
        weight.new_empty(directions, batch, kept, NUM_GATES * size, dtype=plan.operand),
        weight.new_zeros(directions, batch, kept, size, dtype=plan.operand),
        weight.new_zeros(directions, batch, frames, NUM_STATISTICS, dtype=torch.float32),
    )
    if plan.x_inside and plan.centres:
        for statistics, x in zip(trace.statistics, inputs, strict=True):
            statistics[..., :NUM_GATES] = x.unflatten(-1, (plan.groups, -1)).mean(-1, dtype=torch.float32)
    last = torch.empty_like(first)
    hidden = division.words(weight, directions)
    gap = (inputs[-1].data_ptr() - inputs[0].data_ptr()) // inputs[0].element_size()
    sums = division.sums(weight, directions)
    persistent_forward.forward[division.programs, directions, division.groups](
        *(inputs[0], gap, weight, affine, first, lengths, outputs, *trace, last, hidden, sums),
        *(frames, batch, division.slots),
        BLOCK=max(16, next_power_of_2(size)),
        EPS=plan.eps,
        KEEP=plan.keep,
        **_options(recipe, division),
    )
    return outputs, last, trace


def backward(
    recipe: TritonEquations,
    lengths: Tensor,
    first: Tensor,
    weight: Tensor,
    affine: Tensor,
    trace: TritonTrace,
    projected: Tensor,
    d_outputs: Tensor,
    d_last: Tensor,
) -> TritonGradients:
    """Return what `loops.backward` does, which computes layers that do not fit."""
    plan, size, directions = recipe.plan, recipe.hidden_size, recipe.directions
    batch, frames, _ = d_outputs.shape
    lengths = lengths.int()
    division = Division.backward(size, directions, batch, plan.operand.itemsize, Device.of(recipe.device))
    if division is None:
        return loops.backward(recipe, lengths, first, weight, affine, trace, projected, d_outputs, d_last)
    d_gates, d_projected, d_first = (torch.zeros_like(part) for part in (trace.gates, projected, first))
    d_normalised = torch.zeros_like(trace.cells[: 0 if plan.cell_norm == "none" else None])
    vectors = division.words(weight, directions, NUM_GATES)
    partial = weight.new_zeros(2, directions, division.side, division.slots, size, dtype=torch.int32)
    sums = division.sums(weight, directions)
    for grid, direction, group in division.launches(directions):
        persistent_backward.backward[grid](
            *(d_outputs, weight, affine, first, lengths, d_last.contiguous(), *trace, projected),
            *(d_gates, d_projected, d_normalised, d_first, vectors, partial, sums),
            *(frames, batch, division.slots, direction, group),
            SIDE=division.side,
            SPAN=max(16, next_power_of_2(division.side * division.own)),
            **_options(recipe, division),
        )
    return TritonGradients(d_gates, d_projected, d_normalised, d_first)
