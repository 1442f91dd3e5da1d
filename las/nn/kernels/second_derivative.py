"""Second derivatives of layers whose kernel has no graph for its backward pass: by the plain equations.

`TwiceDifferentiable` is laid over the results of a kernel. Gradients pass it as they are, down to the kernel. Where
they are to be differentiated themselves (`create_graph=True`), it computes them by the plain kernel instead.
"""

import warnings
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call

from las.nn.cells.base import LSTMCell, LSTMState
from las.nn.kernels.base import PLAIN, Lengths, States, Unrolled

Compute = Callable[..., Unrolled]
"""Computes a layer from its cells, frames, lengths and states."""

HINT = (
    "create_graph=True: the gradients of a recurrent layer are computed by the plain equations, frame by frame; "
    "las.use_kernel('plain') around the forward pass saves its being computed twice"
)


class TwiceDifferentiable(torch.autograd.Function):
    """Results as they are; inputs are (cells, lengths, which states are given, results, frames, states, parameters)."""

    @staticmethod
    def forward(
        ctx: Any, cells: Sequence[LSTMCell], num_frames: Tensor, given: Sequence[bool], *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.cells, ctx.num_frames, ctx.given = cells, num_frames, given
        num_results = 1 + 2 * len(cells)
        ctx.save_for_backward(*tensors[num_results:])
        # Not the tensors themselves: outputs that are views of an input could not be changed in place.
        return tuple(result.detach() for result in tensors[:num_results])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        nothing = [None] * (len(ctx.needs_input_grad) - 3 - len(grads))
        if not torch.is_grad_enabled():
            return None, None, None, *grads, *nothing
        warnings.warn(HINT, stacklevel=2)
        # Views: a state that was computed from a parameter is no way to that parameter.
        inputs = [tensor.view_as(tensor) for tensor in ctx.saved_tensors]
        frames, *others = inputs
        left = iter(others)
        states = [LSTMState(next(left), next(left)) if has_state else None for has_state in ctx.given]
        outputs, last = with_parameters(ctx.cells, [*left], PLAIN.layer, frames, ctx.num_frames, states)
        results = [outputs, *(part for state in last for part in state)]
        pairs = [(part, grad) for part, grad in zip(results, grads, strict=True) if part.requires_grad]
        ends, arriving = zip(*pairs, strict=True)
        wanted = [part for part in inputs if part.requires_grad]
        found = iter(torch.autograd.grad(ends, wanted, arriving, create_graph=True, materialize_grads=True))
        return None, None, None, *[None] * len(grads), *(next(found) if part.requires_grad else None for part in inputs)


def attach(cells: Sequence[LSTMCell], frames: Tensor, num_frames: Lengths, states: States, found: Unrolled) -> Unrolled:
    """The results of a kernel, with a second derivative."""
    outputs, last = found
    results = TwiceDifferentiable.apply(
        cells,
        num_frames,
        [state is not None for state in states],
        *(outputs, *chain.from_iterable(last)),
        *(frames, *chain.from_iterable(state for state in states if state is not None)),
        *chain.from_iterable(cell.parameters() for cell in cells),
    )
    return results[0], [*map(LSTMState, results[1::2], results[2::2])]


class _Layer(nn.Module):
    def __init__(self, cells: Sequence[LSTMCell]) -> None:
        super().__init__()
        self.cells = nn.ModuleList(cells)

    def forward(self, compute: Compute, *given: Any) -> Unrolled:
        return compute(cast(Sequence[LSTMCell], [*self.cells]), *given)


def with_parameters(cells: Sequence[LSTMCell], parameters: Sequence[Tensor], compute: Compute, *given: Any) -> Unrolled:
    """`compute(cells, *given)` with these tensors in place of the cells' parameters."""
    names = [f"cells.{number}.{name}" for number, cell in enumerate(cells) for name, _ in cell.named_parameters()]
    named = dict(zip(names, parameters, strict=True))
    found: Unrolled = functional_call(_Layer(cells), named, (compute, *given), tie_weights=False)
    return found
