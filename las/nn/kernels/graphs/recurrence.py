"""All steps of a recurrence with its backward pass, each step a replay of a CUDA graph.

    outputs_t, state_t = step(inputs_t, state_{t-1}, memory)

The step is any module of torch's operations. Only the states are kept: the backward pass computes each step again and
adds up the gradients of what all steps read (Chen et al. 2016, section 4). Both passes are `Replayed`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch.func import functional_call

from las.nn.kernels.base import PassFunction
from las.nn.kernels.graphs.replayed import Capture, Replayed
from las.nn.nested import filled, tensors


class Recurrence(NamedTuple):
    """A step and what it reads.

    Inputs of a floating type, memory and the parameters of the step have gradients, the first state has none.
    """

    step: nn.Module
    """A module from the inputs of a step, [batch, ...], the state before it and the memory to outputs and next state.
    It draws no random numbers."""
    inputs: Sequence[Tensor]
    """Inputs of the steps, [batch, steps, ...]."""
    first: Any
    """The state before the first step."""
    memory: Sequence[Tensor]
    """Tensors that all steps read."""

    def outputs(self, capture: Capture | None) -> tuple[Tensor, ...]:
        """Return the outputs of all steps, [batch, steps, ...]. There is no second derivative."""
        trace = _Trace(self, capture, recording=torch.is_grad_enabled())
        outputs: tuple[Tensor, ...] = PassFunction.apply(trace, *self.inputs, *self.memory, *trace.parameters.values())
        return tuple(part.transpose(0, 1) for part in outputs)


class _Gradients(NamedTuple):
    """A backward pass: the next step, the gradients of the state after it, and those of what all steps read."""

    step: Int[Tensor, "1"]
    state: tuple[Tensor, ...]
    totals: tuple[Tensor, ...]


class _Trace:
    """One pass over all steps, and what its backward pass needs."""

    def __init__(self, recurrence: Recurrence, capture: Capture | None, recording: bool) -> None:
        self.recurrence, self.capture, self.recording = recurrence, capture, recording
        self.inputs = [part.detach().transpose(0, 1).contiguous() for part in recurrence.inputs]
        self.memory = [part.detach() for part in recurrence.memory]
        self.num_steps, self.device = len(self.inputs[0]), self.inputs[0].device
        kind = self.device.type
        self.autocast = torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)
        self.parameters: dict[str, Tensor] = dict(recurrence.step.named_parameters())
        self.states: list[Tensor] = []
        """Tensors of the state before each step, [steps, ...]."""
        self.outputs: list[Tensor] = []

    def results(self) -> tuple[Tensor, ...]:
        """Return the outputs of all steps, [steps, batch, ...]."""
        replayed = Replayed("speller", self._step, self.capture)
        state = torch.zeros(1, dtype=torch.long, device=self.device), self.recurrence.first
        for _ in range(self.num_steps):
            state, _ = replayed(state)
        return tuple(self.outputs)

    def _step(self, state: tuple[Tensor, Any]) -> tuple[tuple[Tensor, Any], tuple[()]]:
        index, before = state
        outputs, after = self._computed(self.parameters, _rows(self.inputs, index), before, self.memory)
        kept = list(tensors(before)) if self.recording else []
        if not self.outputs:
            self.outputs = [part.new_empty(self.num_steps, *part.shape) for part in outputs]
            self.states = [part.new_empty(self.num_steps, *part.shape) for part in kept]
        for rows, part in zip([*self.outputs, *self.states], [*outputs, *kept], strict=True):
            rows.index_copy_(0, index, part.unsqueeze(0))
        return (index + 1, after), ()

    def backward(self, *d_outputs: Tensor) -> list[Tensor | None]:
        """Gradients of inputs, memory and parameters from those of the outputs, [steps, batch, ...]."""
        self.d_outputs = d_outputs
        self.d_inputs = [torch.zeros_like(part) if part.is_floating_point() else None for part in self.inputs]
        shared = [*self.memory, *self.parameters.values()]
        state = _Gradients(
            torch.full((1,), self.num_steps - 1, device=self.device),
            tuple(torch.zeros_like(rows[0]) for rows in self.states),
            tuple(torch.zeros_like(part) for part in shared),
        )
        replayed = Replayed("speller's gradients", self._step_back, self.capture)
        for _ in range(self.num_steps):
            state, _ = replayed(state)
        return [*(None if rows is None else rows.transpose(0, 1) for rows in self.d_inputs), *state.totals]

    def _step_back(self, state: _Gradients) -> tuple[_Gradients, tuple[()]]:
        index = state.step
        with torch.enable_grad():
            inputs, before, memory = map(_leaves, (_rows(self.inputs, index), _rows(self.states, index), self.memory))
            # Leaves of this step as well: gradients of the parameters themselves would be summed on the stream of the
            # pass around this one, where no capture is allowed.
            own = {name: part.detach().requires_grad_(part.requires_grad) for name, part in self.parameters.items()}
            outputs, after = self._computed(own, inputs, filled(self.recurrence.first, before), memory)
        ends = zip([*outputs, *tensors(after)], [*_rows(self.d_outputs, index), *state.state], strict=True)
        read = [*inputs, *before, *memory, *own.values()]
        grads = _gradients([end for end in ends if end[0].requires_grad], read)
        of_inputs, of_state = grads[: len(inputs)], grads[len(inputs) :][: len(before)]
        for rows, part in zip(self.d_inputs, of_inputs, strict=True):
            if rows is not None and part is not None:
                rows.index_copy_(0, index, part.unsqueeze(0))
        for total, part in zip(state.totals, grads[len(inputs) + len(before) :], strict=True):
            if part is not None:
                total.add_(part)
        d_state = tuple(
            torch.zeros_like(value) if part is None else part for value, part in zip(before, of_state, strict=True)
        )
        return _Gradients(index - 1, d_state, state.totals), ()

    def _computed(
        self, parameters: dict[str, Tensor], inputs: Sequence[Tensor], before: Any, memory: Sequence[Tensor]
    ) -> tuple[Sequence[Tensor], Any]:
        """Return a step under the autocast of the forward pass, its state in the types of the first one."""
        enabled, dtype = self.autocast
        # Kept casts of parameters would lie in the memory of a graph.
        with torch.autocast(self.device.type, dtype, enabled=enabled, cache_enabled=False):
            outputs, after = functional_call(self.recurrence.step, parameters, (inputs, before, memory))
        parts = zip(tensors(after), tensors(self.recurrence.first), strict=True)
        return outputs, filled(after, [part.to(first.dtype) for part, first in parts])


def _rows(parts: Sequence[Tensor], index: Int[Tensor, "1"]) -> list[Tensor]:
    return [part.index_select(0, index)[0] for part in parts]


def _leaves(parts: Sequence[Tensor]) -> list[Tensor]:
    return [part.detach().requires_grad_(part.is_floating_point()) for part in parts]


def _gradients(ends: Sequence[tuple[Tensor, Tensor]], read: Sequence[Tensor]) -> list[Tensor | None]:
    """Gradients of what was read from pairs of a result and its gradient; None for what has none."""
    leaves = [part for part in read if part.requires_grad]
    results, grads = zip(*ends, strict=True)
    found = iter(torch.autograd.grad(results, leaves, grads, allow_unused=True))
    return [next(found) if part.requires_grad else None for part in read]
