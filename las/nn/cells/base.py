"""The base classes of recurrent cells and of LSTM cells.

A cell declares its parameters and the named tuple of its state, and defines

    input_gates(frames)        the part of a step that needs no recurrence, for all frames at once
    step(gates, state)         the state after one frame; its first part is the output of the cell
    initial_state(*batch)      the state before the first frame, where that is more than one vector of zeros

A cell with statistics over the batch (batch norm) must know which frames are padding: it also defines
`padded_input_gates` or `padded_step`. Other cells need not know that batches are padded.

A variant of the LSTM, with four gates, a memory, and an independent choice of where the memory is normalised,
subclasses `LSTMCell`, declares its parameters and defines what differs from the plain LSTM without a bias:

    input_gates(frames)            W x: the part of the gate pre-activations that needs no recurrence, for all frames
    gates(input_gates, hidden)     input_gates + U h: the complete pre-activations of one step

The gate order is i, f, g, o everywhere in this package.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from las.nn.cells.norms import CellNorm, LayerNorm
from las.nn.factories import checked
from las.runtime.errors import ConfigError, require_known

NUM_GATES = 4

CELL_NORMS = ("none", "output", "state", "both")

Map = Callable[[Tensor], Tensor]
"""A function from a tensor to one of the same shape."""

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


def values_are_unknown() -> bool:
    """Return True while a program is traced (torch.compile, torch.export) or vectorised (torch.func)."""
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()


class LSTMState(NamedTuple):
    """The state of an LSTM after a frame: h and c, both [batch ..., hidden_size]; never changed in place.

    >>> import las
    >>> state = las.PlainLSTMCell(80, 256).initial_state(4)
    >>> state.hidden.shape, state.cell.shape
    (torch.Size([4, 256]), torch.Size([4, 256]))
    """

    hidden: Hidden
    cell: Hidden


class LSTMCell(RecurrentCell):
    """Base class of LSTM cells; a subclass makes its parameters and defines `input_gates` or `gates`, or both.

    It has the memory update that every variant shares (Hochreiter & Schmidhuber 1997; Gers et al. 2000):

        c_t = sigmoid(f) * c_{t-1} + sigmoid(i) * tanh(g)
        h_t = sigmoid(o) * tanh(c_t)

    `cell_norm` places a layer norm on the memory:

        value     carried to t+1   seen by the output   used by
        none      c                tanh(c)              plain LSTM
        output    c                tanh(LN(c))          Ba et al. 2016; Ben Othman 2018 eq. 7-9
        state     LN(c)            tanh(c)              RNMT+
        both      LN(c)            tanh(LN(c))          Zeineldeen et al. 2020 (RETURNN), tf.contrib

    Args:
        input_size: size of one frame.
        hidden_size: H, size of hidden and cell.
        cell_norm: one of the four above; adds a gain and a bias of size H unless `none`.
        cell_gain: first value of the gain of the memory's norm.
        norm: makes the norm of the memory, and those of the gates (`las.nn.cells.norms`).
        forget_bias: constant added to the forget gate AFTER any norm of the gates (a constant added before a
            per-gate norm would be cancelled by its centring).
        eps: added to the variance inside every norm of the cell.

    >>> import las, torch
    >>> class CoupledLSTMCell(las.PlainLSTMCell):
    ...     # One gate for both: i = 1 - f, because sigmoid(-f) = 1 - sigmoid(f).
    ...     def gates(self, input_gates, hidden):
    ...         _, f, g, o = super().gates(input_gates, hidden).chunk(4, -1)
    ...         return torch.cat([-f, f, g, o], -1)
    ...
    >>> lstm = las.LSTM(80, 256, cell=CoupledLSTMCell, cell_norm="output")
    >>> lstm(torch.randn(50, 4, 80))[0].shape
    torch.Size([50, 4, 256])
    """

    input_weight: nn.Parameter
    recurrent_weight: nn.Parameter

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        cell_norm: str = "none",
        cell_gain: float = 1.0,
        norm: Callable[[], CellNorm] = LayerNorm,
        forget_bias: float = 0.0,
        eps: float = 1e-5,
    ) -> None:
        super().__init__(input_size, hidden_size)
        require_known("cell_norm", cell_norm, CELL_NORMS)
        self.cell_norm = cell_norm
        self.norm = checked("norm", norm)
        self.forget_bias = float(forget_bias)
        self.eps = float(eps)
        self.equation_options: dict[str, str] = {}  # options of a subclass that choose among its equations
        if cell_norm != "none":
            self.cell_gain = nn.Parameter(torch.full((hidden_size,), float(cell_gain)))
            self.cell_bias = nn.Parameter(torch.zeros(hidden_size))
            self.memory_norm = norm()

    def weights(self) -> tuple[nn.Parameter, nn.Parameter]:
        """Return new parameters W [4H, input_size] and U [4H, output_size], initialised Glorot-uniform gate by gate."""
        of_frames = gate_weight(NUM_GATES, self.hidden_size, self.input_size)
        return of_frames, gate_weight(NUM_GATES, self.hidden_size, self.output_size)

    def gate_bias(self) -> nn.Parameter:
        """Return the parameter of 4H values that is added to the gates after any norm of W x + U h."""
        return cast(nn.Parameter, self.bias)

    def constant_bias(self) -> Tensor:
        """Return zeros but for the forget bias in its gate, [4H]."""
        forget = self.zeros(NUM_GATES, self.hidden_size)
        forget[1] = self.forget_bias
        return forget.flatten()

    def weights_changed(self) -> None:
        """Set the parameters that start from W and U; called when these have new initial values."""

    def input_gates(self, frames: Frames) -> Gates:
        """Return the frames' part of the gates, [..., input_size] to [..., 4H]; called once for all frames."""
        return functional.linear(frames, self.input_weight)

    def gates(self, input_gates: Gates, hidden: Hidden) -> Gates:
        """Gate pre-activations i, f, g, o of one step, [..., 4H]."""
        return input_gates + functional.linear(hidden, self.recurrent_weight)

    def step(self, input_gates: Gates, state: LSTMState) -> LSTMState:
        """Return the state after one frame. The output of the cell is its `hidden`."""
        return self.update_memory(self.gates(input_gates, state.hidden), state.cell)

    def update_memory(
        self, gates: Gates, cell: Hidden, *, candidate: Map = torch.tanh, norm: Map | None = None
    ) -> LSTMState:
        """Return the memory update: gate pre-activations [..., 4H] and the previous c [..., H] to the new state.

        Args:
            candidate: the nonlinearity of g.
            norm: another norm of the memory than the cell's; unused if `cell_norm` is `none`.
        """
        if gates.is_cuda and candidate is torch.tanh and self.cell_norm == "none" and self._fusible(gates, cell):
            return self._fused(gates, cell)
        i, f, g, o = gates.chunk(NUM_GATES, dim=-1)
        if self.forget_bias:
            f = f + self.forget_bias
        cell = self.bounded(torch.sigmoid(f) * cell + torch.sigmoid(i) * candidate(g))
        if self.cell_norm == "none":
            carried = seen = cell
        else:
            normalised = norm(cell) if norm else self.memory_norm(cell, self.cell_gain, self.cell_bias, self.eps)
            carried = normalised if self.cell_norm in ("state", "both") else cell
            seen = normalised if self.cell_norm in ("output", "both") else cell
        return LSTMState(torch.sigmoid(o) * torch.tanh(seen), carried)

    def _fusible(self, gates: Gates, cell: Hidden) -> bool:
        """Return True if torch has one kernel for this update, whose operations take a GPU longer to start."""
        unbounded = type(self).bounded is LSTMCell.bounded
        exists = torch.cuda.is_available() and not values_are_unknown()
        return unbounded and exists and gates.shape[:-1] == cell.shape[:-1]

    def _fused(self, gates: Gates, cell: Hidden) -> LSTMState:
        """Return `update_memory` of a cell without a norm or bound of its memory, by one kernel of a GPU."""
        gates = gates.to(cell.dtype).flatten(0, -2)
        offset = torch.zeros_like(gates)
        if self.forget_bias:
            offset[:, self.hidden_size : 2 * self.hidden_size] = self.forget_bias
        updated = torch.ops.aten._thnn_fused_lstm_cell(gates, offset, cell.flatten(0, -2))
        return LSTMState(*(part.view_as(cell) for part in updated[:2]))

    def bounded(self, cell: Hidden) -> Hidden:
        """Return the new memory before any norm of it, unchanged; a cell with a bound on its values defines it."""
        return cell

    def initial_state(self, *batch: int) -> LSTMState:
        zeros = self.zeros(*batch, self.hidden_size)
        return LSTMState(zeros, zeros)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, cell_norm={self.cell_norm}, forget_bias={self.forget_bias:g}, eps={self.eps:g}"
