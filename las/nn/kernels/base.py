"""The interface of kernels, and the plain kernel, the reference of all others.

The plain kernel applies the cell's own equations frame by frame. Padded frames never touch a state, an output or a
gradient.
"""

import warnings
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Protocol, cast, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.func import functional_call

from las.nn.cells.base import LSTMCell, LSTMState, RecurrentCell, State, values_are_unknown
from las.nn.nested import filled
from las.nn.normalisation import mask_of, reverse

Frames = Float[Tensor, "batch frames input"]
"""Padded frames of a layer."""

Gates = Float[Tensor, "batch frames gates"]
"""`input_gates` of all frames, [batch, frames, 4H] for an LSTM."""

InputGates = Sequence[Gates]
"""`input_gates` of each direction, in the order of the frames."""

Lengths = Int[Tensor, "batch"]
"""True lengths, [batch]; frames from there on are padding."""

States = Sequence[State | None]
"""The initial state of each direction, [batch, ...]; None for that of the cell."""

Unrolled = tuple[Float[Tensor, "batch frames outputs"], list[State]]
"""Outputs [batch, frames, directions * output size], zero in padding, and the last state of each direction."""

Cell = Any
"""A `RecurrentCell`; a kernel of `forms.FORMS` may say that it gets an `LSTMCell`."""


class Kernel:
    """A way to compute a recurrent layer: one cell over padded frames, or two of one class and size side by side.

    The second cell reads each row from its true end; its last state is that after the row's first frame. A subclass
    defines `recurrence`, and `layer` too where it computes W x and its norm itself.
    """

    device: str | None = None
    """Type of the device where it computes the cells of `forms.FORMS`; None for torch's operations, anywhere."""

    speed = "hand-written code for whole layers"
    """What a person is told of how it computes."""

    tried_as: tuple[int, torch.dtype] | None = None
    """Hidden size and type of the self-test; None for those of each call, where code is compiled for them."""

    def unsupported_reason(self, cell: Cell, like: Tensor) -> str:
        """Return the reason why it cannot compute this cell in this tensor's type on its device; empty if it can."""
        return ""

    def recurrence(
        self, cells: Sequence[Cell], input_gates: InputGates, num_frames: Lengths, states: States
    ) -> Unrolled:
        """Return the outputs and last states from `input_gates`."""
        raise TypeError(f"{type(self).__name__} must define recurrence")

    def layer(self, cells: Sequence[Cell], frames: Frames, num_frames: Lengths, states: States) -> Unrolled:
        """`recurrence` from the frames themselves, whose padding may hold anything."""
        return self.recurrence(cells, input_gates(cells, frames, num_frames), num_frames, states)


def input_gates(cells: Sequence[RecurrentCell], frames: Frames, num_frames: Lengths) -> InputGates:
    """Return `input_gates` of each cell for all frames, [batch, frames, 4H] for an LSTM, whatever padding holds."""
    # Padding is set to zero first: whatever it holds (even NaN) would otherwise reach the gradient of W as 0 * NaN.
    mask = mask_of(num_frames, frames.shape[1], frames.device)
    known = frames.masked_fill(~mask.unsqueeze(-1), 0.0)
    return [cell.padded_input_gates(known, mask) for cell in cells]


def one_by_one(
    unroll: Callable[[Any, Tensor, Tensor, State | None], tuple[Tensor, State]],
    cells: Sequence[Cell],
    input_gates: InputGates,
    num_frames: Lengths,
    states: States,
) -> Unrolled:
    """Return the `recurrence` of a kernel that unrolls a single cell."""
    outputs, last = unroll(cells[0], input_gates[0], num_frames, states[0])
    if len(cells) == 1:
        return outputs, [last]
    backwards, first = unroll(cells[1], reverse(input_gates[1], num_frames), num_frames, states[1])
    return torch.cat([outputs, reverse(backwards, num_frames)], dim=-1), [last, first]


def unroll(
    cell: RecurrentCell, input_gates: Gates, num_frames: Lengths, state: State | None = None
) -> tuple[Float[Tensor, "batch frames outputs"], State]:
    """One cell over padded frames.

    Args:
        input_gates: `cell.input_gates` of all frames, [batch, frames, 4H] for an LSTM.
        num_frames: true lengths, [batch]; frames from there on are padding.
        state: the initial state, [batch, ...]; `cell.initial_state` by default.

    Returns:
        Outputs [batch, frames, output size], zero in padding, and the state after each row's last true frame.

    >>> import las, torch
    >>> cell, frames = las.LNJoinedLSTMCell(80, 256), torch.randn(2, 50, 80)
    >>> outputs, last = las.unroll(cell, cell.input_gates(frames), num_frames=torch.tensor([50, 31]))
    >>> outputs.shape, last.hidden.shape
    (torch.Size([2, 50, 256]), torch.Size([2, 256]))
    >>> torch.equal(last.hidden[1], outputs[1, 30]), outputs[1, 31:].any()
    (True, tensor(False))
    """
    batch, frames, _ = input_gates.shape
    state = cell.initial_state(batch) if state is None else state
    mask = mask_of(num_frames, frames, input_gates.device)
    # No frame is padding up to the shortest length, so the select below is skipped.
    is_known = num_frames.device.type == "cpu" and not values_are_unknown()
    always_true = int(num_frames.min()) if batch and is_known else 0
    outputs = []
    for frame, gates in enumerate(input_gates.unbind(1)):
        new_state = cell.padded_step(gates, state, frame, mask[:, frame])
        if frame >= always_true:
            new_state = chosen(mask[:, frame], new_state, state)
        outputs.append(new_state.hidden)
        state = new_state
    if not outputs:
        return input_gates.new_zeros(batch, 0, cell.output_size), state
    return torch.stack(outputs, dim=1).masked_fill(~mask.unsqueeze(-1), 0.0), state


def chosen(keep: Bool[Tensor, " batch"], new: State, old: State) -> State:
    """Return the rows of a new state where `keep` is True, and those of the old one elsewhere."""
    pairs = zip(new, old, strict=True)
    return filled(new, [torch.where(keep.view(-1, *[1] * (part.dim() - 1)), part, before) for part, before in pairs])


class PlainKernel(Kernel):
    """`unroll` in each direction, for every cell on every device."""

    speed = "frame by frame in torch's operations, the slowest way"

    def recurrence(
        self, cells: Sequence[Cell], input_gates: InputGates, num_frames: Lengths, states: States
    ) -> Unrolled:
        return one_by_one(unroll, cells, input_gates, num_frames, states)


PLAIN = PlainKernel()


@runtime_checkable
class RecordedPass(Protocol):
    """A pass over all steps of a speller that keeps what its own backward pass needs."""

    def results(self) -> tuple[Tensor, ...]: ...

    def backward(self, *gradients: Tensor) -> Sequence[Tensor | None]:
        """Return the gradients of all tensors that the pass read, from those of its results."""


class PassFunction(torch.autograd.Function):
    """The results of a recorded pass with its backward pass attached; inputs are (pass, *tensors that it read)."""

    @staticmethod
    def forward(ctx: Any, recorded: RecordedPass, *read: Tensor | None) -> tuple[Tensor, ...]:
        ctx.recorded = recorded
        ctx.save_for_backward(*read)
        # Not the tensors of the pass themselves: they would refer to it through their graph, and only the garbage
        # collector would free them, which does not know how full a GPU is.
        return tuple(part.detach() for part in recorded.results())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        _ = ctx.saved_tensors  # makes autograd check that none was changed in between
        with torch.autocast(gradients[0].device.type, enabled=False):
            return None, *ctx.recorded.backward(*gradients)


Compute = Callable[..., Unrolled]
"""Computes a layer from its cells, frames, lengths and states."""

HINT = (
    "create_graph=True: the gradients of a recurrent layer are computed by the plain equations, frame by frame; "
    "las.use_kernel('plain') around the forward pass saves its being computed twice"
)


class TwiceDifferentiable(torch.autograd.Function):
    """Results of a kernel as they are; inputs are (cells, lengths, which states are given, results, frames, states,
    parameters).

    Gradients pass down to the kernel, whose backward pass has no graph. Where they are to be differentiated themselves
    (`create_graph=True`), they are computed by the plain kernel instead.
    """

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


def twice_differentiable(
    cells: Sequence[LSTMCell], frames: Tensor, num_frames: Lengths, states: States, found: Unrolled
) -> Unrolled:
    """Return the results of a kernel, with a second derivative where they have a first."""
    outputs, last = found
    if not (outputs.requires_grad and torch.is_grad_enabled()):
        return found
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
