"""Teacher-forced passes of the speller in C++ (`spelling.h`, `attending.h`).

`CppDecoderLoop` is the loop of a pass with its backward pass: every thread computes all steps for its share of the
batch, and gradients of weights are products of torch after the loop. It does not store the tanh of an attention, which
is the largest tensor: the backward pass computes it again.
"""

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from las.nn.attention.base import Attention
from las.nn.cells.base import CELL_NORMS, LSTMCell
from las.nn.cells.lstm import PlainLSTMCell
from las.nn.kernels.cpp import layer as cpu
from las.nn.kernels.cpp import recurrence as cpp_recurrence
from las.nn.kernels.cpp.recurrence import Direction, Int64s, Structure, dense
from las.nn.kernels.torch import teacher_forcing
from las.nn.kernels.torch.attention import (
    AdditiveKernel,
    AttentionKernel,
    DotKernel,
    LocationKernel,
    WeightFeedbackKernel,
)
from las.nn.kernels.torch.bptt import Parameters
from las.nn.kernels.torch.teacher_forcing import AttentionForm, Feed, InputSide, PassInputs
from las.nn.normalisation import bounded_eps

ENERGIES: dict[type[AttentionKernel], int] = {
    DotKernel: 0,
    AdditiveKernel: 1,
    LocationKernel: 2,
    WeightFeedbackKernel: 3,
}
"""Numbers of `Energy` in `attending.h`; other attentions are computed by torch."""

ATTENTION_POINTERS = (
    *("num_states", "keys", "values", "query", "score", "location", "filter", "scale"),
    *("queries", "weights", "contexts", "accumulated"),
    *("d_keys", "d_queries", "d_weights", "d_contexts", "d_scale", "d_accumulated"),
)

CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64)


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
        """The tensors of a form, from its keys and parameters in the order of `FORMS`."""
        parts = [*map(dense, parameters)]
        if form.attention is WeightFeedbackKernel:
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
        gate_norm, size, new = cpu.GATE_NORMS[type(cell)], cell.hidden_size, side.known.new_empty
        self.apart = gate_norm == cpp_recurrence.APART
        self.numbers = batch, steps, size, size, 0, gate_norm, CELL_NORMS.index(cell.cell_norm)
        self.eps = bounded_eps(cell.eps, next(cell.parameters()).dtype)
        self.projected = side.known.clone(memory_format=torch.contiguous_format)
        self.input_weight, self.weight = side.weight, parameters.weight
        self.input_gain, self.gain = side.gain, parameters.gain
        self.cell_gain, self.cell_bias = parameters.cell_gain, parameters.cell_bias
        offsets = [part.flatten() for part in (parameters.offset, side.offset) if part is not None]
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
        """The structure with pointers to all tensors."""
        direction = Direction(*self.numbers, self.eps)
        direction.point(
            **{name: value for name in cpp_recurrence.POINTERS if (value := getattr(self, name, None)) is not None}
        )
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


class CppDecoderLoop:
    """A `TeacherForcingLoop` (`las.nn.kernels.torch.teacher_forcing`) in C++; all tensors are on the CPU."""

    def __init__(
        self,
        cells: Sequence[LSTMCell],
        form: AttentionForm,
        inputs: PassInputs,
        mask: Tensor,
        masks: Sequence[Tensor | None],
        recording: bool,
    ) -> None:
        types = {tensor.dtype for tensor in inputs.flat() if tensor is not None}
        if len(types) > 1:
            raise TypeError(f"one pass of the speller needs tensors of one type, not of {types}")
        parts = zip(cells, inputs.sides, inputs.cells, [*masks, None], strict=True)
        self.cells = [CellTensors(cell, side, parameters, drop, recording) for cell, side, parameters, drop in parts]
        (batch, steps, _), (_, states, value_size) = inputs.sides[0].known.shape, inputs.values.shape
        self.num_states, self.values = mask.sum(1), dense(inputs.values)
        self.query, *of_energy = map(dense, inputs.attention)
        self.energy = EnergyTensors.of(form, inputs.keys, of_energy)
        self.keys = self.energy.keys
        sizes = states, value_size, len(self.query), *self.energy.sizes
        self.numbers = batch, steps, *sizes, ENERGIES[form.attention]
        self.queries = self.keys.new_empty(batch, steps, len(self.query))
        self.weights = self.keys.new_zeros(batch, steps + 1, states)
        self.contexts = self.keys.new_zeros(batch, steps + 1, value_size)
        self.accumulated = None if self.energy.scale is None else self.keys.new_empty(batch, steps, states)
        self.d_scale: Tensor | None = None
        self.d_accumulated: Tensor | None = None
        self.sums = self.keys.new_empty(0)
        self.library = cpu.library_for(*inputs.flat())

    def run(self, feed: Feed | None) -> None:
        failures: list[BaseException] = []

        def fed(step: int) -> int:
            try:
                (feed or self.previous_outputs)(step)
            except BaseException as error:  # it cannot pass through C++: raised again below
                failures.append(error)
            return len(failures)

        self._call("spell", CALLBACK() if feed is None else CALLBACK(fed))
        for failure in failures:
            raise failure

    def previous_outputs(self, step: int) -> tuple[Tensor, Tensor]:
        return self.cells[-1].outputs[:, step - 1], self.contexts[:, step]

    def replace(self, step: int, known: Tensor) -> None:
        self.cells[0].projected[:, step] = known

    def results(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.cells[-1].outputs, self.contexts[:, 1:], self.weights[:, 1:]

    def backward(self, d_hidden: Tensor, d_contexts: Tensor, d_weights: Tensor) -> list[Tensor | None]:
        for cell in self.cells[:-1]:
            cell.begin(None)
        self.cells[-1].begin(dense(d_hidden))
        self.d_keys, self.d_queries = torch.zeros_like(self.keys), torch.empty_like(self.queries)
        self.d_contexts, self.d_weights = (functional.pad(part, (0, 0, 1, 0)) for part in (d_contexts, d_weights))
        if self.energy.scale is not None:
            self.d_scale, self.d_accumulated = (torch.zeros_like(self.energy.scale) for _ in range(2))
        size, (filters, width) = self.keys.shape[2], self.energy.sizes
        of_energy = 0 if self.energy.score is None else size + filters * (size + width)
        of_cells = [14 * cell.numbers[2] for cell in self.cells]
        self.sums = self.keys.new_empty(sum(of_cells) + of_energy)
        self._call("spell_backward")
        *per_cell, energy_sums = self.sums.split([*of_cells, of_energy])
        d_keys = self.d_keys if self.d_scale is None else torch.cat([self.d_keys, self.d_scale.unsqueeze(-1)], -1)
        d_query = self._gradient(self.d_queries, self.cells[-1].outputs)
        d_values = torch.bmm(self.weights[:, 1:].transpose(1, 2), self.d_contexts[:, 1:])
        below = [self.contexts[:, :-1], *(cell.inputs for cell in self.cells[1:])]
        parts = zip(self.cells, below, per_cell, strict=True)
        totals = [cell.totals(each, sums, self._gradient) for cell, each, sums in parts]
        of_attention = self.energy.parameter_gradients(energy_sums)
        return [d_keys, d_values, d_query, *of_attention, *chain.from_iterable(totals)]

    def _gradient(self, d_outputs: Tensor, inputs: Tensor) -> Tensor:
        """The gradient of a weight, from those of its outputs and from its inputs, [batch, steps, size]."""
        grads, rows = d_outputs.flatten(0, 1).t(), inputs.flatten(0, 1)
        return grads @ rows if self.library.unit is None else self.library.product(grads, rows)

    def _call(self, name: str, *more: Any) -> None:
        """Run a function of the library, on as many threads as torch may use."""
        attended = AttentionStructure(*self.numbers)
        tensors = vars(self) | self.energy._asdict()
        attended.point(**{name: tensors.get(name) for name in ATTENTION_POINTERS})
        cells = (CellStructure * len(self.cells))(*(cell.structure() for cell in self.cells))
        structure = SpellerStructure(len(self.cells), cells, attended)
        structure.point(sums=self.sums)
        self.library.call(name, self.keys.dtype, ctypes.byref(structure), *more)


def is_compiled(attention: Attention) -> bool:
    """True if this attention is implemented in C++."""
    return type(attention) in teacher_forcing.FORMS and teacher_forcing.FORMS[type(attention)].attention in ENERGIES


def unsupported_reason(attention: Attention) -> str:
    """The reason why this loop cannot compute an attention, empty if it can; the library must be available."""
    return trial_error() if is_compiled(attention) else f"{type(attention).__name__} is not among the compiled ones"


@cache
def trial_error() -> str:
    """The reason why this loop cannot be used at all: its results differ from those of torch's operations."""
    with (
        torch.random.fork_rng(devices=[]),
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.autocast("cpu", enabled=False),  # whatever the caller asks for: rounding is not an error
    ):
        differences = {
            cls.__name__: _largest_difference(cls)
            for cls, form in teacher_forcing.FORMS.items()
            if form.attention in ENERGIES
        }
    wrong = [f"{name} differs by {value:.1g} of its size" for name, value in differences.items() if not value < 1e-3]
    return f"the compiled loop fails its self-test: {', '.join(wrong)}" if wrong else ""


def _largest_difference(cls: Callable[..., Attention]) -> float:
    """The largest relative difference from torch's operations, over outputs and gradients of a small pass."""
    attention, cells = cls(11, 5, key_size=9).float(), [PlainLSTMCell(8, 11).float(), PlainLSTMCell(11, 11).float()]
    encoded = torch.linspace(-9, 9, 9 * 7 * 5).sin().view(9, 7, 5).requires_grad_()
    embedded = torch.linspace(-5, 5, 9 * 4 * 3).cos().view(9, 4, 3)
    of_cells = (parameter for cell in cells for parameter in cell.parameters())
    inputs = [encoded, *attention.parameters(), *of_cells]
    memory = attention.prepare(encoded, torch.tensor([7, 3, 1, 0, 7, 6, 5, 4, 2]))
    tokens, masks, results = torch.zeros(9, 4, dtype=torch.long), [torch.full((9, 4, 11), 0.5)], []
    for kind in (teacher_forcing.DecoderLoop, CppDecoderLoop):
        parts = teacher_forcing.forward(
            cells, attention, memory, tokens, lambda _, steps: embedded[:, steps], masks, None, kind
        )
        total = torch.stack([part.square().sum() for part in parts]).sum()
        results.append([part.detach() for part in (*parts, *torch.autograd.grad(total, inputs, retain_graph=True))])
    pairs = zip(*results, strict=True)
    return max(float((reference - compiled).abs().max() / reference.abs().max()) for reference, compiled in pairs)
