"""The loops of `las.nn.kernels.triton.layer` in one launch each: U' stays in shared memory over all frames.

Programs own units (`persistent_forward`, `persistent_backward`), and exchange h and the sums of norms at every frame
(`exchange`). They wait for each other, so that no more of them are launched than run at the same time; what is left of
the directions and rows follows in launches of its own. Persistent recurrences: Diamos et al. 2016.

Importing this module needs Triton.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from las.nn.cells.base import NUM_GATES
from las.nn.kernels.triton import loops, persistent_backward, persistent_forward
from las.nn.kernels.triton.division import Device, Division, power_of_2
from las.nn.kernels.triton.loops import KINDS
from las.nn.kernels.triton.plan import NUM_STATISTICS, TritonEquations, TritonGradients, TritonTrace

NARROW = 512
"""The largest H at which the threads of half as many warps are the faster ones."""


def _options(recipe: TritonEquations, division: Division) -> dict[str, Any]:
    """Return the arguments that both kernels are compiled for."""
    plan = recipe.plan
    return {
        "H": recipe.hidden_size,
        "OWN": division.own,
        "UNITS": max(4, power_of_2(division.own)),
        "ROWS": division.rows,
        "PROGRAMS": division.programs,
        "PADDED": power_of_2(division.programs),
        "DIRECTIONS": recipe.directions,
        "NORM": plan.norm,
        "CELL_NORM": plan.cell_norm,
        "KIND": plan.kind,
        "OPERAND": KINDS[plan.operand],
        "OUTPUT": KINDS[plan.outputs],
        "PRECISION": plan.precision,
        "num_warps": 4 if recipe.hidden_size <= NARROW else 8,
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
        weight.new_empty(directions, batch, kept, NUM_GATES * size, dtype=plan.kept),
        weight.new_zeros(directions, batch, kept, size, dtype=plan.kept),
        weight.new_zeros(directions, batch, frames, NUM_STATISTICS, dtype=torch.float32),
    )
    if plan.x_inside and plan.centres:
        for statistics, x in zip(trace.statistics, inputs, strict=True):
            statistics[..., :NUM_GATES] = x.unflatten(-1, (plan.groups, -1)).mean(-1, dtype=torch.float32)
    last = torch.empty_like(first)
    hidden = division.words(weight, directions)
    if directions > 2:
        inputs = torch.stack([*inputs]).unbind()
    gap = (inputs[min(1, directions - 1)].data_ptr() - inputs[0].data_ptr()) // inputs[0].element_size()
    sums = division.sums(weight, directions)
    persistent_forward.forward[division.programs, directions, division.groups](
        *(inputs[0], gap, weight, affine, first, lengths, outputs, *trace, last, hidden, sums),
        *(frames, batch, division.slots),
        BLOCK=division.block,
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
    d_gates = torch.zeros_like(trace.gates, dtype=plan.operand)
    d_projected, d_first = torch.zeros_like(projected), torch.zeros_like(first)
    d_normalised = torch.zeros_like(trace.cells[: 0 if plan.cell_norm == "none" else None], dtype=plan.operand)
    vectors = division.words(weight, directions, NUM_GATES)
    partial = weight.new_zeros(2, directions, division.side, division.slots, size, dtype=torch.int32)
    sums = division.sums(weight, directions)
    for grid, direction, group in division.launches(directions):
        persistent_backward.backward[grid](
            *(d_outputs, weight, affine, first, lengths, d_last.contiguous(), *trace, projected),
            *(d_gates, d_projected, d_normalised, d_first, vectors, partial, sums),
            *(frames, batch, division.slots, direction, group),
            SIDE=division.side,
            SPAN=division.block,
            **_options(recipe, division),
        )
    return TritonGradients(d_gates, d_projected, d_normalised, d_first)
