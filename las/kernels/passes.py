"""The loops over frames, forwards and backwards, and the tensors that go between them.

With G the gate pre-activations, z the values that are normalised (U h_{t-1} or W x + U h_{t-1}) and s the memory the
output sees, the backward pass is, without a norm of the memory,

    dh_t = dy_t + U^T dz_{t+1}
    dc_t = f_{t+1} dc_{t+1} + o (1 - tanh(s)^2) dh_t
    dG_t = dc g i(1-i), dc c_{t-1} f(1-f), dc i (1-g^2), dh tanh(s) o(1-o)
    dz_t = r (y - mean(y) - n mean(y n))    with y = gain dG_t, r = 1 / sqrt(var + eps), n = (z - mean) r
    dU   = sum over t of dz_t h_{t-1}^T

The factors of dh and dc in dG are those of `_slopes`, for a run of frames at once; gradients of parameters are one
product or sum over such a run.

Both loops are generators, so that a caller whose inputs of a frame depend on the frame before (the speller's do) can
give them in time; `finish` runs one to its end.
"""

from collections.abc import Generator
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from las.cells.base import NUM_GATES, LSTMState
from las.kernels.equations import Gates, Memory, Norm
from las.kernels.packing import Buffer, Packing

sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
tanh_backward = torch.ops.aten.tanh_backward.grad_input

Result = TypeVar("Result")

CHUNK = 32
"""How many frames the backward pass takes at once where it can: few enough to stay in the cache."""


class Parameters(NamedTuple):
    """The cell's tensors in the recurrence. `offset` is what is added after the norm of the gates."""

    weight: Tensor  # U, [4H, H]
    gain: Tensor | None  # [4H] or [4, H]
    offset: Tensor | None
    cell_gain: Tensor | None  # [H]
    cell_bias: Tensor | None


class Trace(NamedTuple):
    """What the backward pass needs: `hidden` and `cells` are trajectories, the others are packed."""

    hidden: Tensor
    cells: Tensor
    raw: Tensor  # c before the norm of the memory
    seen: Tensor  # tanh of what the output sees
    projected: Tensor  # z
    gates: Tensor  # i, f, g, o after sigmoid and tanh
    gate_mean: Tensor | None  # of z, beside 1 / sqrt(var + eps)
    gate_scale: Tensor | None
    cell_mean: Tensor | None
    cell_scale: Tensor | None


class Gradients(NamedTuple):
    """Of the results, towards everything `forward` was given; `inputs` are padded."""

    inputs: Tensor
    hidden: Tensor
    cell: Tensor
    weight: Tensor
    gain: Tensor | None
    offset: Tensor | None
    cell_gain: Tensor | None
    cell_bias: Tensor | None


class Plan(NamedTuple):
    """What one call computes, apart from its tensors."""

    packing: Packing
    gates: type[Gates]
    gate_norm: type[Norm]
    memory: type[Memory]
    eps: float

    def equations(self, parameters: Parameters, *statistics: Tensor | None) -> tuple[Gates, Memory]:
        """Those of one call; for the backward pass with the four statistics that the forward pass left."""
        weight, gain, offset, cell_gain, cell_bias = parameters
        frames = [() if part is None else part.split(self.packing.sizes) for part in statistics]
        of_gates = () if gain is None or offset is None else (self.gate_norm(gain, offset, self.eps, *frames[:2]),)
        of_memory = (
            () if cell_gain is None or cell_bias is None else (Norm(cell_gain, cell_bias, self.eps, *frames[2:]),)
        )
        return self.gates(weight, *of_gates), self.memory(*of_memory)


def finish(steps: Generator[Tensor, None, Result]) -> Result:
    """What the loop returns, after whatever is left of it."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result


def forward(
    plan: Plan, inputs: Tensor, state: LSTMState, parameters: Parameters, scratch: Buffer
) -> Generator[Tensor, None, Trace]:
    """All frames from packed inputs, which are overwritten; `scratch` is as wide and holds every frame or one.

    Yields h of each frame. What the inputs of a frame are counts only when the frame is asked for.
    """
    packing, size = plan.packing, state.hidden.shape[1]
    gates, memory = plan.equations(parameters)
    projected, activations = gates.buffers(Buffer(inputs, packing.steps), scratch)
    hidden, cells = (packing.trajectory(part) for part in state)
    seen = inputs.new_empty(len(inputs), size)
    raw = packing.after(cells) if memory.carries_raw else torch.empty_like(seen)
    (h_before, h), (c_before, carried) = packing.around(hidden), packing.around(cells)
    c, s, z = packing.steps(raw), packing.steps(seen), projected.steps()
    all_gates, i_f = activations.steps(), activations.steps(0, 2 * size)
    i, f, g, o = (activations.steps(gate * size, (gate + 1) * size) for gate in range(NUM_GATES))
    for t in range(len(packing.sizes)):
        gates.forward(h_before[t], z[t], all_gates[t])
        torch.sigmoid_(i_f[t])
        torch.tanh_(g[t])
        torch.sigmoid_(o[t])
        torch.mul(f[t], c_before[t], out=c[t]).addcmul_(i[t], g[t])
        memory.forward(c[t], carried[t], s[t])
        torch.mul(o[t], s[t], out=h[t])
        yield h[t]
    statistics = (*gates.statistics(), *memory.statistics())
    return Trace(hidden, cells, raw, seen, projected.rows, activations.rows, *statistics)


def backward(
    plan: Plan, parameters: Parameters, trace: Trace, frames: int, d_hidden: Tensor, d_cell: Tensor
) -> Generator[Tensor, None, Gradients]:
    """All frames, the last one first; the trace stays as it is.

    Args:
        frames: of the padded batch.
        d_hidden: as `arriving` gives it. What it holds for a frame counts only when the frame is asked for.
        d_cell: the gradient of each row's last c, rows in the order of the packing.

    Yields the gradient of each frame's inputs. Both gradients are overwritten.
    """
    packing = plan.packing
    gates, memory = plan.equations(parameters, *trace[-4:])
    d_inputs = packing.padded(d_hidden, frames, trace.gates.shape[1])
    d_weight = torch.zeros_like(parameters.weight)
    h_before, c_before = packing.around(trace.hidden)[0], packing.around(trace.cells)[0]
    (dh_before, dh), dc = packing.around(d_hidden), packing.living(d_cell)
    c, z, f = map(packing.steps, (trace.raw, trace.projected, trace.gates.chunk(NUM_GATES, 1)[1]))
    for chunk, rows in reversed(packing.chunks(CHUNK)):
        d_gates, slope = _slopes(trace, rows, torch.cat(c_before[chunk]))
        per_gate = d_gates.unflatten(1, (NUM_GATES, -1))
        parts = d_gates, per_gate[:, :3], per_gate[:, 3], slope
        d_all, d_ifg, d_o, ds = (part.split(packing.sizes[chunk]) for part in parts)
        d_projected: list[Tensor] = []
        for k, t in reversed([*enumerate(range(chunk.start, chunk.stop))]):
            memory.backward(t, dc[t], dh[t], ds[k], c[t])
            d_o[k].mul_(dh[t])
            d_ifg[k].mul_(dc[t].unsqueeze(1))
            dc[t].mul_(f[t])
            d_projected.append(gates.backward(t, d_all[k], z[t]))
            dh_before[t].addmm_(d_projected[-1], parameters.weight)
            yield gates.of_inputs(d_all[k], d_projected[-1])
        memory.collect(chunk, slope, trace.raw[rows])
        dx, dz = gates.collect(chunk, d_gates, d_projected[::-1], trace.projected[rows])
        d_weight.addmm_(dz.t(), torch.cat(h_before[chunk]))
        d_inputs.index_copy_(0, packing.positions[rows], dx)
    back = packing.order.argsort()
    d_first = d_hidden[: len(back)][back], d_cell[back]
    return Gradients(d_inputs.unflatten(0, (-1, frames)), *d_first, d_weight, *gates.totals(), *memory.totals())


def arriving(packing: Packing, d_outputs: Tensor, d_last: LSTMState) -> Tensor:
    """The trajectory of gradients that reach h from outside, from those of padded outputs and of the last state."""
    d_hidden = packing.trajectory(torch.zeros_like(d_last.hidden))
    packing.after(d_hidden).copy_(packing.pack(d_outputs))
    d_hidden[packing.last] += d_last.hidden
    return d_hidden


def _slopes(trace: Trace, rows: slice, c_before: Tensor) -> tuple[Tensor, Tensor]:
    """The derivatives of c towards i, f, g and of h towards o, [rows, 4H], and of h towards s, [rows, H].

    Each is that of the nonlinearity times what the gate multiplies.
    """
    d_gates, slope = torch.empty_like(trace.gates[rows]), torch.empty_like(trace.seen[rows])
    i, f, g, o = trace.gates[rows].chunk(NUM_GATES, 1)
    di, df, dg, do = d_gates.chunk(NUM_GATES, 1)
    seen = trace.seen[rows]
    sigmoid_backward(g, i, grad_input=di)
    sigmoid_backward(c_before, f, grad_input=df)
    tanh_backward(i, g, grad_input=dg)
    sigmoid_backward(seen, o, grad_input=do)
    tanh_backward(o, seen, grad_input=slope)
    return d_gates, slope
