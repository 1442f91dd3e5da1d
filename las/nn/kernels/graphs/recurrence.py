"""All steps of a recurrence with its backward pass, a few steps in each replay of a CUDA graph.

    state_t = step(inputs_t, state_{t-1}, memory)

The step is any module of torch's operations. Only states are kept: the backward pass computes each step again and adds
up the gradients of what all steps read (Chen et al. 2016, section 4). Both passes are `Replayed`: what they read and
write, all steps of it, is in tensors of few sizes, so that the graph of a few steps serves any pass of these sizes.
Gradients of large weights are products over all steps after the loop (`products`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch.func import functional_call

from las.nn.kernels.base import PassFunction
from las.nn.kernels.graphs import capture as graphs
from las.nn.kernels.graphs.parts import Parts
from las.nn.kernels.graphs.products import Product, Products
from las.nn.kernels.graphs.replayed import Capture, Replayed
from las.nn.nested import filled, tensors

FEWEST = 16
"""Room for this number of steps at least; for more, the next power of two."""
TOGETHER = 4
"""Steps of a replay: fewer starts and fewer copies of their inputs and states. Those after the last one read zeros, and
have gradients of zero."""


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
    """A forward pass: the indices of the next steps, what steps read, and the states before and after all steps."""

    steps: Int[Tensor, " together"]
    inputs: tuple[Tensor, ...]
    memory: tuple[Tensor, ...]
    operands: tuple[Tensor, ...]
    states: tuple[Tensor, ...]


class _Backward(NamedTuple):
    """A backward pass: the next steps, the gradients of the state after them, what steps read, and what they write:
    gradients of the inputs of each step, sums of those of what all steps read, and the factors of products.
    """

    steps: Int[Tensor, " together"]
    d_state: tuple[Tensor, ...]
    inputs: tuple[Tensor, ...]
    memory: tuple[Tensor, ...]
    operands: tuple[Tensor, ...]
    states: tuple[Tensor, ...]
    d_outputs: tuple[Tensor, ...]
    d_inputs: tuple[Tensor, ...]
    totals: tuple[Tensor, ...]
    factors: tuple[Tensor, ...]


class _Trace:
    """One pass over all steps, and what its backward pass needs."""

    def __init__(self, recurrence: Recurrence, capture: Capture | None, recording: bool) -> None:
        self.recurrence, self.capture, self.recording = recurrence, capture, recording
        self.num_steps, self.device = recurrence.inputs[0].shape[1], recurrence.inputs[0].device
        self.num_replays = -(-self.num_steps // TOGETHER)
        self.room = max(FEWEST, 1 << (self.num_steps - 1).bit_length())
        self.inputs = tuple(part.detach().transpose(0, 1) for part in recurrence.inputs)
        self.memory = tuple(part.detach() for part in recurrence.memory)
        kind = self.device.type
        self.autocast = torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)
        self.parameters: dict[str, Tensor] = dict(recurrence.step.named_parameters())
        self.operands = tuple(self._operands())
        # What graphs depend on besides tensors. The step itself is another in each pass.
        self.parts = [[*recurrence.step.children()], type(recurrence.step), *self.autocast]
        self.states: tuple[Tensor, ...] = ()
        """Tensors of the state before the steps of each replay; none where there will be no backward pass."""
        self.products: Sequence[Product] | None = None
        """The products of a step whose weights get their gradients after the loop; None before a step was computed."""

    def _operands(self) -> Iterator[Tensor]:
        """Yield what all steps read in the type of autocast, which would cast it at each step; nothing without it."""
        enabled, dtype = self.autocast
        for part in self._shared(self.parameters, self.memory).values() if enabled else ():
            yield part.detach().to(dtype) if part.dtype == torch.float32 else part.detach()

    @staticmethod
    def _shared(parameters: Mapping[str, Tensor], memory: Sequence[Tensor]) -> dict[str, Tensor]:
        """Return what all steps read and has gradients, by name, in the order of sums."""
        known = {f"memory {number}": part for number, part in enumerate(memory) if part.is_floating_point()}
        return known | dict(parameters)

    def _with_room(self, rows: Tensor, more: int = 0) -> Tensor:
        """Return the rows of steps, zeros following."""
        wider = rows.new_zeros(self.room + more, *rows.shape[1:])
        wider[: len(rows)] = rows
        return wider

    def _steps(self, replay: int) -> Int[Tensor, " together"]:
        """Return the indices of the steps of a replay."""
        return torch.arange(replay * TOGETHER, (replay + 1) * TOGETHER, device=self.device)

    def results(self) -> tuple[Tensor, ...]:
        """Return the outputs of all steps, [steps, batch, ...]."""
        with graphs.turn(self.device, self.capture is not None):
            first = [part.unsqueeze(0) for part in tensors(self.recurrence.first)]
            state = _Forward(
                steps=self._steps(0),
                inputs=tuple(map(self._with_room, self.inputs)),
                memory=self.memory,
                operands=self.operands,
                states=tuple(self._with_room(part, more=1) for part in first),
            )
            replayed = Replayed("speller", self._forward, self.parts, self.capture)
            for _ in range(self.num_replays):
                state, _ = replayed(state)
            if self.recording:
                self.states = tuple(rows[: self.num_steps : TOGETHER].clone() for rows in state.states)
                self.products = self._waiting(replayed.parts, state)
            after = filled(self.recurrence.first, (rows[1 : self.num_steps + 1] for rows in state.states))
            return tuple(rows.clone() for rows in self.recurrence.outputs_of(after))

    def _waiting(self, parts: Parts, state: _Forward) -> Sequence[Product] | None:
        """Return the products that wait: those found now, or by the pass whose graphs this one replays."""
        found = self.products
        if parts.key is None:
            return found
        key = "products", parts.key, *((part.shape, part.dtype) for part in tensors(state))
        return graphs.cached(key, lambda: found, parts.owners)

    def _forward(self, _: object, given: _Forward) -> tuple[_Forward, tuple[()]]:
        before = filled(self.recurrence.first, (rows[0] for rows in _rows(given.states, given.steps[:1])))
        products = Products(self._shared(self.parameters, given.memory), given.operands)
        after = self._after(self.parameters, products, _rows(given.inputs, given.steps), before, given.memory)
        self.products = products.of_a_step(TOGETHER)
        for rows, *parts in zip(given.states, *map(tensors, after), strict=True):
            rows.index_copy_(0, given.steps + 1, torch.stack(parts))
        return given._replace(steps=given.steps + TOGETHER), ()

    def backward(self, *d_outputs: Tensor) -> list[Tensor | None]:
        """Gradients of inputs, memory and parameters from those of the outputs, [steps, batch, ...]."""
        read = [*self.inputs, *self.memory, *self.parameters.values()]
        with graphs.turn(self.device, self.capture is not None):
            inputs = tuple(map(self._with_room, self.inputs))
            state = _Backward(
                steps=self._steps(self.num_replays - 1),
                d_state=tuple(torch.zeros_like(rows[0]) for rows in self.states),
                inputs=inputs,
                memory=self.memory,
                operands=self.operands,
                states=tuple(map(self._with_room, self.states)),
                d_outputs=tuple(map(self._with_room, d_outputs)),
                d_inputs=tuple(torch.zeros_like(part) for part in inputs if part.is_floating_point()),
                totals=tuple(torch.zeros_like(part) for part in read[len(inputs) :] if part.is_floating_point()),
                factors=tuple(
                    factor for each in self.products or () for factor in each.factors(self.room, self.device)
                ),
            )
            replayed = Replayed("speller's gradients", self._backward, self.parts, self.capture)
            for _ in range(self.num_replays):
                state, _ = replayed(state)
            d_inputs = (rows[: self.num_steps].transpose(0, 1).clone() for rows in state.d_inputs)
            names = self._shared(self.parameters, self.memory)
            totals = dict(zip(names, (total.clone() for total in state.totals), strict=True))
            factors = [rows[: self.num_steps] for rows in state.factors]
            for number, product in enumerate(self.products or ()):
                product.add_gradients(totals, *factors[2 * number : 2 * number + 2])
            found = iter([*d_inputs, *totals.values()])
        return [next(found) if part.is_floating_point() else None for part in read]

    def _backward(self, _: object, given: _Backward) -> tuple[_Backward, tuple[()]]:
        waiting = self.products or ()
        with torch.enable_grad():
            inputs, memory = _leaves(_rows(given.inputs, given.steps)), _leaves(given.memory)
            before = _leaves(rows[0] for rows in _rows(given.states, given.steps[:1] // TOGETHER))
            # Leaves of these steps as well: gradients of the parameters themselves would be summed on the stream of the
            # pass around them, where no capture is allowed.
            own = {name: part.detach().requires_grad_(part.requires_grad) for name, part in self.parameters.items()}
            products = Products(self._shared(own, memory), given.operands, waiting)
            after = self._after(own, products, inputs, filled(self.recurrence.first, before), memory)
        outputs = [part for state in after for part in self.recurrence.outputs_of(state)]
        rows = _rows(given.d_outputs, given.steps)
        d_outputs = [part[step] for step in range(TOGETHER) for part in rows]
        d_inputs, d_before, d_shared, d_operands, d_results = _gradients(
            zip([*outputs, *tensors(after[-1])], [*d_outputs, *given.d_state], strict=True),
            *(inputs, before, [*memory, *own.values()]),
            *([*products.leaves.values()], [y for _, y in products.factors]),
        )
        for rows_of, part in zip(given.d_inputs, d_inputs, strict=True):
            if part is not None:
                rows_of.index_copy_(0, given.steps, part)
        totals = dict(zip(self._shared(own, memory), given.totals, strict=True))
        sums = zip([*given.totals, *map(totals.__getitem__, products.leaves)], [*d_shared, *d_operands], strict=True)
        for total, part in sums:
            if part is not None:
                total.add_(part)
        factors = [(x, _known(d_y, y)) for (x, y), d_y in zip(products.factors, d_results, strict=True)]
        for number, rows_of in enumerate(given.factors):
            of_steps = [pair[number % 2] for pair in factors[number // 2 :: len(waiting)]]
            rows_of.index_copy_(0, given.steps, torch.stack(of_steps))
        d_state = tuple(map(_known, d_before, before))
        # A capture may run a step more than the pass has.
        return given._replace(steps=(given.steps - TOGETHER).clamp(min=0), d_state=d_state), ()

    def _after(
        self,
        parameters: dict[str, Tensor],
        products: Products,
        inputs: Sequence[Tensor],
        before: Any,
        memory: Sequence[Tensor],
    ) -> list[Any]:
        """Return the states after some steps under the autocast of the forward pass, in the types of the first one."""
        enabled, dtype = self.autocast
        states = [before]
        for rows in zip(*inputs, strict=True):
            # Kept casts of parameters would lie in the memory of a graph.
            with torch.autocast(self.device.type, dtype, enabled=enabled, cache_enabled=False), products:
                after = functional_call(self.recurrence.step, parameters, ([*rows], states[-1], memory))
            parts = zip(tensors(after), tensors(self.recurrence.first), strict=True)
            states.append(filled(after, [part.to(first.dtype) for part, first in parts]))
        return states[1:]


def _rows(parts: Sequence[Tensor], indices: Int[Tensor, " rows"]) -> list[Tensor]:
    return [part.index_select(0, indices) for part in parts]


def _leaves(parts: Iterable[Tensor]) -> list[Tensor]:
    return [part.detach().requires_grad_(part.is_floating_point()) for part in parts]


def _known(gradient: Tensor | None, of: Tensor) -> Tensor:
    return torch.zeros_like(of) if gradient is None else gradient


def _gradients(ends: Iterable[tuple[Tensor, Tensor]], *read: Sequence[Tensor]) -> list[list[Tensor | None]]:
    """Gradients of what was read, of floating types, from pairs of results and gradients; None for what has none."""
    leaves = [part for parts in read for part in parts if part.requires_grad]
    results, grads = zip(*(end for end in ends if end[0].requires_grad), strict=True)
    found = iter(torch.autograd.grad(results, leaves, grads, allow_unused=True))
    floating = ([part for part in parts if part.is_floating_point()] for parts in read)
    return [[next(found) if part.requires_grad else None for part in parts] for parts in floating]
