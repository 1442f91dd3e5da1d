"""The listener: a stack of recurrent layers that shortens time on the way up (Chan et al. 2016, section 3.1).

Layer j, with input rows x and the independent choices in brackets:

    y = layer(x)                    a bidirectional LSTM, or another [layer]
    y = y + x                       [residual_from <= j]
    y = reduce(y)                   groups of time_reduction[j] rows become one  [reduction]
    y = norm(y)                     [output_norm]

Dropout acts on the layer's output, before the sum, or on its input [dropout_at].
"""

from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from las.config.build import require, shown
from las.nn import rnn
from las.nn.cells.base import LSTMCell
from las.nn.dropout import Dropout
from las.nn.masking import mask_of
from las.nn.normalisation import OUTPUT_NORMS
from las.nn.rnn import BidirectionalLayer, CellFactory, ListenerLayer
from las.nn.subsampling import REDUCTIONS, FrontEnd, reduce_time, reduced_length
from las.runtime.errors import ArgumentError, suggest

FrontEndFactory = Callable[[int], FrontEnd]
"""Makes a front end from the size of a row."""

LayerFactory = Callable[[CellFactory, int, int], ListenerLayer]
"""Makes a layer from (what makes its cells, size of a row, hidden size)."""

DROPOUT_PLACES = ("outputs", "between", "inputs")

T = TypeVar("T", float, str)


class Listener(nn.Module):
    """Features to encoded states.

    Args:
        input_size: features per frame.
        cell: makes the cell of one direction of one layer from (input_size, hidden_size).
        first_cell: makes the cell of the first layer; `cell` by default.
        layer: makes a layer from (cell, size of a row, hidden_size): `BidirectionalLayer`, `UnidirectionalLayer` or one
            of your own.
        num_layers: number of layers.
        hidden_size: H per direction; the output of a bidirectional layer is 2H wide.
        time_reduction: one factor per layer, applied after it; the product is the whole reduction.
        reduction: `concat`, `max_pool`, `stride` or `mean`.
        input_reduction: number of feature rows that are stacked before the first layer.
        front_end: makes the front end before the first layer from the size of a row; None for none.
        dropout: the probability, while training; or one for each layer.
        dropout_at: `outputs` of all layers, `between` (the inputs of all but the first), or `inputs` of all.
        residual_from: the first layer (counted from 0, at least 1) whose input is added to its output.
        output_norm: `none`, `layer`, `instance`, `instance_padded` or `batch`, of the rows that go from one layer to
            the next; or one name for each layer.
        input_noise: standard deviation of Gaussian noise added to the features while training.

    >>> import las, torch
    >>> listener = las.Listener(40, cell=las.LNGlobalLSTMCell, num_layers=3, hidden_size=16, time_reduction=(2, 2, 1))
    >>> encoded, num_states = listener(torch.randn(2, 50, 40), num_frames=torch.tensor([50, 31]))
    >>> encoded.shape, num_states.tolist()
    (torch.Size([2, 13, 32]), [13, 8])
    """

    def __init__(
        self,
        input_size: int,
        *,
        cell: CellFactory,
        first_cell: CellFactory | None = None,
        layer: LayerFactory = BidirectionalLayer,
        num_layers: int = 3,
        hidden_size: int = 128,
        time_reduction: Sequence[int] = (2, 2, 1),
        reduction: str = "concat",
        input_reduction: int = 1,
        front_end: FrontEndFactory | None = None,
        dropout: float | Sequence[float] = 0.0,
        dropout_at: str = "outputs",
        residual_from: int | None = None,
        output_norm: str | Sequence[str] = "none",
        input_noise: float = 0.0,
    ) -> None:
        super().__init__()
        require("num_layers", num_layers, 0)
        require("hidden_size", hidden_size, 1)
        require("dropout", dropout, 0.0, 1.0)
        require("input_noise", input_noise, 0.0)
        if len(time_reduction) != num_layers:
            raise ArgumentError(
                f"time_reduction={shown(time_reduction)} needs one factor for each of the {num_layers} layers, for "
                f"example {shown([2] * (num_layers - 1) + [1])}"
            )
        if min(time_reduction, default=1) < 1:
            raise ArgumentError(f"time_reduction={shown(time_reduction)} needs factors of at least 1")
        require("input_reduction", input_reduction, 1)
        _check("reduction", reduction, REDUCTIONS)
        _check("dropout_at", dropout_at, DROPOUT_PLACES)
        self.hidden_size = hidden_size
        self.time_reduction = tuple(time_reduction)
        self.reduction = reduction
        self.input_noise = input_noise
        self.dropouts = nn.ModuleList(map(Dropout, _per_layer("dropout", dropout, num_layers)))
        self.dropout_at = dropout_at
        self.residual_from = num_layers if residual_from is None else residual_from
        self.input_reduction = input_reduction
        size = input_size * input_reduction
        self.front_end = front_end(size) if front_end else None
        size = self.front_end.output_size if self.front_end else size
        self.layers = nn.ModuleList()
        self.norms = nn.ModuleList()
        for factor, norm in zip(self.time_reduction, _norms(output_norm, num_layers), strict=True):
            made = layer(cell if self.layers else first_cell or cell, size, hidden_size)
            if not isinstance(made, ListenerLayer):
                raise ArgumentError(f"layer: a {type(made).__name__} is no ListenerLayer, as a UnidirectionalLayer is")
            self._check_residual(size, made.output_size)
            self.layers.append(made)
            size = made.output_size * (factor if reduction == "concat" else 1)
            self.norms.append(OUTPUT_NORMS[norm](size))
        self.output_size = size

    def _check_residual(self, input_size: int, output_size: int) -> None:
        """Raise ArgumentError if the next layer has a residual connection between rows of different sizes."""
        index = len(self.layers)
        if self.residual_from < 1:
            raise ArgumentError(
                f"residual_from={self.residual_from} must be at least 1: layer 0 reads features, not states"
            )
        if index >= self.residual_from and input_size != output_size:
            raise ArgumentError(
                f"residual_from={self.residual_from}: layer {index} reads {input_size} values per row and "
                f"writes {output_size}, which cannot be added: shorten time below it by max_pool, stride or mean"
            )

    def explain(self) -> str:
        """A line for the log of a run: the kernel of the recurrences on the device of the parameters, and why."""
        cell = next((module for module in self.modules() if isinstance(module, LSTMCell)), None)
        return "recurrences: none" if cell is None else rnn.explain(cell, next(cell.parameters()))

    @property
    def reductions(self) -> tuple[int, ...]:
        """Factors of all time reductions in order of application: each rounds up."""
        of_front_end = self.front_end.time_reduction if self.front_end else ()
        return self.input_reduction, *of_front_end, *self.time_reduction

    def num_states(self, num_frames: Int[Tensor, "batch"]) -> Int[Tensor, "batch"]:
        """Encoded states of utterances with `num_frames` feature rows."""
        for factor in self.reductions:
            num_frames = reduced_length(num_frames, factor)
        return num_frames

    def forward(
        self, features: Float[Tensor, "batch frames input"], num_frames: Int[Tensor, "batch"]
    ) -> tuple[Float[Tensor, "batch states output"], Int[Tensor, "batch"]]:
        """Encoded states [batch, states, output_size], zero in padding, and how many each utterance has."""
        if self.input_reduction > 1:
            features = features.masked_fill(~mask_of(num_frames, features.shape[1], features.device).unsqueeze(-1), 0.0)
        rows, num_rows = reduce_time(features, num_frames, self.input_reduction, "concat")
        if self.training and self.input_noise:
            rows = rows + self.input_noise * torch.randn_like(rows)
        if self.front_end:
            rows, num_rows = self.front_end(rows, num_rows)
        for index, (layer, dropout, norm) in enumerate(zip(self.layers, self.dropouts, self.norms, strict=True)):
            on_inputs = self.dropout_at == "inputs" or (self.dropout_at == "between" and index)
            outputs = layer(dropout(rows) if on_inputs else rows, num_rows)
            if self.dropout_at == "outputs":
                outputs = dropout(outputs)
            if index >= self.residual_from:
                outputs = outputs + rows
            rows, num_rows = reduce_time(outputs, num_rows, self.time_reduction[index], self.reduction)
            rows = norm(rows, num_rows)
        return rows, num_rows


def _check(name: str, value: str, known: Collection[str]) -> None:
    if value not in known:
        raise ArgumentError(f"{name}={value!r} does not exist.{suggest(value, known)}")


def _norms(output_norm: str | Sequence[str], num_layers: int) -> list[str]:
    """The norm of each layer: a single name applies to all layers but the last, whose rows no layer reads."""
    if isinstance(output_norm, str):
        names = [output_norm] * (num_layers - 1) + ["none"] * min(num_layers, 1)
    else:
        names = list(output_norm)
    for name in [output_norm] if isinstance(output_norm, str) else names:
        _check("output_norm", name, OUTPUT_NORMS)
    return _per_layer("output_norm", names, num_layers)


def _per_layer(name: str, values: T | Sequence[T], num_layers: int) -> list[T]:
    """One value for each layer, where a single value applies to all."""
    each = list(values) if isinstance(values, Sequence) else [values] * num_layers
    if len(each) != num_layers:
        raise ArgumentError(f"{name}={each} needs one value, or one for each of the {num_layers} layers")
    return each
