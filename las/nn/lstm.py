"""A stack of recurrent layers of any cell, called as `torch.nn.LSTM` is."""

import contextlib
import functools
import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from las.config import build
from las.nn.cells.base import LSTMCell, RecurrentCell, State, values_are_unknown
from las.nn.cells.gru import GRUCell
from las.nn.cells.lstm import PlainLSTMCell
from las.nn.cells.projected_lstm import ProjectedLSTMCell
from las.nn.factories import checked
from las.nn.nested import filled
from las.nn.rnn import BidirectionalLayer, CellFactory, RecurrentLayer
from las.runtime.errors import ArgumentError

States = Any
"""The parts of the cells' states, each [layers * directions, batch, ...]: for LSTMs a tuple of h and c, [..., H], for a
state of one part, as that of a GRU, the tensor alone."""

IN_TORCH: dict[type[RecurrentCell], type[nn.LSTM | nn.GRU]] = {
    PlainLSTMCell: nn.LSTM,
    ProjectedLSTMCell: nn.LSTM,
    GRUCell: nn.GRU,
}
"""Cells of which torch has an equal."""


class LSTM(nn.Module):
    """A replacement for `torch.nn.LSTM` and `torch.nn.GRU` with a choice of cells: layer-normalised LSTMs by default.

    >>> import las, torch
    >>> lstm = las.LSTM(80, 32, num_layers=2, bidirectional=True, batch_first=True)
    >>> output, (h_n, c_n) = lstm(torch.zeros(3, 7, 80), lengths=[7, 5, 2])
    >>> output.shape, h_n.shape
    (torch.Size([3, 7, 64]), torch.Size([4, 3, 32]))

    Differences from `torch.nn.LSTM`: `lengths` may stand in for packing, and the cell decides which biases there are.
    The recurrence is computed by the fastest kernel that knows the cell (`las.use_kernel` chooses another).

    Names in `state_dict()`: `layers.<number>.cell.<parameter>`, with two directions
    `layers.<number>.forwards.cell.<parameter>` and `layers.<number>.backwards.cell.<parameter>`. The parameters are
    those of the cell's class, gates of LSTMs in the order i, f, g, o: `lstm` has `input_weight` [4H, input],
    `recurrent_weight` [4H, H] and one `bias` [4H]; `ln_global` the two weights, `input_gain`, `recurrent_gain` and its
    biases, all [4H].

    Args:
        input_size: values per frame.
        hidden_size: H, per direction.
        num_layers: layers, each of which reads the outputs of the one below. Arguments after it have to be named.
        batch_first: tensors are [batch, frames, size] instead of [frames, batch, size].
        dropout: probability, while training, for the outputs of every layer but the last.
        bidirectional: a second cell in each layer reads backwards; outputs are twice as wide, forwards first.
        device: where the parameters are made.
        dtype: their type, a floating one.
        cell: an option of `configs/cell` by its name (`ln_global`, `lstm`, ...), a cell class, or a function from
            (input_size, hidden_size, **options) to a cell.
        options: of the cell, for example `cell_norm="output"`, `forget_bias=1.0`, or `norm="rms"`, an option of
            `configs/norm` by its name. `bias=True` and `proj_size=0`, as `torch.nn.LSTM` has them, are taken for every
            cell.

    Raises ConfigError for a cell or an option that does not exist, and for sizes that cannot be.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *positional: Any,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        cell: str | CellFactory | Callable[..., RecurrentCell] = "ln_global",
        **options: Any,
    ) -> None:
        super().__init__()
        if positional:
            raise ArgumentError(_by_name(input_size, hidden_size, num_layers, positional))
        build.require("input_size", input_size, 1)
        build.require("hidden_size", hidden_size, 1)
        build.require("num_layers", num_layers, 1)
        build.require("dropout", dropout, 0.0, 1.0)
        if dropout and num_layers == 1:
            warnings.warn(f"dropout={dropout} acts between layers, and num_layers=1 has one layer", stacklevel=2)
        if dtype is not None and not dtype.is_floating_point:
            raise ArgumentError(f"dtype={dtype} is no floating type: use torch.float32, for example")
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.cell = cell if isinstance(cell, str) else getattr(cell, "__name__", type(cell).__name__)
        self._make = _factory(cell, options)
        layer = BidirectionalLayer if bidirectional else RecurrentLayer
        self.layers = nn.ModuleList()
        with contextlib.nullcontext() if device is None else torch.device(device):
            for _ in range(num_layers):
                made = layer(self._make, input_size, hidden_size)
                self.layers.append(made)
                input_size = made.output_size
        self.to(dtype)

    @classmethod
    def from_torch(cls, module: nn.LSTM | nn.GRU) -> "LSTM":
        """Return an equal stack with copies of the weights of a module of torch.

        Its cells are `lstm`, for an LSTM with projections (`proj_size`) `projected_lstm`, for a GRU `gru`. The gates
        have the same order; two biases of which only the sum matters become one.
        """
        options: dict[str, Any] = {"proj_size": module.proj_size} if module.proj_size else {}
        like = module.get_parameter("weight_ih_l0")
        stack = cls(
            module.input_size,
            module.hidden_size,
            module.num_layers,
            batch_first=module.batch_first,
            bidirectional=module.bidirectional,
            device=like.device,
            dtype=like.dtype,
            cell="gru" if isinstance(module, nn.GRU) else "projected_lstm" if options else "lstm",
            **options,
        )
        stack.dropout = module.dropout
        stack.train(module.training)
        with torch.no_grad():
            for layer, weights in zip(stack._directions(), module.all_weights, strict=True):
                cell: Any = layer.cell
                cell.input_weight.copy_(weights[0])
                cell.recurrent_weight.copy_(weights[1])
                if options:
                    cell.projection_weight.copy_(weights[-1])
                if module.bias:
                    of_input, of_hidden = weights[2], weights[3].clone()
                    if isinstance(cell, GRUCell):
                        cell.candidate_bias.copy_(of_hidden[2 * cell.hidden_size :])
                        of_hidden[2 * cell.hidden_size :] = 0.0
                    cell.bias.copy_(of_input + of_hidden)
        return stack

    def to_torch(self) -> nn.LSTM | nn.GRU:
        """Return an equal `torch.nn.LSTM` or `torch.nn.GRU` with copies of the weights; a forget bias becomes a bias.

        Raises ArgumentError for cells other than `lstm`, `projected_lstm` and `gru`, and for these with a norm.
        """
        cells: list[Any] = [layer.cell for layer in self._directions()]
        kind = IN_TORCH.get(type(cells[0]))
        if kind is None or getattr(cells[0], "cell_norm", "none") != "none":
            raise ArgumentError(
                f"{cells[0]}: torch.nn.LSTM has no equal of it, only of cell='lstm' and cell='projected_lstm' without "
                "a norm, and torch.nn.GRU of cell='gru'"
            )
        size = cells[0].output_size
        module = kind(
            self.input_size,
            self.hidden_size,
            self.num_layers,
            batch_first=self.batch_first,
            dropout=self.dropout if self.num_layers > 1 else 0.0,
            bidirectional=self.bidirectional,
            **({"proj_size": size} if size != self.hidden_size else {}),
        )
        for cell, parameters in zip(cells, module.all_weights, strict=True):
            for parameter, value in zip(parameters, cell.torch_weights(), strict=True):
                parameter.data = value.detach().clone()
        return module.train(self.training)

    @property
    def all_weights(self) -> list[list[nn.Parameter]]:
        """The parameters of each layer and direction, in the order of `h_n`."""
        return [[*layer.cell.parameters()] for layer in self._directions()]

    def reset_parameters(self) -> None:
        """Draw new initial values, as a new stack of such cells has them."""
        for layer in self._directions():
            cell = layer.cell
            with next(cell.parameters()).device:
                new = self._make(cell.input_size, cell.hidden_size)
            cell.load_state_dict(new.state_dict())

    def flatten_parameters(self) -> None:
        """Do nothing: kernels read the parameters where they are."""

    @property
    def num_directions(self) -> int:
        """The number of directions: 1, or 2 for a bidirectional stack."""
        return 2 if self.bidirectional else 1

    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: States | None = None,
        *,
        lengths: Tensor | Sequence[int] | None = None,
    ) -> tuple[Tensor | PackedSequence, States]:
        """Return the outputs of the last layer and the last states of all, as `torch.nn.LSTM` and `GRU` give them.

        Args:
            input: [frames, batch, input_size], with `batch_first` [batch, frames, input_size], unbatched
                [frames, input_size], or a PackedSequence.
            hx: (h_0, c_0), each [layers * directions, batch, H] (unbatched without batch); zeros by default. Other
                cells have other `States`.
            lengths: true frames of each row of a padded batch, [batch]; padding reaches no output, state or gradient.

        Returns:
            Outputs [..., directions * output size], packed if the input was, zero in padding, and (h_n, c_n) like `hx`:
            after each row's last true frame, backwards after its first.

        Raises ArgumentError for shapes that do not fit, and for `lengths` of an input that needs none.
        """
        batch = _read(input, lengths, self.batch_first)
        if batch.frames.shape[-1] != self.input_size:
            raise ArgumentError(
                f"input has frames of {batch.frames.shape[-1]} values, but input_size={self.input_size}"
            )
        output, states = self._run(batch, self._initial(hx, batch))
        parts = tuple(torch.stack(each) for each in zip(*states, strict=True))
        if batch.is_single:
            parts = tuple(part.squeeze(1) for part in parts)
        last = parts if len(parts) > 1 else parts[0]
        if isinstance(input, PackedSequence):
            return _packed_like(output, batch.lengths, input), last
        if batch.is_single:
            return output.squeeze(0), last
        return output if self.batch_first else output.transpose(0, 1), last

    def _run(self, batch: "_Batch", initial: Sequence[State | None]) -> tuple[Tensor, list[State]]:
        """All layers over a padded batch: outputs [batch, frames, size], last states layer by layer."""
        frames = batch.frames
        states: list[State] = []
        for number, layer in enumerate(self.layers):
            if number:
                frames = functional.dropout(frames, self.dropout, self.training)
            if isinstance(layer, BidirectionalLayer):
                both = initial[2 * number], initial[2 * number + 1]
                frames, last = layer.with_states(frames, batch.lengths, both)
                states += last
            else:
                frames, state = layer(frames, batch.lengths, initial[number])
                states.append(state)
        return frames, states

    def _initial(self, hx: States | None, batch: "_Batch") -> list[State | None]:
        """Return the state that each layer and direction starts from, [batch, ...]."""
        count = self.num_layers * self.num_directions
        if hx is None:
            return [None] * count
        zeros = self._directions()[0].cell.initial_state(batch.frames.shape[0])
        names, parts = [f"{field[0]}_0" for field in zeros._fields], (hx,) if isinstance(hx, Tensor) else tuple(hx)
        if len(parts) != len(names):
            raise ArgumentError(f"the state has {len(parts)} parts, expected {len(names)}: {', '.join(names)}")
        for name, part, zero in zip(names, parts, zeros, strict=True):
            expected = (count, *zero.shape[batch.is_single :])
            if part.shape != expected:
                raise ArgumentError(f"{name} has the shape {list(part.shape)}, expected {list(expected)}")
            if part.device != batch.frames.device or not part.is_floating_point():
                raise ArgumentError(
                    f"{name} is {part.dtype} on {part.device}, but the input is {batch.frames.dtype} on "
                    f"{batch.frames.device}: convert it, for example with {name}.to(input)"
                )
        rows = (part.unsqueeze(1) if batch.is_single else part for part in parts)
        return [filled(zeros, each) for each in zip(*(part.unbind(0) for part in rows), strict=True)]

    def _directions(self) -> list[RecurrentLayer]:
        """Layers of one direction in the order of `h_n`."""
        return [module for module in self.modules() if isinstance(module, RecurrentLayer)]

    def extra_repr(self) -> str:
        return (
            f"{self.input_size}, {self.hidden_size}, num_layers={self.num_layers}, batch_first={self.batch_first}, "
            f"dropout={self.dropout:g}, bidirectional={self.bidirectional}, cell={self.cell!r}"
        )


class _Batch(NamedTuple):
    """A padded batch: frames [batch, frames, input_size] and true lengths [batch]."""

    frames: Tensor
    lengths: Tensor
    is_single: bool


def _read(input: Tensor | PackedSequence, lengths: Tensor | Sequence[int] | None, batch_first: bool) -> _Batch:
    if lengths is not None and (isinstance(input, PackedSequence) or input.dim() == 2):
        reason = "a PackedSequence has its own" if isinstance(input, PackedSequence) else "the input has one row"
        raise ArgumentError(f"lengths are for a padded batch, and {reason}: leave lengths out")
    if isinstance(input, PackedSequence):
        frames, num_frames = pad_packed_sequence(input, batch_first=True)
        return _Batch(frames, num_frames, False)
    if input.dim() not in (2, 3):
        raise ArgumentError(f"input has {input.dim()} dimensions, expected 3, or 2 without a batch")
    frames = input.unsqueeze(0) if input.dim() == 2 else input if batch_first else input.transpose(0, 1)
    batch, longest = frames.shape[:2]
    if lengths is None:
        return _Batch(frames, torch.full((batch,), longest), input.dim() == 2)
    num_frames = torch.as_tensor(lengths)
    if num_frames.shape != (batch,) or num_frames.is_floating_point() or num_frames.dtype == torch.bool:
        raise ArgumentError(f"lengths should be {batch} whole numbers, one for each row of the batch")
    # Where values are not known yet, the operator of a layer compares them when the program runs.
    if batch and not values_are_unknown() and not 0 <= int(num_frames.min()) <= int(num_frames.max()) <= longest:
        raise ArgumentError(
            f"lengths run from {int(num_frames.min())} to {int(num_frames.max())}, but rows have {longest} frames"
        )
    return _Batch(frames, num_frames, False)


def _packed_like(output: Tensor, lengths: Tensor, like: PackedSequence) -> PackedSequence:
    """Return the outputs [batch, frames, size] packed in the order of the packed input."""
    if like.sorted_indices is not None:
        output, lengths = output[like.sorted_indices], lengths[like.sorted_indices]
    data = pack_padded_sequence(output, lengths.cpu(), batch_first=True).data
    return PackedSequence(data, like.batch_sizes, like.sorted_indices, like.unsorted_indices)


def _by_name(input_size: int, hidden_size: int, num_layers: int, positional: Sequence[Any]) -> str:
    """Explain what to write in place of positional arguments, in the order of `torch.nn.LSTM` or of an older one."""
    names = ("bias", "batch_first", "dropout", "bidirectional", "proj_size", "device", "dtype")
    named = ", ".join(f"{name}={value!r}" for name, value in zip(names, positional, strict=False))
    return (
        f"arguments after num_layers have to be named: torch.nn.LSTM's order is {', '.join(names)}, which is "
        f"las.LSTM({input_size}, {hidden_size}, {num_layers}, {named})"
    )


def _own_options(takes: Callable[[str], bool], options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of the cell: without `bias` and `proj_size` of `torch.nn.LSTM` if they are not its own."""
    if not options.get("bias", True) and not takes("bias"):
        raise ArgumentError(
            "bias=False: the cell decides which biases there are: they start at zero and stay there after "
            "requires_grad_(False)"
        )
    if options.get("proj_size") and not takes("proj_size"):
        raise ArgumentError(f"proj_size={options['proj_size']}: use cell='projected_lstm', which projects its output")
    return {name: value for name, value in options.items() if name not in ("bias", "proj_size") or takes(name)}


def _factory(cell: str | CellFactory | Callable[..., RecurrentCell], options: dict[str, Any]) -> CellFactory:
    for name, given in {"cell": cell, "norm": options.get("norm")}.items():
        if not isinstance(given, str | None):
            checked(name, given)
    if cell in (RecurrentCell, LSTMCell):
        raise ArgumentError(f"cell={cell} is a base class without equations: cell='lstm' is the plain LSTM")
    if isinstance(norm := options.get("norm"), str):
        options = options | {"norm": build.build(build.option("norm", norm), where="norm")}
    if isinstance(cell, str):
        card = build.option("cell", cell)
        options = _own_options(build.parameters(build.resolve(card["_target_"])).__contains__, options)
        return cast(CellFactory, build.build(card | options, where=f"cell={cell}"))
    if isinstance(cell, type):
        return build.checked(cell, _own_options(build.parameters(cell).__contains__, options), where="cell")
    return functools.partial(cell, **_own_options(inspect.signature(cell).parameters.__contains__, options))
