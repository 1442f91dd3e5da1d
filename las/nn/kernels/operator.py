"""A layer as one operator of torch, `torch.ops.las.layer`: what torch.compile and torch.export see of a recurrence.

Both trace a program without knowing the values of its tensors, and a kernel looks at some of them (is there padding?)
and at their addresses. So the operator is left as it is in the graph, and computed by the kernel that is the fastest
where the program runs. It keeps nothing for the backward pass, which computes the results once more.
"""

import functools
import json
import threading
from collections.abc import Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from las.nn.cells.base import LSTMCell, LSTMState
from las.nn.kernels.base import Compute, Lengths, States, Unrolled, with_parameters
from las.nn.kernels.forms import CLASSES, FORMS, norm_of
from las.runtime.errors import ArgumentError

LIBRARY = torch.library.Library("las", "DEF")
GIVEN = "Tensor frames, Tensor num_frames, Tensor[] states, Tensor[] parameters, str cells"
CELLS = {cls.__name__: cls for cls in FORMS}


def layer(cells: Sequence[Any], frames: Tensor, num_frames: Lengths, states: States) -> Unrolled:
    """Return the outputs and last states by the operator."""
    first = [state or cell.initial_state(frames.shape[0]) for cell, state in zip(cells, states, strict=True)]
    outputs, hidden, memory = torch.ops.las.layer(
        frames,
        num_frames,
        [*chain.from_iterable(first)],
        [parameter for cell in cells for parameter in cell.parameters()],
        _described(cells),
    )
    return outputs, [*map(LSTMState, hidden.unbind(), memory.unbind())]


def _described(cells: Sequence[LSTMCell]) -> str:
    """Return the cells, but for their parameters, as a program keeps them."""
    cell = cells[0]
    own = "".join([f', "{name}": "{value}"' for name, value in cell.equation_options.items()])
    norms = f'"cell_norm": "{cell.cell_norm}", "norm": "{norm_of(cell)}"'
    options = f'{norms}, "forget_bias": {cell.forget_bias}, "eps": {cell.eps}{own}'
    sizes = f"{cell.input_size}, {cell.hidden_size}"
    # As JSON, but in words that torch.compile can trace.
    return f'{{"cell": "{type(cell).__name__}", "count": {len(cells)}, "sizes": [{sizes}], "options": {{{options}}}}}'


@functools.lru_cache(maxsize=64)
def _made(description: str, thread: int) -> list[Any]:
    """Cells without memory for their parameters. Each thread has its own: parameters are put into them for a call."""
    read = json.loads(description)
    options = read["options"] | {"norm": CLASSES[read["options"]["norm"]]}
    with torch.device("meta"):
        return [CELLS[read["cell"]](*read["sizes"], **options) for _ in range(read["count"])]


def define(compute: Compute) -> None:
    """Define the operator and its derivative, computed by a function of cells, frames, lengths and states."""

    def run(
        frames: Tensor, num_frames: Tensor, states: Sequence[Tensor], parameters: Sequence[Tensor], cells: str
    ) -> tuple[Tensor, ...]:
        if len(frames) and not 0 <= int(num_frames.min()) <= int(num_frames.max()) <= frames.shape[1]:
            raise ArgumentError(f"lengths should be from 0 to {frames.shape[1]}, the frames of a row")
        first = [*map(LSTMState, states[::2], states[1::2])]
        made = _made(cells, threading.get_ident())
        outputs, last = with_parameters(made, parameters, compute, frames, num_frames, first)
        return outputs, *(torch.stack(parts) for parts in zip(*last, strict=True))

    def forward(*given: Any) -> tuple[Tensor, ...]:
        with torch.no_grad():
            return run(*given)

    def backward(grads: Sequence[Tensor], *given: Any) -> list[Tensor]:
        frames, num_frames, states, parameters, cells = given
        with torch.enable_grad():
            inputs = [part.detach().requires_grad_() for part in (frames, *states, *parameters)]
            of_frames, *rest = inputs
            results = run(of_frames, num_frames, rest[: len(states)], rest[len(states) :], cells)
            pairs = [(part, grad) for part, grad in zip(results, grads, strict=True) if part.requires_grad]
            ends, arriving = zip(*pairs, strict=True)
            found = torch.autograd.grad(ends, inputs, arriving, allow_unused=True, materialize_grads=True)
        return [part.contiguous() for part in found]

    LIBRARY.define(f"layer({GIVEN}) -> (Tensor, Tensor, Tensor)")
    LIBRARY.define(f"layer_backward(Tensor[] grads, {GIVEN}) -> Tensor[]")
    LIBRARY.impl("layer", forward, "CompositeExplicitAutograd")
    LIBRARY.impl("layer_backward", backward, "CompositeExplicitAutograd")
    torch.library.register_fake("las::layer", _shapes, lib=LIBRARY)
    torch.library.register_fake("las::layer_backward", _shapes_of_gradients, lib=LIBRARY)
    torch.library.register_autograd("las::layer", _backward, setup_context=_setup, lib=LIBRARY)


def _shapes(
    frames: Tensor, num_frames: Tensor, states: Sequence[Tensor], parameters: Sequence[Tensor], cells: str
) -> tuple[Tensor, ...]:
    read = json.loads(cells)
    dtype = functools.reduce(torch.promote_types, (part.dtype for part in (frames, *states, *parameters)))
    (batch, length, _), count, hidden = frames.shape, read["count"], read["sizes"][1]
    outputs = frames.new_empty(batch, length, count * hidden, dtype=dtype)
    return outputs, *(frames.new_empty(count, batch, hidden, dtype=dtype) for _ in range(2))


def _shapes_of_gradients(grads: Sequence[Tensor], *given: Any) -> list[Tensor]:
    frames, _, states, parameters, _ = given
    return [part.new_empty(part.shape) for part in (frames, *states, *parameters)]


def _setup(ctx: Any, inputs: Any, output: Any) -> None:
    frames, num_frames, states, parameters, ctx.cells = inputs
    ctx.num_states = len(states)
    ctx.save_for_backward(frames, num_frames, *states, *parameters)


def _backward(ctx: Any, *grads: Tensor) -> Any:
    frames, num_frames, *rest = ctx.saved_tensors
    states, parameters = rest[: ctx.num_states], rest[ctx.num_states :]
    d_frames, *found = torch.ops.las.layer_backward([*grads], frames, num_frames, states, parameters, ctx.cells)
    return d_frames, None, found[: len(states)], found[len(states) :], None
