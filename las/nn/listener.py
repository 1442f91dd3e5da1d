"""The listener: a stack of recurrent layers that shortens time on the way up (Chan et al. 2016, section 3.1).

Layer j, with input rows x and the independent choices in brackets:

    y = layer(x)                    a bidirectional LSTM, or another [layer]
    y = y + x                       [residual_from <= j]
    y = reduce(y)                   groups of time_reduction[j] rows become one  [reduction]
    y = norm(y)                     [output_norm]

Dropout acts on the layer's output, before the sum, or on its input [dropout_at]. Lengths follow the ceil rule: one that
is no multiple of the factor is rounded up, and the last group is completed with zeros (`max_pool` and `mean` use only
the rows that exist). A listener whose layers read in one direction also takes its features piece by piece (`stream`).
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from las.config.build import require, shown
from las.nn.cells.base import RecurrentCell
from las.nn.dropout import Dropout, DropoutFactory
from las.nn.kernels import choice
from las.nn.kernels.cpp.tensors import allocator
from las.nn.normalisation import OUTPUT_NORMS, Lengths, OutputNorm, Rows, RunningMoments, mask_of, masked_mean
from las.nn.rnn import BidirectionalLayer, CellFactory, ListenerLayer
from las.nn.streaming import RowConvolution, Stage, Window
from las.runtime.errors import ArgumentError, ConfigError, require_known

Reduced = Float[Tensor, "batch reduced output"]
"""Fewer rows, of another size."""

Levels = list[tuple[Tensor, Tensor]]
"""Rows [batch, rows, size] above each layer, and how many each utterance has."""

FrontEndFactory = Callable[[int], "FrontEnd"]
"""Makes a front end from the size of a row."""

LayerFactory = Callable[[CellFactory, int, int], ListenerLayer]
"""Makes a layer from (what makes its cells, size of a row, hidden size)."""

DROPOUT_PLACES = ("outputs", "between", "inputs")

T = TypeVar("T", float, str)


class FrontEnd(nn.Module):
    """Base class of what stands before the listener's layers, made from the size of a feature row.

    The listener calls it and reads `output_size` and `time_reduction`, which a subclass sets.
    """

    output_size: int
    time_reduction: Sequence[int]
    """Factors by which rows become fewer, in order; each rounds up."""
    reach: tuple[int, int] | None = None
    """Rows that an output reads before and after those that it stands for; None where it may read all."""

    def forward(self, rows: Rows, num_rows: Lengths) -> tuple[Reduced, Lengths]:
        """Reduce [batch, rows, input_size] to [batch, reduced, output_size], zero in padding; with new lengths."""
        raise TypeError(f"{type(self).__name__} must define forward")


class Listener(nn.Module):
    """Features to encoded states.

    Args:
        input_size: features per frame.
        cell: makes the cell of one direction of one layer from (input_size, hidden_size).
        first_cell: makes the cell of the first layer; `cell` by default.
        layer: makes a layer from (cell, size of a row, hidden_size): `BidirectionalLayer`, `UnidirectionalLayer` or one
            of your own.
        num_layers: number of layers.
        hidden_size: H per direction; the output of a bidirectional layer of LSTMs is 2H wide.
        time_reduction: one factor per layer, applied after it; the product is the whole reduction.
        reduction: `concat`, `max_pool`, `stride` or `mean`.
        input_reduction: number of feature rows that are stacked before the first layer.
        front_end: makes the front end before the first layer from the size of a row; None for none.
        dropout: the probability, while training; or one for each layer.
        dropout_mask: makes the dropout from its probability: `Dropout`, `UtteranceDropout`, `BatchDropout` or your own.
        dropout_at: `outputs` of all layers, `between` (the inputs of all but the first), or `inputs` of all.
        residual_from: the first layer (counted from 0, at least 1) whose input is added to its output.
        output_norm: `none`, `layer`, `instance`, `instance_padded` or `batch`, of the rows that go from one layer to
            the next; or one name for each layer.
        input_noise: standard deviation of Gaussian noise added to the features while training.
        lookahead: encoded states ahead that a row convolution above the layers reads; 0 for none.

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
        dropout_mask: DropoutFactory = Dropout,
        dropout_at: str = "outputs",
        residual_from: int | None = None,
        output_norm: str | Sequence[str] = "none",
        input_noise: float = 0.0,
        lookahead: int = 0,
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
        require_known("reduction", reduction, REDUCTIONS)
        require_known("dropout_at", dropout_at, DROPOUT_PLACES)
        self.input_size, self.hidden_size = input_size, hidden_size
        self.time_reduction = tuple(time_reduction)
        self.reduction = reduction
        self.input_noise = input_noise
        self.dropouts = nn.ModuleList(map(dropout_mask, _per_layer("dropout", dropout, num_layers)))
        self.dropout_at = dropout_at
        self.residual_from = num_layers if residual_from is None else residual_from
        if residual_from is not None and residual_from < 1:
            raise ArgumentError(f"residual_from={residual_from} must be at least 1: layer 0 reads features, not states")
        self.input_reduction = input_reduction
        size = input_size * input_reduction
        self.front_end = front_end(size) if front_end else None
        size = self.front_end.output_size if self.front_end else size
        self.layers = nn.ModuleList()
        self.norms = nn.ModuleList()
        self.sizes: list[int] = []
        for factor, norm in zip(self.time_reduction, _norms(output_norm, num_layers), strict=True):
            made = layer(cell if self.layers else first_cell or cell, size, hidden_size)
            if not isinstance(made, ListenerLayer):
                raise ArgumentError(f"layer: a {type(made).__name__} is no ListenerLayer, as a UnidirectionalLayer is")
            if len(self.layers) >= self.residual_from and size != made.output_size:
                raise ArgumentError(
                    f"residual_from={residual_from}: layer {len(self.layers)} reads {size} values per row and writes "
                    f"{made.output_size}, which cannot be added: shorten time below it by max_pool, stride or mean"
                )
            self.layers.append(made)
            size = made.output_size * (factor if reduction == "concat" else 1)
            self.norms.append(OUTPUT_NORMS[norm](size))
            self.sizes.append(size)
        self.output_size = size
        self.lookahead = RowConvolution(size, lookahead) if lookahead else None

    def explain(self) -> str:
        """Return a line for the log of a run: the kernel of recurrences on the device of the parameters, and why."""
        cell = next((module for module in self.modules() if isinstance(module, RecurrentCell)), None)
        return "recurrences: none" if cell is None else choice.explain(cell, next(cell.parameters()))

    @property
    def reductions(self) -> tuple[int, ...]:
        """Factors of all time reductions in order of application: each rounds up."""
        of_front_end = self.front_end.time_reduction if self.front_end else ()
        return self.input_reduction, *of_front_end, *self.time_reduction

    def num_states(self, num_frames: Lengths) -> Lengths:
        """Return the encoded states of utterances with `num_frames` feature rows."""
        for factor in self.reductions:
            num_frames = reduced_length(num_frames, factor)
        return num_frames

    def forward(self, features: Rows, num_frames: Lengths, levels: Levels | None = None) -> tuple[Reduced, Lengths]:
        """Return the encoded states [batch, states, output_size], zero in padding, and how many each utterance has.

        A list of `levels` takes the rows above every layer, and their numbers.
        """
        rows, num_rows = self.enter(features, num_frames)
        for index, layer in enumerate(self.layers):
            rows, num_rows = self.rise(index, layer, rows, num_rows)
            if levels is not None:
                levels.append((rows, num_rows))
        return self.lookahead(rows, num_rows) if self.lookahead else (rows, num_rows)

    def enter(self, features: Rows, num_frames: Lengths) -> tuple[Reduced, Lengths]:
        """Return what the first layer reads."""
        if self.input_reduction > 1:
            features = features.masked_fill(~mask_of(num_frames, features.shape[1], features.device).unsqueeze(-1), 0.0)
        rows, num_rows = reduce_time(features, num_frames, self.input_reduction, "concat")
        if self.training and self.input_noise:
            rows = rows + self.input_noise * torch.randn_like(rows)
        return self.front_end(rows, num_rows) if self.front_end else (rows, num_rows)

    def rise(
        self, index: int, layer: Callable[[Tensor, Tensor], Tensor], rows: Rows, num_rows: Lengths
    ) -> tuple[Reduced, Lengths]:
        """Return what layer `index`, computed by `layer`, and all that follows it make of what it reads."""
        dropout = self.dropouts[index]
        on_inputs = self.dropout_at == "inputs" or (self.dropout_at == "between" and index)
        outputs = layer(dropout(rows) if on_inputs else rows, num_rows)
        if self.dropout_at == "outputs":
            outputs = dropout(outputs)
        if index >= self.residual_from:
            outputs = outputs + rows
        return self._reduced(index, outputs, num_rows)

    def stream(self, features: Rows, state: Any = None, is_last: bool = False) -> tuple[Reduced, Any]:
        """Return the encoded states that the next frames complete, and the state for those that follow.

        Args:
            features: the next frames of each stream [batch, frames, size], as many of all, none of them padding.
            state: what the call before returned; None in the beginning.
            is_last: there are no more frames.

        All outputs together are those of `forward` on the whole. For evaluation: what belongs to training is left out.
        Raises ConfigError for a listener that waits for the end of an utterance.
        """
        stages = [*self.stages()]
        states, rows = [], features
        for stage, before in zip(stages, state or [None] * len(stages), strict=True):
            rows, after = stage(rows, before, is_last)
            states.append(after)
        return rows, states

    def stages(self) -> Iterator[Stage]:
        """Yield what features pass through, one after the other, as functions with a state (`stream`)."""
        for module in self.modules():
            if isinstance(module, OutputNorm) and not module.is_local:
                raise ConfigError(_waits(type(module).__name__, "output_norm=layer"))
            if isinstance(module, RunningMoments) and len(module.mean) > 1:
                raise ConfigError(_waits("batch norm with moments of its own for each frame", "num_steps=1"))
        size = self.input_size * self.input_reduction
        yield Window(partial(reduce_time, factor=self.input_reduction, reduction="concat"), size, self.input_reduction)
        if self.front_end:
            if self.front_end.reach is None:
                raise ConfigError(_waits(type(self.front_end).__name__, "front_end=null, or one with a reach"))
            stride = 1
            for factor in self.front_end.time_reduction:
                stride *= factor
            yield Window(self.front_end, self.front_end.output_size, stride, *self.front_end.reach)
        yield from self.stages_of_layers()
        if self.lookahead:
            yield Window(self.lookahead, self.output_size, after=self.lookahead.context)

    def stages_of_layers(self) -> Iterator[Stage]:
        """Yield layers and reductions of time for `stages`."""
        for index, factor in enumerate(self.time_reduction):
            yield partial(self._streamed, index)
            size = self._layer(index).output_size * (factor if self.reduction == "concat" else 1)
            yield Window(partial(self._reduced, index), size, factor)

    def _layer(self, index: int) -> ListenerLayer:
        return cast(ListenerLayer, self.layers[index])

    def _streamed(self, index: int, rows: Rows, state: Any, is_last: bool) -> tuple[Reduced, Any]:
        outputs, state = self._layer(index).stream(rows, state)
        return outputs + rows if index >= self.residual_from else outputs, state

    def _reduced(self, index: int, rows: Rows, num_rows: Lengths) -> tuple[Reduced, Lengths]:
        rows, num_rows = reduce_time(rows, num_rows, self.time_reduction[index], self.reduction)
        norm = self.norms[index]
        return norm(rows, num_rows) if isinstance(norm, OutputNorm) else rows, num_rows


def _waits(part: str, remedy: str) -> str:
    return f"{part} reads whole utterances, and a stream has no end: train with {remedy}"


def _norms(output_norm: str | Sequence[str], num_layers: int) -> list[str]:
    """Return the norm of each layer: a single name applies to all layers but the last, whose rows no layer reads."""
    if isinstance(output_norm, str):
        names = [output_norm] * (num_layers - 1) + ["none"] * min(num_layers, 1)
    else:
        names = list(output_norm)
    for name in [output_norm] if isinstance(output_norm, str) else names:
        require_known("output_norm", name, OUTPUT_NORMS)
    return _per_layer("output_norm", names, num_layers)


def _per_layer(name: str, values: T | Sequence[T], num_layers: int) -> list[T]:
    """One value for each layer, where a single value applies to all."""
    each = list(values) if isinstance(values, Sequence) else [values] * num_layers
    if len(each) != num_layers:
        raise ArgumentError(f"{name}={each} needs one value, or one for each of the {num_layers} layers")
    return each


def reduced_length(length: Lengths, factor: int) -> Lengths:
    """Rows after a reduction by `factor`: ceil(length / factor)."""
    return torch.div(length + factor - 1, factor, rounding_mode="floor")


def _max_pool(rows: Tensor, mask: Tensor) -> Tensor:
    highest = rows.masked_fill(~mask, torch.finfo(rows.dtype).min).amax(2)
    return highest.masked_fill(~mask.any(2), 0.0)


REDUCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "concat": lambda rows, mask: rows.flatten(2),  # pyramidal: the next layer's input grows (Chan et al. 2016)
    "max_pool": _max_pool,  # Zeyer et al. 2018; Zeineldeen et al. 2020
    "stride": lambda rows, mask: rows[:, :, 0],  # the first row of each group
    "mean": lambda rows, mask: masked_mean(rows, mask, dim=2),
}
"""Groups of rows [batch, groups, factor, size], and their mask, to one row each."""


class WithZeros(torch.autograd.Function):
    """Rows with this many rows of zeros after them, in memory that is used again."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, count: int) -> Tensor:
        batch, ctx.length, size = rows.shape
        longer = allocator.empty(rows, batch, ctx.length + count, size)
        longer[:, : ctx.length] = rows
        longer[:, ctx.length :] = 0.0
        return longer

    @staticmethod
    def backward(ctx: Any, grads: Tensor) -> tuple[Tensor, None]:
        return grads[:, : ctx.length], None


def reduce_time(rows: Rows, num_rows: Lengths, factor: int, reduction: str) -> tuple[Reduced, Lengths]:
    """Reduce [batch, rows, size] to [batch, ceil(rows / factor), size] (`concat`: factor * size), and the lengths.

    Padding must be zero, and stays so.
    """
    if factor == 1:
        return rows, num_rows
    missing = -rows.shape[1] % factor
    # Lengths are symbols in an export: nothing may depend on them. Memory is used again on a CPU alone.
    if torch.compiler.is_exporting() or rows.device.type != "cpu":
        rows = functional.pad(rows, (0, 0, 0, missing))
    elif missing:
        rows = WithZeros.apply(rows, missing)
    mask = mask_of(num_rows, rows.shape[1], rows.device).unsqueeze(-1)
    grouped = rows.unflatten(1, (-1, factor))
    return REDUCTIONS[reduction](grouped, mask.unflatten(1, (-1, factor))), reduced_length(num_rows, factor)
