"""The loops over frames, forwards and backwards, and the tensors that go between them.

With G the gate pre-activations, z the values that are normalised (U h_{t-1} or W x + U h_{t-1}) and s the memory the
output sees, the backward pass is, without a norm of the memory,

    dh_t = dy_t + U^T dz_{t+1}
    dc_t = f_{t+1} dc_{t+1} + o (1 - tanh(s)^2) dh_t
    dG_t = dc g i(1-i), dc c_{t-1} f(1-f), dc i (1-g^2), dh tanh(s) o(1-o)
    dz_t = r (y - mean(y) - n mean(y n))    with y = gain dG_t, r = 1 / sqrt(var + eps), n = (z - mean) r
    dU   = sum over t of dz_t h_{t-1}^T

Every step is an operation on a buffer made once; gradients of parameters are one product or sum after the loop.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from las.cells.base import NUM_GATES, LSTMState
from las.kernels.equations import Gates, Memory, Norm
from las.kernels.packing import Buffer, Packing

sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
tanh_backward = torch.ops.aten.tanh_backward.grad_input


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
    """Of a sum of the results, towards everything `forward` was given; inputs are packed."""

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


def forward(plan: Plan, inputs: Tensor, state: LSTMState, parameters: Parameters, scratch: Buffer) -> Trace:
    """All frames from packed inputs, which are overwritten; `scratch` is as wide and holds every frame or one."""
    packing, size = plan.packing, state.hidden.shape[1]
    gates, memory = plan.equations(parameters)
    projected, activations = gates.buffers(Buffer(inputs, packing.steps), scratch)
    hidden, cells = (packing.trajectory(part) for part in state)
    seen = inputs.new_empty(len(inputs), size)
    raw = packing.after(cells) if memory.carries_raw else torch.empty_like(seen)
    h_before, c_before = packing.before(hidden), packing.before(cells)
    h, carried = packing.steps(packing.after(hidden)), packing.steps(packing.after(cells))
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
    statistics = (*gates.statistics(), *memory.statistics())
    return Trace(hidden, cells, raw, seen, projected.rows, activations.rows, *statistics)


def backward(plan: Plan, parameters: Parameters, trace: Trace, d_outputs: Tensor, d_last: LSTMState) -> Gradients:
    """From the gradients of packed outputs and of the last state; the trace stays as it is."""
    packing, size = plan.packing, d_outputs.shape[1]
    gates, memory = plan.equations(parameters, *trace[-4:])
    d_hidden = packing.trajectory(torch.zeros_like(d_last.hidden))
    packing.after(d_hidden).copy_(d_outputs)
    d_hidden[packing.last] += d_last.hidden
    d_cell = d_last.cell[packing.order]
    d_gates, d_normalised = torch.empty_like(trace.gates), torch.empty_like(trace.seen)
    dh_before, dh, dc = packing.before(d_hidden), packing.steps(packing.after(d_hidden)), packing.living(d_cell)
    c_before, c, s, z = packing.before(trace.cells), *map(packing.steps, (trace.raw, trace.seen, trace.projected))
    dn, all_gates = packing.steps(d_normalised), packing.steps(d_gates)
    i_f, d_if = (packing.steps(part[:, : 2 * size]) for part in (trace.gates, d_gates))
    i, f, g, o = (packing.steps(part) for part in trace.gates.chunk(NUM_GATES, 1))
    di, df, dg, do = (packing.steps(part) for part in d_gates.chunk(NUM_GATES, 1))
    for t in reversed(range(len(packing.sizes))):
        torch.mul(dh[t], s[t], out=do[t])
        ds = dh[t] * o[t]
        tanh_backward(ds, s[t], grad_input=ds)
        memory.backward(t, dc[t], ds, dn[t], c[t])
        torch.mul(dc[t], g[t], out=di[t])
        torch.mul(dc[t], c_before[t], out=df[t])
        torch.mul(dc[t], i[t], out=dg[t])
        sigmoid_backward(d_if[t], i_f[t], grad_input=d_if[t])
        tanh_backward(dg[t], g[t], grad_input=dg[t])
        sigmoid_backward(do[t], o[t], grad_input=do[t])
        dc[t].mul_(f[t])
        dh_before[t].addmm_(gates.backward(t, all_gates[t], z[t]), parameters.weight)
    d_inputs, d_projected, d_gain, d_offset = gates.totals(d_gates, trace.projected)
    d_weight = d_projected.t() @ torch.cat(packing.before(trace.hidden))
    of_memory = memory.totals(d_normalised, trace.raw)
    back = packing.order.argsort()
    d_first = d_hidden[: len(back)][back], d_cell[back]
    return Gradients(d_inputs, *d_first, d_weight, d_gain, d_offset, *of_memory)
