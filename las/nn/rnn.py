"""Cells over time: one over padded frames, two in opposite directions, by the kernel that is chosen for them."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from las.nn.cells.base import RecurrentCell, State, values_are_unknown
from las.nn.factories import made
from las.nn.kernels import choice, operator
from las.nn.kernels.base import PLAIN, Frames, Lengths, States, Unrolled, twice_differentiable
from las.nn.kernels.forms import uncompiled
from las.nn.normalisation import reverse
from las.runtime.errors import ConfigError

Outputs = Float[Tensor, "batch frames output"]

CellFactory = Callable[[int, int], RecurrentCell]
"""Makes a cell from (input_size, hidden_size): a `functools.partial` that the config built."""


class RecurrentLayer(nn.Module):
    """One cell over all frames, left to right.

    >>> import functools, las, torch
    >>> cell = functools.partial(las.LNPerGateLSTMCell, forget_bias=1.0)
    >>> layer = las.RecurrentLayer(cell, input_size=80, hidden_size=32)
    >>> outputs, last = layer(torch.randn(2, 50, 80), num_frames=torch.tensor([50, 31]))
    >>> outputs.shape, last.cell.shape
    (torch.Size([2, 50, 32]), torch.Size([2, 32]))
    """

    def __init__(self, cell: CellFactory, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.cell = made("cell", cell, input_size, hidden_size)
        self.output_size = self.cell.output_size

    def forward(self, frames: Frames, num_frames: Lengths, state: State | None = None) -> tuple[Outputs, State]:
        """[batch, frames, input_size] to outputs [batch, frames, output_size], zero in padding, and the last state."""
        outputs, (last,) = _run([self], frames, num_frames, [state])
        return outputs, last


class Direction(NamedTuple):
    """One cell of a layer on a batch, in its own reading order."""

    name: str
    cell: RecurrentCell
    inputs: Frames
    outputs: Outputs


class ListenerLayer(nn.Module):
    """Base class of a listener's layers: rows of utterances to as many rows of `output_size`, zero in padding.

    The listener makes one from (cell, input_size, hidden_size), calls it, and reads `output_size`. A subclass sets
    `output_size` and defines `forward`; if it has cells, `directions` shows them to `las analyze`; if no frame waits
    for later ones, `stream` takes them piece by piece.
    """

    output_size: int

    def forward(self, frames: Frames, num_frames: Lengths) -> Outputs:
        """[batch, frames, input_size] to [batch, frames, output_size], zero in padding."""
        raise TypeError(f"{type(self).__name__} must define forward")

    def stream(self, frames: Frames, state: State | None) -> tuple[Outputs, State]:
        """Return the outputs of the next frames, as `forward` gives them for the whole, and the state after them.

        `state` is None before the first frame. Raises ConfigError for a layer that waits for the end of an utterance.
        """
        raise ConfigError(
            f"a {type(self).__name__} waits for the end of the utterance: to transcribe while somebody speaks, train "
            "with +layer@model.listener.layer=unidirectional, or a model whose name ends in _latency_controlled"
        )

    def directions(self, inputs: Frames, outputs: Outputs, num_frames: Lengths) -> list[Direction]:
        """List the cells, with what they read and wrote when the layer mapped `inputs` to `outputs`."""
        return []


class UnidirectionalLayer(ListenerLayer):
    """One cell that reads each row from its beginning: no frame waits for those after it.

    >>> import las, torch
    >>> layer = las.UnidirectionalLayer(las.LNGlobalLSTMCell, input_size=80, hidden_size=32)
    >>> layer(torch.randn(2, 50, 80), num_frames=torch.tensor([50, 31])).shape
    torch.Size([2, 50, 32])
    """

    def __init__(self, cell: CellFactory, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.forwards = RecurrentLayer(cell, input_size, hidden_size)
        self.output_size = self.forwards.output_size

    def forward(self, frames: Frames, num_frames: Lengths) -> Outputs:
        return self.forwards(frames, num_frames)[0]

    def stream(self, frames: Frames, state: State | None) -> tuple[Outputs, State]:
        outputs, state = self.forwards(frames, torch.full(frames.shape[:1], frames.shape[1]), state)
        return outputs, state

    def directions(self, inputs: Frames, outputs: Outputs, num_frames: Lengths) -> list[Direction]:
        return [Direction("forwards", self.forwards.cell, inputs, outputs)]


class BidirectionalLayer(ListenerLayer):
    """Two cells with their own parameters, one reading each row from its true end (Schuster & Paliwal 1997).

    >>> import las, torch
    >>> layer = las.BidirectionalLayer(las.LNGlobalLSTMCell, input_size=80, hidden_size=32)
    >>> layer(torch.randn(2, 50, 80), num_frames=torch.tensor([50, 31])).shape
    torch.Size([2, 50, 64])
    """

    def __init__(self, cell: CellFactory, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.forwards = RecurrentLayer(cell, input_size, hidden_size)
        self.backwards = RecurrentLayer(cell, input_size, hidden_size)
        self.output_size = 2 * self.forwards.output_size

    def forward(self, frames: Frames, num_frames: Lengths) -> Outputs:
        """[batch, frames, input_size] to [batch, frames, output_size]: forwards then backwards, zero in padding."""
        return self.with_states(frames, num_frames)[0]

    def directions(self, inputs: Frames, outputs: Outputs, num_frames: Lengths) -> list[Direction]:
        ahead, back = outputs.chunk(2, dim=-1)
        return [
            Direction("forwards", self.forwards.cell, inputs, ahead),
            Direction("backwards", self.backwards.cell, reverse(inputs, num_frames), reverse(back, num_frames)),
        ]

    def with_states(
        self, frames: Frames, num_frames: Lengths, states: States = (None, None)
    ) -> tuple[Outputs, tuple[State, State]]:
        """Return the outputs as `forward` gives them and the last state of each direction, from initial states of each.

        The last state backwards is that after a row's first frame.
        """
        outputs, (last, first) = _run([self.forwards, self.backwards], frames, num_frames, states)
        return outputs, (last, first)


def _run(layers: Sequence[RecurrentLayer], frames: Tensor, num_frames: Tensor, states: States) -> Unrolled:
    """One layer, or two in opposite directions, by the kernel of `las.nn.kernels.choice.select_kernel`."""
    cells = [layer.cell for layer in layers]
    if not values_are_unknown():
        return _computed(cells, frames, num_frames, states)
    if not torch.compiler.is_dynamo_compiling() and not isinstance(choice.requested(), str):
        return _computed(cells, frames, num_frames, states)  # a kernel that is made for tracing
    if torch.compiler.is_compiling() and not uncompiled(cells[0], frames.device.type):
        return operator.layer(cells, frames, num_frames, states)
    return PLAIN.layer(cells, frames, num_frames, states)


def _computed(cells: Sequence[Any], frames: Tensor, num_frames: Tensor, states: States) -> Unrolled:
    """`_run` where the values of tensors are known."""
    kernel = choice.select_kernel(cells[0], frames)
    found = kernel.layer(cells, frames, num_frames, states)
    return found if kernel.device is None else twice_differentiable(cells, frames, num_frames, states, found)


operator.define(_computed)
