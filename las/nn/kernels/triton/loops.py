"""The loops over frames of `las.nn.kernels.triton.layer`: small tensors at fixed addresses, and the launches of a step.

Importing this module needs Triton.
"""

from collections.abc import Sequence
from threading import Lock
from typing import Any, TypeVar

import torch
import triton.language as tl
from torch import Tensor
from triton import cdiv, next_power_of_2

from las.nn.cells.base import NUM_GATES
from las.nn.kernels.graphs import capture
from las.nn.kernels.triton.plan import NUM_STATISTICS, TritonEquations, TritonGradients, TritonTrace
from las.nn.kernels.triton.steps import backward_row, forward_row, norm_sums, product

L = TypeVar("L", bound="TritonLoop")

KINDS = {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}

PARTS_OF_SUMS = 32
"""The most programs that share a sum over all frames before their results are added."""

PROGRAMS = 128
"""Number of programs of a product if its size allows: about one for each multiprocessor of an H100 or H200."""

ROW_REGISTERS, PRODUCT_REGISTERS = 128, 192
"""The most registers of a thread. Left to itself, the assembler spills some to run more programs side by side. With
these, a multiprocessor has room for one row of 16 warps, or for two tiles of a product in fp32."""


class TritonLoop:
    """Base class of both loops. A step has no effect on a row whose clock is at its end, as all are at first."""

    parts: int
    """Parts of the product: 1 forwards (U' h); 4 backwards (w U', one part for each gate)."""

    def __init__(self, recipe: TritonEquations) -> None:
        self.recipe, self.lock = recipe, Lock()
        slots, size, inner = (recipe.directions, recipe.rows), recipe.hidden_size, self.parts * recipe.hidden_size
        outer = NUM_GATES * size // self.parts
        with torch.inference_mode(False):  # these tensors outlive it
            self.table = torch.zeros(10 + recipe.directions, dtype=torch.int64, device=recipe.device)
            self.clock = torch.zeros(slots, dtype=torch.int32, device=recipe.device)
            self.lengths = torch.zeros(recipe.rows, dtype=torch.int32, device=recipe.device)
            self.affine = torch.zeros(recipe.directions, 10 * size, device=recipe.device)
            self.weight = torch.zeros(recipe.directions, outer, inner, dtype=recipe.plan.operand, device=recipe.device)
            self.operand = torch.zeros(*slots, inner, dtype=recipe.plan.operand, device=recipe.device)
            self.products = torch.zeros(self.parts, *slots, outer, device=recipe.device)
            self.memory = torch.zeros(2, *slots, size, device=recipe.device)
        block = next_power_of_2(size)
        self.row_options = {
            "H": size,
            "BLOCK": block,
            "DIRECTIONS": recipe.directions,
            "NORM": recipe.plan.norm,
            "CELL_NORM": recipe.plan.cell_norm,
            "KIND": recipe.plan.kind,
            "OUTPUT": KINDS[recipe.plan.outputs],
            "OPERAND": KINDS[recipe.plan.operand],
            "num_warps": min(16, max(1, block // 128)),
            "maxnreg": ROW_REGISTERS,
        }
        per_tile = next_power_of_2(cdiv(recipe.directions * self.parts * outer, PROGRAMS))
        self.product_options = {
            "TILE_ROWS": min(64, recipe.rows),
            "TILE_N": min(64, max(16, per_tile)),
            # 128 columns of two bytes or 64 of four: four stages of them fit into shared memory.
            "TILE_K": min(256 // recipe.plan.operand.itemsize, max(16, block)),
            "PRECISION": recipe.plan.precision,
            "num_warps": 4,
            "num_stages": 4,
            "maxnreg": PRODUCT_REGISTERS,
        }

    def multiply(self) -> None:
        """P1 or P1': from `operand` and `weight` to `products`."""
        (directions, outer, _), rows, options = self.weight.shape, self.recipe.rows, self.product_options
        grid = cdiv(outer, options["TILE_N"]), rows // options["TILE_ROWS"], directions * self.parts
        buffers = self.products, self.operand, self.weight
        product[grid](*buffers, rows, outer, K=self.recipe.hidden_size, PARTS=self.parts, **options)

    def prepare(self, lengths: Tensor, affine: Tensor, sizes: tuple[int, int], buffers: Sequence[Tensor]) -> None:
        """Copy the arguments of a call: `sizes` are frames and batch, `buffers` follow them in the table.

        The kernels know of a buffer its address alone, so it has to be dense, and where they run.
        """
        if not all(buffer.is_contiguous() and buffer.device == self.table.device for buffer in buffers):
            raise TypeError(f"a buffer has gaps between its elements, or is not on {self.table.device}")
        self.lengths.zero_()[: len(lengths)] = lengths
        self.affine.copy_(affine)
        entries = [*sizes, *(buffer.data_ptr() for buffer in buffers)]
        if capture.is_recording(self.recipe.device):  # a graph would read the host's memory again
            for place, entry in enumerate(entries):
                self.table[place].fill_(entry)
        else:
            self.table[: len(entries)].copy_(torch.tensor(entries), non_blocking=True)


class Forward(TritonLoop):
    """P1 and P2 from the first frame to the last. `memory` holds h and c."""

    parts = 1

    def __init__(self, recipe: TritonEquations) -> None:
        super().__init__(recipe)
        self.repeat = capture.RepeatedStep(self.step, recipe.device)

    def step(self) -> None:
        recipe = self.recipe
        self.multiply()
        forward_row[(recipe.rows, recipe.directions)](
            *(self.table, self.clock, self.lengths, self.affine, self.products, self.operand, self.memory, recipe.rows),
            EPS=recipe.plan.eps,
            INPUT=KINDS[recipe.inputs],
            KEEP=recipe.plan.keep,
            **self.row_options,
        )

    def run(
        self, lengths: Tensor, first: Tensor, weight: Tensor, affine: Tensor, inputs: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor, TritonTrace]:
        """Return the outputs [batch, frames, directions * H], the last state as `first`, and the trace (empty without
        `keep`).
        """
        recipe, (batch, frames, _) = self.recipe, inputs[0].shape
        size, trace_shape = recipe.hidden_size, (recipe.directions, batch, frames if recipe.plan.keep else 0)
        outputs = weight.new_zeros(batch, frames, recipe.directions * size, dtype=recipe.plan.outputs)
        trace = TritonTrace(
            weight.new_empty(*trace_shape, NUM_GATES * size, dtype=recipe.plan.kept),
            weight.new_zeros(*trace_shape, size, dtype=recipe.plan.kept),
            weight.new_zeros(*trace_shape, NUM_STATISTICS, dtype=torch.float32),
        )
        with self.lock:
            self.prepare(lengths, affine, (frames, batch), [*trace, outputs, *inputs])
            self.weight.copy_(weight)
            self.clock.zero_()
            self.memory[:, :, :batch] = first
            self.operand[:, :batch] = first[0]
            self.repeat(frames)
            return outputs, self.memory[:, :, :batch].clone(), trace


class Backward(TritonLoop):
    """P2' and P1' from each row's last frame to its first. `memory` holds c before the first frame, and dc."""

    parts = NUM_GATES

    def __init__(self, recipe: TritonEquations) -> None:
        super().__init__(recipe)
        with torch.inference_mode(False):
            self.scales = torch.ones(recipe.directions, recipe.rows, NUM_GATES, device=recipe.device)
        self.clock.fill_(-1)
        self.repeat = capture.RepeatedStep(self.step, recipe.device)

    def step(self) -> None:
        recipe, (first_cell, d_cell) = self.recipe, self.memory
        backward_row[(recipe.rows, recipe.directions)](
            *(self.table, self.clock, self.lengths, self.affine, self.products, self.scales, self.operand),
            *(first_cell, d_cell, recipe.rows),
            **self.row_options,
        )
        self.multiply()

    def run(
        self,
        lengths: Tensor,
        first: Tensor,
        weight: Tensor,
        affine: Tensor,
        trace: TritonTrace,
        projected: Tensor,
        d_outputs: Tensor,
        d_last: Tensor,
    ) -> TritonGradients:
        """`projected` is z, `d_last` belongs to the last state; [2, directions, batch, H] as that and `first`."""
        batch, frames, _ = d_outputs.shape
        d_gates = torch.zeros_like(trace.gates, dtype=self.recipe.plan.operand)
        d_projected = torch.zeros_like(projected)
        d_normalised = torch.zeros_like(
            trace.cells[: 0 if self.recipe.plan.cell_norm == "none" else None], dtype=self.recipe.plan.operand
        )
        with self.lock:
            buffers = [*trace, d_outputs, projected, d_gates, d_projected, d_normalised]
            self.prepare(lengths, affine, (frames, batch), buffers)
            self.weight.copy_(weight.transpose(1, 2))
            self.clock.copy_(self.lengths - 1)
            self.memory[0, :, :batch], self.memory[1, :, :batch] = first[1], d_last[1]
            self.products.zero_()[0, :, :batch] = d_last[0]
            self.scales.fill_(1.0)
            self.repeat(frames)
            d_hidden = torch.einsum("kdrh,drk->drh", self.products, self.scales)[:, :batch]
            # A row without frames was never stepped back to: its products are not its own.
            d_hidden = torch.where((lengths > 0).view(-1, 1), d_hidden, d_last[0])
            return TritonGradients(
                d_gates, d_projected, d_normalised, torch.stack([d_hidden, self.memory[1, :, :batch]])
            )


def forward(
    recipe: TritonEquations, lengths: Tensor, first: Tensor, weight: Tensor, affine: Tensor, inputs: Sequence[Tensor]
) -> tuple[Tensor, Tensor, TritonTrace]:
    """Return the outputs, the last state and the trace of all frames."""
    return _loop(Forward, recipe).run(lengths, first, weight, affine, inputs)


def backward(recipe: TritonEquations, *given: Any) -> TritonGradients:
    """Return the gradients of all frames; arguments are those of `Backward.run`."""
    return _loop(Backward, recipe).run(*given)


def _loop(kind: type[L], recipe: TritonEquations) -> L:
    """Return a loop that is kept for later passes; within a graph a new one, whose tensors are the graph's."""
    if capture.is_recording(recipe.device):
        return kind(recipe)
    return capture.cached((kind, recipe), lambda: kind(recipe))


def sums(grads: Tensor, values: Tensor, statistics: Tensor, groups: int, scale: int, kind: str) -> Tensor:
    """Gradients [2, size] of gain and bias of the norms of a row, from those of their results, [batch, frames, size].

    `values` are the centred arguments of `groups` norms in a row; `scale` is the index of their first scale.
    """
    rows, size = statistics.shape[:2].numel(), values.shape[-1]
    parts = max(1, min(PARTS_OF_SUMS, cdiv(rows, 32)))
    partial = statistics.new_empty(parts, 2, size)
    norm_sums[(cdiv(size, 64), parts)](
        *(partial, grads, values, statistics, rows),
        N=size,
        GROUP=size // groups,
        SCALE=scale,
        KIND=kind,
        TILE_ROWS=32,
        TILE_N=64,
    )
    return partial.sum(0)
