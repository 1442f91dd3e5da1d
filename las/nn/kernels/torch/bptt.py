"""The loops over frames, forwards and backwards, and the tensors that go between them.

With G the gate pre-activations, z the values that are normalised (U h_{t-1} or W x + U h_{t-1}) and s the memory the
output sees, the backward pass is, without a norm of the memory,

    dh_t = dy_t + U^T dz_{t+1}
    dc_t = f_{t+1} dc_{t+1} + o (1 - tanh(s)^2) dh_t
    dG_t = dc g i(1-i), dc c_{t-1} f(1-f), dc i (1-g^2), dh tanh(s) o(1-o)
    dz_t = r (y - mean(y) - n mean(y n))    with y = gain dG_t, r = 1 / sqrt(var + eps), n = (z - mean) r
    dU   = sum over t of dz_t h_{t-1}^T

`_slopes` computes the factors of dh and dc in dG for a run of frames at once; the gradient of a parameter is one
product or sum over such a run.

Both loops are generators, because the inputs of a frame may depend on the frame before, as in the speller; `finish`
runs one to its end.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from las.nn.cells.base import NUM_GATES, LSTMState
from las.nn.kernels.torch.allocator import allocator
from las.nn.kernels.torch.equations import CellUpdate, Gates, Norm
from las.nn.kernels.torch.packing import Buffer, FrameBuffers, Packing

sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
tanh_backward = torch.ops.aten.tanh_backward.grad_input

Result = TypeVar("Result")

CHUNK = 16
"""Number of frames in a run, few enough to stay in the cache."""


class Parameters(NamedTuple):
    """A cell's tensors in the recurrence. Side by side, for one cell per direction, each has an axis before it."""

    weight: Tensor  # U, [4H, H]
    gain: Tensor | None  # [4H], or [4, H] where each gate is normalised on its own
    offset: Tensor | None  # added after the norm of the gates, like the gain or [4H]
    cell_gain: Tensor | None  # [H]
    cell_bias: Tensor | None

    @staticmethod
    def side_by_side(cells: Sequence["Parameters"]) -> "Parameters":
        """Stack the parameters of cells of one class and size."""
        weights, *others = zip(*cells, strict=True)
        return Parameters(torch.stack(weights), *(None if part[0] is None else torch.stack(part) for part in others))


class Trace(NamedTuple):
    """Tensors of the forward pass that the backward pass needs."""

    hidden: Tensor  # a trajectory
    cells: Tensor  # a trajectory
    raw: Tensor  # c before the norm of the memory, packed
    seen: Tensor  # tanh of what the output sees, packed
    gates: Tensor  # i, f, g, o after sigmoid and tanh, packed
    projected: Tensor  # z, in blocks
    gate_mean: Tensor | None  # of z, beside 1 / sqrt(var + eps), in blocks
    gate_scale: Tensor | None
    cell_mean: Tensor | None
    cell_scale: Tensor | None


class Gradients(NamedTuple):
    """Gradients with respect to all arguments of `forward`; those of `inputs` are [directions, rows, 4H]."""

    inputs: Tensor
    hidden: Tensor
    cell: Tensor
    weight: Tensor
    gain: Tensor | None
    offset: Tensor | None
    cell_gain: Tensor | None
    cell_bias: Tensor | None


class Plan(NamedTuple):
    """Settings of one call: packing, equations, eps."""

    packing: Packing
    gates: type[Gates]
    memory: type[CellUpdate]
    eps: float

    def equations(self, parameters: Parameters, *statistics: Tensor | None) -> tuple[Gates, CellUpdate]:
        """Gates and cell update of one call; the backward pass passes the four statistics of the forward pass."""
        weight, gain, offset, cell_gain, cell_bias = parameters
        blocks = [() if part is None else self.packing.blocks(part) for part in statistics]
        of_gates, of_memory = self._norm(gain, offset, *blocks[:2]), self._norm(cell_gain, cell_bias, *blocks[2:])
        return self.gates(weight, offset, *of_gates), self.memory(*of_memory)

    def _norm(self, gain: Tensor | None, bias: Tensor | None, *statistics: Sequence[Tensor]) -> tuple[Norm, ...]:
        if gain is None or bias is None:
            return ()
        groups = gain if gain.dim() == 3 else gain.unsqueeze(1)
        return (Norm(groups, bias.view_as(groups), self.eps, *statistics),)


def finish(steps: Generator[Tensor, None, Result]) -> Result:
    """Run a loop to its end and return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result


def forward(
    plan: Plan, pieces: Iterable[Buffer], state: LSTMState, parameters: Parameters, buffers: FrameBuffers
) -> Generator[Tensor, None, Trace]:
    """Forward loop over all frames, as a generator that returns the `Trace`.

    Args:
        pieces: contributions of the frames to the gates, in runs of any number of frames, taken when they are needed
            and overwritten.
        state: of every row before its first frame, [directions, batch, H], rows in their own order.
        parameters: of one cell per direction, side by side.
        buffers: memory for intermediate values.

    Yields h of each frame, [directions, rows, H].
    """
    packing, size = plan.packing, state.hidden.shape[2]
    gates, memory = plan.equations(parameters)
    hidden, cells = (packing.trajectory(part) for part in state)
    (h_before, h), (c_before, carried) = packing.before_and_after(hidden), packing.before_and_after(cells)
    activations, projected = (
        buffers.packed(NUM_GATES * size),
        buffers.blocks(gates.normalised_blocks * NUM_GATES * size),
    )
    raw = Buffer(packing.after(cells), carried) if memory.carries_raw else buffers.packed(size)
    seen, minus_one = buffers.packed(size), hidden.new_tensor(-1.0)
    for t, x in enumerate(_prepared(gates, pieces)):
        gates.forward(x, h_before[t], projected.steps[t], activations.steps[t])
        i, f, g, o = torch.sigmoid_(activations.steps[t]).chunk(NUM_GATES, 2)
        torch.add(minus_one, g, alpha=2, out=g)
        torch.mul(f, c_before[t], out=raw.steps[t]).addcmul_(i, g)
        memory.forward(raw.steps[t], carried[t], seen.steps[t])
        yield torch.mul(o, seen.steps[t], out=h[t])
    wholes = raw.whole, seen.whole, activations.whole, projected.whole
    return Trace(hidden, cells, *wholes, *gates.statistics(), *memory.statistics())


def _prepared(gates: Gates, pieces: Iterable[Buffer]) -> Iterator[Tensor]:
    for piece in pieces:
        gates.prepare(piece.whole)
        yield from piece.steps


def backward(
    plan: Plan, parameters: Parameters, trace: Trace, num_inputs: int, d_hidden: Tensor, d_cell: Tensor
) -> Generator[Tensor, None, Gradients]:
    """Backward loop from the last frame to the first, as a generator that returns the `Gradients`.

    Args:
        num_inputs: rows of the inputs of each direction.
        d_hidden: result of `arriving`; the gradient of a frame may be changed until the frame is computed.
        d_cell: the gradient of each row's last c, [directions, batch, H], rows in the order of the packing.

    Yields the gradient of each frame's inputs, [directions, rows, 4H]. Both gradients are overwritten.
    """
    packing = plan.packing
    gates, memory = plan.equations(parameters, *trace[-4:])
    directions, num_rows, width = trace.gates.shape
    d_inputs = allocator.empty(d_hidden, directions, num_inputs, width)
    d_weight = allocator.empty_like(parameters.weight)
    if num_rows != num_inputs:
        d_inputs.zero_()
    h_before, c_before = packing.before_and_after(trace.hidden)[0], packing.before_and_after(trace.cells)[0]
    (dh_before, dh), dc = packing.before_and_after(d_hidden), packing.active(d_cell)
    c, f, z = (
        packing.steps(trace.raw),
        packing.steps(trace.gates.chunk(NUM_GATES, 2)[1]),
        packing.blocks(trace.projected),
    )
    dc_of_gates = packing.active(d_cell.unsqueeze(2))
    for run, rows in reversed(packing.chunks(CHUNK)):
        d_gates, slope = _slopes(trace, rows, allocator.cat(c_before[run]))
        by_gate = d_gates.unflatten(2, (NUM_GATES, -1))
        parts = d_gates, by_gate[:, :, :-1], by_gate[:, :, -1], slope
        d_all, d_ifg, d_o, ds = (part.split(packing.sizes[run], 1) for part in parts)
        d_projected: list[Tensor] = []
        for k, t in reversed([*enumerate(range(run.start, run.stop))]):
            memory.backward(t, dc[t], dh[t], ds[k], c[t])
            d_ifg[k].mul_(dc_of_gates[t])
            d_o[k].mul_(dh[t])
            dc[t].mul_(f[t])
            d_projected.append(gates.backward(t, d_all[k], z[t]))
            gates.back.add(dh_before[t], d_projected[-1], dh_before[t])
            yield gates.input_gradient(d_all[k], d_projected[-1])
        memory.collect(run, slope, trace.raw[:, rows])
        gates.collect(run, d_gates, z)
        dz = allocator.cat(d_projected[::-1])
        d_weight.baddbmm_(dz.mT, allocator.cat(h_before[run]), beta=float(run.stop < len(packing.sizes)))
        for into, sources, dx in zip(d_inputs, packing.sources, gates.input_gradient(d_gates, dz), strict=True):
            into.index_copy_(0, sources[rows], dx)
    back = packing.order.argsort()
    totals = map(_like, (*gates.totals(), *memory.totals()), parameters[1:])
    return Gradients(d_inputs, d_hidden[:, back], d_cell[:, back], d_weight, *totals)


def _like(total: Tensor | None, parameter: Tensor | None) -> Tensor | None:
    return None if total is None or parameter is None else total.view_as(parameter)


def arriving(packing: Packing, d_outputs: Tensor, d_last: LSTMState) -> Tensor:
    """The trajectory of gradients of h from padded outputs and the last state, without those through time."""
    d_hidden = packing.trajectory(torch.zeros_like(d_last.hidden))
    packing.pack(d_outputs, packing.after(d_hidden))
    d_hidden[:, packing.last] += d_last.hidden
    return d_hidden


def _slopes(trace: Trace, rows: slice, c_before: Tensor) -> tuple[Tensor, Tensor]:
    """The derivatives of c towards i, f, g and of h towards o, [directions, rows, 4H], and of h towards s.

    Each is the derivative of the nonlinearity times the other factor.
    """
    gates, seen = trace.gates[:, rows], trace.seen[:, rows]
    d_gates, slope = allocator.empty_like(gates), allocator.empty_like(seen)
    i, f, g, o = gates.chunk(NUM_GATES, 2)
    di, df, dg, do = d_gates.chunk(NUM_GATES, 2)
    sigmoid_backward(g, i, grad_input=di)
    sigmoid_backward(c_before, f, grad_input=df)
    tanh_backward(i, g, grad_input=dg)
    sigmoid_backward(seen, o, grad_input=do)
    tanh_backward(o, seen, grad_input=slope)
    return d_gates, slope
