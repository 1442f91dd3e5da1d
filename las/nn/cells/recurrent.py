"""The base class of recurrent cells: a state, and the step from one frame to the next.

A cell declares its parameters and the named tuple of its state, and defines

    input_gates(frames)        the part of a step that needs no recurrence, for all frames at once
    step(gates, state)         the state after one frame; its first part is the output of the cell
    initial_state(*batch)      the state before the first frame, where that is more than one vector of zeros

A cell with statistics over the batch (batch norm) must know which frames are padding: it also defines
`padded_input_gates` or `padded_step`. Other cells need not know that batches are padded.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from las.runtime.errors import ConfigError

Frames = Float[Tensor, "*batch input"]
Gates = Float[Tensor, "*batch gates"]
"""What a cell computes of the frames alone, for an LSTM the pre-activations of its gates side by side."""
Hidden = Float[Tensor, "*batch hidden"]
Mask = Bool[Tensor, "*batch"]
"""False where a frame is padding."""
Lengths = Int[Tensor, "batch"]
State = Any
"""A named tuple of tensors [batch ..., size ...] that begins with `hidden`, the output; never changed in place."""


class HiddenState(NamedTuple):
    """The state of a cell that keeps nothing but its output, [batch ..., output_size].

    >>> import las, torch
    >>> las.GRUCell(80, 256).initial_state(2).hidden.shape
    torch.Size([2, 256])
    """

    hidden: Hidden


class RecurrentCell(nn.Module):
    """Base class of recurrent cells; a subclass makes its parameters and defines `step`.

    Layers, spellers and language models use the methods below, and the sizes `input_size`, `hidden_size` and
    `output_size`, which is `hidden_size` unless a cell sets it. They carry, mask and reorder states whatever tensors
    these are made of. The plain kernel computes every cell frame by frame.

    Args:
        input_size: size of one frame.
        hidden_size: H, from which the sizes of the state follow.

    >>> import las, torch
    >>> class DecayingCell(las.RecurrentCell):
    ...     # h' = tanh(W x + decay h)
    ...     def __init__(self, input_size, hidden_size):
    ...         super().__init__(input_size, hidden_size)
    ...         self.inputs = torch.nn.Linear(input_size, hidden_size)
    ...         self.decay = torch.nn.Parameter(torch.full((hidden_size,), 0.9))
    ...     def input_gates(self, frames):
    ...         return self.inputs(frames)
    ...     def step(self, input_gates, state):
    ...         return las.HiddenState(torch.tanh(input_gates + self.decay * state.hidden))
    ...
    >>> outputs, last = las.LSTM(80, 256, cell=DecayingCell)(torch.randn(50, 4, 80))
    >>> outputs.shape, last.shape
    (torch.Size([50, 4, 256]), torch.Size([1, 4, 256]))
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        if hidden_size < 1:
            raise ConfigError(f"hidden_size={hidden_size} must be at least 1")
        self.input_size = input_size
        self.hidden_size = self.output_size = hidden_size

    def input_gates(self, frames: Frames) -> Gates:
        """Return the frames' part of a step, [..., input_size] to [..., any size]; called once for all frames."""
        return frames

    def padded_input_gates(self, frames: Frames, mask: Mask) -> Gates:
        """Return the result of `input_gates` for padded frames, which are zero where the mask is False."""
        return self.input_gates(frames)

    def step(self, input_gates: Gates, state: State) -> State:
        """Return the state after one frame. The output of the cell is its `hidden`, [..., output_size]."""
        raise TypeError(f"{type(self).__name__} must define step")

    def padded_step(self, input_gates: Gates, state: State, frame: int, mask: Mask) -> State:
        """Return the result of `step` at frame `frame` of padded rows; it is discarded where the mask is False."""
        return self.step(input_gates, state)

    def initial_state(self, *batch: int) -> State:
        """Return the state before the first frame, zeros of the type and on the device of the parameters."""
        return HiddenState(self.zeros(*batch, self.output_size))

    def zeros(self, *size: int) -> Tensor:
        """Return zeros of the type and on the device of the parameters."""
        return next(self.parameters()).new_zeros(*size)

    def not_unrolled(self, like: Tensor) -> str:
        """Return the reason why `unroll` is not used on a tensor's device and type; empty if it is."""
        return "the cell defines no pass over all frames"

    def unroll(self, frames: Frames, mask: Mask, num_frames: Lengths, state: State) -> tuple[Hidden, State]:
        """Compute all frames at once, which is optional: the same as the steps one by one, in less time.

        Args:
            frames: [batch, frames, input_size], zero in padding.
            mask: [batch, frames]
            num_frames: true lengths [batch], 0 among them.
            state: the state before the first frame.

        Returns:
            Outputs [batch, frames, output_size], whatever they are in padding, and the state after the last true frame.
        """
        raise TypeError(f"{type(self).__name__} must define unroll")

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}"


def gate_weight(num_gates: int, size: int, inputs: int) -> nn.Parameter:
    """Return a new parameter [num_gates * size, inputs], Glorot-uniform gate by gate."""
    weight = nn.Parameter(torch.empty(num_gates * size, inputs))
    for block in weight.data.chunk(num_gates):
        nn.init.xavier_uniform_(block)
    return weight


def reached(
    first: Float[Tensor, "batch hidden"], hidden: Float[Tensor, "batch frames hidden"], num_frames: Lengths
) -> Float[Tensor, "batch hidden"]:
    """Return each row's state after its last true frame, from those after all frames; `first` where it has none."""
    rows = torch.arange(len(hidden), device=hidden.device)
    return torch.cat([first.unsqueeze(1), hidden], dim=1)[rows, num_frames.to(hidden.device, non_blocking=True)]
