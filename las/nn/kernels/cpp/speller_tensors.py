"""Tensors that the C++ reads and writes of a speller (`spelling.h`, `attending.h`), and their structures."""

import ctypes
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from las.nn.attention.additive import AdditiveAttention
from las.nn.attention.base import Attention, AttentionMemory
from las.nn.attention.dot import DotAttention
from las.nn.attention.location import LocationAttention
from las.nn.attention.weight_feedback import WeightFeedbackAttention
from las.nn.cells.base import LSTMCell
from las.nn.kernels.cpp.layer import APART, POINTERS, Direction, norms_of
from las.nn.kernels.cpp.tensors import Int64s, Structure, dense
from las.nn.kernels.forms import (
    Parameters,
    forget_bias,
    input_weight_of,
    parameters_of,
    recurrent_weight_of,
    side_of,
)
from las.nn.normalisation import bounded_eps

WITH_FEEDBACK = 3
"""Number of the energy whose keys have one more column."""


class AttentionForm(NamedTuple):
    """The energy of a class of attentions, and the names of its parameters."""

    energy: int
    """Number of `Energy` in `attending.h`."""
    parameters: tuple[str, ...] = ()


FORMS: dict[type[Attention], AttentionForm] = {
    DotAttention: AttentionForm(0),
    AdditiveAttention: AttentionForm(1, ("score.weight",)),
    LocationAttention: AttentionForm(2, ("score.weight", "filters.weight", "location.weight")),
    WeightFeedbackAttention: AttentionForm(WITH_FEEDBACK, ("score.weight", "feedback.weight")),
}
"""The attentions that are compiled. A subclass may change the equations, so only these classes count."""


class InputSide(NamedTuple):
    """The input side of a cell: known + W below, or its layer norm if there is a gain."""

    known: Float[Tensor, "batch steps gates"]
    weight: Float[Tensor, "gates below"]
    gain: Tensor | None
    offset: Tensor | None


class PassInputs(NamedTuple):
    """All tensors with a gradient; one input side and one set of parameters per cell."""

    keys: Tensor
    values: Tensor
    attention: tuple[Tensor, ...]
    sides: tuple[InputSide, ...]
    cells: tuple[Parameters, ...]

    def flat(self) -> list[Tensor | None]:
        """Return the tensors in the order of the gradients of `CppDecoderLoop.backward`."""
        per_cell = [tensor for parts in zip(self.sides, self.cells, strict=True) for part in parts for tensor in part]
        return [self.keys, self.values, *self.attention, *per_cell]


def pass_inputs(
    cells: Sequence[LSTMCell], attention: Attention, memory: AttentionMemory, embedded: Tensor
) -> PassInputs:
    """Return the tensors of one pass, at least in fp32."""
    names = ("query.weight", *FORMS[type(attention)].parameters)
    of_attention = tuple(_wide(attention.get_parameter(name)) for name in names)
    no_embedding = embedded.new_zeros(*embedded.shape[:2], 0)  # only the first cell reads the embeddings
    sides = tuple(_side(cell, no_embedding if index else embedded) for index, cell in enumerate(cells))
    return PassInputs(_wide(memory.keys), _wide(memory.values), of_attention, sides, tuple(map(_parameters, cells)))


def _side(cell: LSTMCell, embedded: Tensor) -> InputSide:
    """Return the input side of a cell, given the embeddings that are the first columns of its input."""
    weight = input_weight_of(cell)
    gain, offset = side_of(cell)
    if gain is None and cell.forget_bias and parameters_of(cell).gain is None:
        forget = forget_bias(cell)
        offset = forget if offset is None else offset + forget
    size = embedded.shape[2]
    known = functional.linear(embedded, weight[:, :size], offset if gain is None else None)
    if gain is None or offset is None:
        return InputSide(_wide(known), _wide(weight[:, size:]), None, None)
    return InputSide(_wide(known), _wide(weight[:, size:]), _wide(gain), _wide(offset))


def _parameters(cell: LSTMCell) -> Parameters:
    _, *others = parameters_of(cell)
    weight = _wide(recurrent_weight_of(cell))
    return Parameters(weight, *(None if tensor is None else _wide(tensor) for tensor in others))


def _wide(tensor: Tensor) -> Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


ATTENTION_POINTERS = (
    *("num_states", "keys", "values", "query", "score", "location", "filter", "scale"),
    *("queries", "weights", "contexts", "accumulated"),
    *("d_keys", "d_queries", "d_weights", "d_contexts", "d_scale", "d_accumulated"),
)


class CellStructure(Structure):
    """The structure `Stepped` of `spelling.h`, field by field."""

    _fields_ = (
        ("cell", Direction),
        ("below", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("input_weight", "mask", "projected", "inputs")),
    )


class AttentionStructure(Structure):
    """The structure `Attended` of `attending.h`, field by field."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("batch", "steps", "states", "value_size", "key_size")),
        *((name, ctypes.c_int64) for name in ("filters", "width", "energy")),
        *((name, Int64s if name == "num_states" else ctypes.c_void_p) for name in ATTENTION_POINTERS),
    )


class SpellerStructure(Structure):
    """The structure `Speller` of `spelling.h`, field by field."""

    _fields_ = (
        ("count", ctypes.c_int64),
        ("cells", ctypes.POINTER(CellStructure)),
        ("attended", AttentionStructure),
        ("sums", ctypes.c_void_p),
    )


class EnergyTensors(NamedTuple):
    """Keys and parameters of an attention's energy, as `Attended` names them; None for what a form does not have."""

    keys: Tensor
    scale: Tensor | None
    score: Tensor | None
    filter: Tensor | None
    location: Tensor | None

    @classmethod
    def of(cls, form: AttentionForm, keys: Tensor, parameters: Sequence[Tensor]) -> "EnergyTensors":
        """Return the tensors of a form, from its keys and parameters in the order of `FORMS`."""
        parts = [*map(dense, parameters)]
        if form.energy == WITH_FEEDBACK:
            score, feedback = parts
            return cls(dense(keys[..., :-1]), dense(keys[..., -1]), score, None, feedback)
        return cls(dense(keys), None, *[*parts, None, None, None][:3])

    @property
    def sizes(self) -> tuple[int, int]:
        """The number of features and the width of the filters."""
        filters = 0 if self.location is None else self.location.shape[1]
        return filters, 0 if self.filter is None else self.filter.shape[2]

    def parameter_gradients(self, sums: Tensor) -> list[Tensor]:
        """Gradients of the parameters in the order of `FORMS`, from the sums of the C++."""
        (filters, width), size = self.sizes, self.keys.shape[2]
        if self.score is None:
            return []
        score, location, filter_ = sums.split([size, filters * size, filters * width])
        found = (score, self.score), (filter_, self.filter), (location.view(filters, size).t(), self.location)
        return [part.reshape(own.shape) for part, own in found if own is not None]


class CellTensors:
    """One cell of a pass, and the tensors that the C++ reads and writes."""

    def __init__(
        self, cell: LSTMCell, side: InputSide, parameters: Parameters, mask: Tensor | None, recording: bool
    ) -> None:
        side = side._replace(weight=dense(side.weight), gain=None if side.gain is None else dense(side.gain))
        weight, *others = parameters
        parameters = Parameters(dense(weight), *(None if part is None else dense(part) for part in others))
        self.side, self.parameters = side, parameters
        batch, steps, width = side.known.shape
        norms, size, new = norms_of(cell), cell.hidden_size, side.known.new_empty
        self.apart = norms[0] == APART
        self.numbers = batch, steps, size, size, 0, *norms
        self.eps = bounded_eps(cell.eps, next(cell.parameters()).dtype)
        self.projected = side.known.clone(memory_format=torch.contiguous_format)
        self.input_weight, self.weight = side.weight, parameters.weight
        self.input_gain, self.gain = side.gain, parameters.gain
        self.cell_gain, self.cell_bias = parameters.cell_gain, parameters.cell_bias
        offsets = [part for part in (parameters.offset, side.offset) if part is not None]
        self.offset = sum(offsets, start=side.known.new_zeros(width))
        self.inputs, self.outputs = new(batch, steps, side.weight.shape[1]), new(batch, steps, size)
        self.mask = None if mask is None else dense(mask.to(side.known.dtype))
        self.d_outputs: Tensor | None = None
        self.summed, self.hidden_before, self.cell_before = (
            new(batch, steps, columns) if recording else None for columns in (width, size, size)
        )

    def begin(self, d_outputs: Tensor | None) -> None:
        """Allocate the backward pass; `d_outputs` are the gradients of h from outside the loop."""
        self.d_outputs = d_outputs
        self.d_summed = torch.empty_like(self.projected)
        self.d_projected = torch.empty_like(self.projected) if self.apart else self.d_summed

    def structure(self) -> CellStructure:
        """Return the structure with pointers to all tensors."""
        direction = Direction(*self.numbers, self.eps)
        direction.point(**{name: value for name in POINTERS if (value := getattr(self, name, None)) is not None})
        structure = CellStructure(direction, self.inputs.shape[2])
        structure.point(input_weight=self.input_weight, mask=self.mask, projected=self.projected, inputs=self.inputs)
        return structure

    def totals(self, below: Tensor, sums: Tensor, gradient: Callable[[Tensor, Tensor], Tensor]) -> list[Tensor | None]:
        """Gradients of the input side and the parameters, from the inputs `below` and the sums of the C++."""
        assert self.hidden_before is not None
        size = self.numbers[2]
        d_input_gain, d_gain, d_offset, *of_memory = sums.split([4 * size] * 3 + [size] * 2)
        d_weight, d_recurrent = gradient(self.d_projected, below), gradient(self.d_summed, self.hidden_before)
        # Gradients must not share memory: autograd keeps them, and clipping in place would scale them twice.
        gradients = d_input_gain, d_offset.clone(), d_gain, d_offset, *of_memory
        owners = self.side.gain, self.side.offset, *self.parameters[1:]
        shaped = [None if own is None else part.view_as(own) for part, own in zip(gradients, owners, strict=True)]
        return [self.d_projected, d_weight, *shaped[:2], d_recurrent, *shaped[2:]]
