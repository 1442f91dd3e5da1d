"""All steps of a recurrence with its backward pass, each step a replay of a CUDA graph.

    state_t = step(inputs_t, state_{t-1}, memory)

The step is any module of torch's operations. Only the states are kept: the backward pass computes each step again and
adds up the gradients of what all steps read (Chen et al. 2016, section 4). Both passes are `Replayed`: what they read
and write, all steps of it, is in tensors of few sizes, so that the graph of one step serves any pass of these sizes.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch.func import functional_call

from las.nn.kernels.base import PassFunction
from las.nn.kernels.graphs import capture as graphs
from las.nn.kernels.graphs.replayed import Capture, Replayed
from las.nn.nested import filled, tensors

FEWEST = 16
"""Room for this number of steps at least; for more, the next power of two."""


class Recurrence(NamedTuple):
    """A step and what it reads.

    Inputs of a floating type, memory of one and the parameters of the step have gradients, the first state has none.
    """

    step: nn.Module
    """A module from the inputs of a step, [batch, ...], the state before it and the memory to the next state. It draws
    no random numbers. Its class and its submodules, which outlive it, are all that its results depend on besides."""
    inputs: Sequence[Tensor]
    """Inputs of the steps, [batch, steps, ...]."""
    first: Any
    """The state before the first step."""
    memory: Sequence[Tensor]
    """Tensors that all steps read."""
    outputs_of: Callable[[Any], Sequence[Tensor]]
    """Returns those parts of a state that are the outputs of a step."""

    def outputs(self, capture: Capture | None) -> tuple[Tensor, ...]:
        """Return the outputs of all steps, [batch, steps, ...]. There is no second derivative."""
        trace = _Trace(self, capture, recording=torch.is_grad_enabled())
        outputs: tuple[Tensor, ...] = PassFunction.apply(trace, *self.inputs, *self.memory, *trace.parameters.values())
        return tuple(part.transpose(0, 1) for part in outputs)


class _Forward(NamedTuple):
    """A forward pass: the index of the next step, what steps read, and the states before and after all steps."""

    step: Int[Tensor, "1"]
    inputs: tuple[Tensor, ...]
    memory: tuple[Tensor, ...]
    states: tuple[Tensor, ...]


class _Backward(NamedTuple):
    """A backward pass: the next step, the gradients of the state after it, what steps read, and what they write:
    gradients of the inputs of each step, and sums of those of what all steps read.
    """

    step: Int[Tensor, "1"]
    d_state: tuple[Tensor, ...]
    inputs: tuple[Tensor, ...]
    memory: tuple[Tensor, ...]
    states: tuple[Tensor, ...]
    d_outputs: tuple[Tensor, ...]
    d_inputs: tuple[Tensor, ...]
    totals: tuple[Tensor, ...]


class _Trace:
    """One pass over all steps, and what its backward pass needs."""

    def __init__(self, recurrence: Recurrence, capture: Capture | None, recording: bool) -> None:
        self.recurrence, self.capture, self.recording = recurrence, capture, recording
        self.num_steps, self.device = recurrence.inputs[0].shape[1], recurrence.inputs[0].device
        self.room = max(FEWEST, 1 << (self.num_steps - 1).bit_length())
        self.inputs = tuple(part.detach().transpose(0, 1) for part in recurrence.inputs)
        self.memory = tuple(part.detach() for part in recurrence.memory)
        kind = self.device.type
        self.autocast = torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)
        self.parameters: dict[str, Tensor] = dict(recurrence.step.named_parameters())
        # What graphs depend on besides tensors. The step itself is another in each pass.
        self.parts = [[*recurrence.step.children()], type(recurrence.step), *self.autocast]
        self.states: tuple[Tensor, ...] = ()
        """Tensors of the state before each step, [steps, ...]; none where there will be no backward pass."""

    def _with_room(self, rows: Tensor, more: int = 0) -> Tensor:
        """Return the rows of steps, zeros following."""
        wider = rows.new_zeros(self.room + more, *rows.shape[1:])
        wider[: len(rows)] = rows
        return wider

    def results(self) -> tuple[Tensor, ...]:
        """Return the outputs of all steps, [steps, batch, ...]."""
        with graphs.turn(self.device, self.capture is not None):
            first = [part.unsqueeze(0) for part in tensors(self.recurrence.first)]
            state = _Forward(
                step=torch.zeros(1, dtype=torch.long, device=self.device),
                inputs=tuple(map(self._with_room, self.inputs)),
                memory=self.memory,
                states=tuple(self._with_room(part, more=1) for part in first),
            )
            replayed = Replayed("speller", self._step, self.parts, self.capture)
            for _ in range(self.num_steps):
                state, _ = replayed(state)
            if self.recording:
                self.states = tuple(rows[: self.num_steps].clone() for rows in state.states)
            after = filled(self.recurrence.first, (rows[1 : self.num_steps + 1] for rows in state.states))
            return tuple(rows.clone() for rows in self.recurrence.outputs_of(after))

    def _step(self, _: object, given: _Forward) -> tuple[_Forward, tuple[()]]:
        before = filled(self.recurrence.first, _rows(given.states, given.step))
        after = self._after(self.parameters, _rows(given.inputs, given.step), before, given.memory)
        for rows, part in zip(given.states, tensors(after), strict=True):
            rows.index_copy_(0, given.step + 1, part.unsqueeze(0))
        return given._replace(step=given.step + 1), ()

    def backward(self, *d_outputs: Tensor) -> list[Tensor | None]:
        """Gradients of inputs, memory and parameters from those of the outputs, [steps, batch, ...]."""
        read = [*self.inputs, *self.memory, *self.parameters.values()]
        with graphs.turn(self.device, self.capture is not None):
            inputs = tuple(map(self._with_room, self.inputs))
            state = _Backward(
                step=torch.full((1,), self.num_steps - 1, device=self.device),
                d_state=tuple(torch.zeros_like(rows[0]) for rows in self.states),
                inputs=inputs,
                memory=self.memory,
                states=tuple(map(self._with_room, self.states)),
                d_outputs=tuple(map(self._with_room, d_outputs)),
                d_inputs=tuple(torch.zeros_like(part) for part in inputs if part.is_floating_point()),
                totals=tuple(torch.zeros_like(part) for part in read[len(inputs) :] if part.is_floating_point()),
            )
            replayed = Replayed("speller's gradients", self._step_back, self.parts, self.capture)
            for _ in range(self.num_steps):
                state, _ = replayed(state)
            d_inputs = (rows[: self.num_steps].transpose(0, 1).clone() for rows in state.d_inputs)
            found = iter([*d_inputs, *(total.clone() for total in state.totals)])
        return [next(found) if part.is_floating_point() else None for part in read]

    def _step_back(self, _: object, given: _Backward) -> tuple[_Backward, tuple[()]]:
        index = given.step
        with torch.enable_grad():
            inputs, before = _leaves(_rows(given.inputs, index)), _leaves(_rows(given.states, index))
            memory = _leaves(given.memory)
            # Leaves of this step as well: gradients of the parameters themselves would be summed on the stream of the
            # pass around this one, where no capture is allowed.
            own = {name: part.detach().requires_grad_(part.requires_grad) for name, part in self.parameters.items()}
            after = self._after(own, inputs, filled(self.recurrence.first, before), memory)
        results = [*self.recurrence.outputs_of(after), *tensors(after)]
        d_inputs, d_before, d_shared = _gradients(
            zip(results, [*_rows(given.d_outputs, index), *given.d_state], strict=True),
            *(inputs, before, [*memory, *own.values()]),
        )
        for rows, part in zip(given.d_inputs, d_inputs, strict=True):
            if part is not None:
                rows.index_copy_(0, index, part.unsqueeze(0))
        for total, part in zip(given.totals, d_shared, strict=True):
            if part is not None:
                total.add_(part)
        d_state = tuple(
            torch.zeros_like(value) if part is None else part for value, part in zip(before, d_before, strict=True)
        )
        return given._replace(step=index - 1, d_state=d_state), ()

    def _after(
        self, parameters: dict[str, Tensor], inputs: Sequence[Tensor], before: Any, memory: Sequence[Tensor]
    ) -> Any:
        """Return the state after a step under the autocast of the forward pass, in the types of the first one."""
        enabled, dtype = self.autocast
        # Kept casts of parameters would lie in the memory of a graph.
        with torch.autocast(self.device.type, dtype, enabled=enabled, cache_enabled=False):
            after = functional_call(self.recurrence.step, parameters, (inputs, before, memory))
        parts = zip(tensors(after), tensors(self.recurrence.first), strict=True)
        return filled(after, [part.to(first.dtype) for part, first in parts])


def _rows(parts: Sequence[Tensor], index: Int[Tensor, "1"]) -> list[Tensor]:
    return [part.index_select(0, index)[0] for part in parts]


def _leaves(parts: Sequence[Tensor]) -> list[Tensor]:
    return [part.detach().requires_grad_(part.is_floating_point()) for part in parts]


def _gradients(ends: Iterable[tuple[Tensor, Tensor]], *read: Sequence[Tensor]) -> list[list[Tensor | None]]:
    """Gradients of what was read, of floating types, from pairs of results and gradients; None for what has none."""
    leaves = [part for parts in read for part in parts if part.requires_grad]
    results, grads = zip(*(end for end in ends if end[0].requires_grad), strict=True)
    found = iter(torch.autograd.grad(results, leaves, grads, allow_unused=True))
    floating = ([part for part in parts if part.is_floating_point()] for parts in read)
    return [[next(found) if part.requires_grad else None for part in parts] for parts in floating]
