"""The speller's step in a search in C++ (`searching.h`): all layers for all beams, without gradients.

The weights are copied once for all steps, so a step costs no operation of torch.
"""

import ctypes
import weakref
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from las.nn.attention.base import Attention, AttentionMemory
from las.nn.cells.base import LSTMCell, LSTMState
from las.nn.kernels.cpp import build
from las.nn.kernels.cpp.recurrence import Int64s, Structure, dense
from las.nn.kernels.cpp.speller_tensors import (
    FORMS,
    AttentionStructure,
    CellStructure,
    CellTensors,
    EnergyTensors,
    SpellerStructure,
    pass_inputs,
)

StepFn = Callable[
    [
        Int[Tensor, "batch beam"],
        Sequence[LSTMState],
        Float[Tensor, "batch beam value"],
        Float[Tensor, "batch beam states"],
    ],
    tuple[
        Float[Tensor, "batch beam vocab"],
        tuple[LSTMState, ...],
        Float[Tensor, "batch beam value"],
        Float[Tensor, "batch beam states"],
        Float[Tensor, "batch beam states"],
    ],
]
"""A step: the tokens, states, contexts and states of attention before it to the log-probabilities of the next token,
and the new states, contexts, weights and states of attention."""


class Readout(NamedTuple):
    """The layers between state, context and distribution."""

    hidden: nn.Linear
    pooled: int
    """Values of the hidden layer that maxout reduces to one; with 1 it is tanh."""
    output: nn.Linear
    reads_token: bool


class ReadoutStructure(Structure):
    """The structure `Readout` of `searching.h`, field by field."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("below", "width", "pooled", "vocab", "reads_token")),
        *((name, ctypes.c_void_p) for name in ("weight", "bias", "output_weight", "output_bias", "log_probs")),
    )


class SearchStructure(Structure):
    """The structure `Search` of `searching.h`, field by field."""

    _fields_ = (
        ("speller", SpellerStructure),
        ("readout", ReadoutStructure),
        ("embedding_size", ctypes.c_int64),
        ("tokens", Int64s),
        *((name, ctypes.c_void_p) for name in ("embedding", "contexts", "weights")),
    )


def supports(layers: Sequence[nn.Module], memory: AttentionMemory) -> bool:
    """True if all layers, whose cells and attention the compiled loop of a pass supports, are of one type that it
    computes."""
    parameters = [parameter for part in layers for parameter in part.parameters()]
    return {memory.keys.dtype, *(each.dtype for each in parameters)} in ({torch.float32}, {torch.float64})


class CppSearchStep:
    """A `StepFn` on the memory of one batch of utterances.

    Args:
        embedding: the embeddings of all tokens, [vocab, size].
    """

    def __init__(
        self,
        cells: Sequence[LSTMCell],
        attention: Attention,
        embedding: Float[Tensor, "vocab size"],
        readout: Readout,
        memory: AttentionMemory,
    ) -> None:
        # Nothing is known of the input of a cell before the step but its offset.
        inputs = pass_inputs(cells, attention, memory, embedding.new_zeros(1, 1, 0))
        parts = zip(cells, inputs.sides, inputs.cells, strict=True)
        self.cells = [CellTensors(cell, side, parameters, None, recording=False) for cell, side, parameters in parts]
        self.query, *of_energy = map(dense, inputs.attention)
        form = FORMS[type(attention)]
        self.energy, self.values = EnergyTensors.of(form, inputs.keys, of_energy), dense(inputs.values)
        self.num_states, self.embedding = memory.mask.sum(1), dense(embedding)
        (batch, states, key_size), value_size = self.energy.keys.shape, self.values.shape[2]
        numbers = batch, 1, states, value_size, key_size, *self.energy.sizes, form.energy
        attended = AttentionStructure(*numbers)
        attended.point(**self.energy._asdict(), num_states=self.num_states, values=self.values, query=self.query)
        self.cell_structures = (CellStructure * len(cells))(*(cell.structure() for cell in self.cells))
        speller = SpellerStructure(len(cells), self.cell_structures, attended)
        hidden, self.vocab = readout.hidden, readout.output.out_features
        layers = ReadoutStructure(
            hidden.in_features, hidden.out_features, readout.pooled, self.vocab, readout.reads_token
        )
        self.readout = {
            "weight": dense(hidden.weight),
            "bias": dense(hidden.bias),
            "output_weight": dense(readout.output.weight),
            "output_bias": dense(readout.output.bias),
        }
        layers.point(**self.readout)
        self.structure = SearchStructure(speller, layers, self.embedding.shape[1])
        self.structure.point(embedding=self.embedding)
        library, name = build.library(), str(self.values.dtype).removeprefix("torch.")
        opened = getattr(library, f"search_open_{name}")
        opened.restype = ctypes.c_void_p
        self.opened = ctypes.c_void_p(opened(ctypes.byref(self.structure), ctypes.c_int64(torch.get_num_threads())))
        self.function = getattr(library, f"search_step_{name}")
        weakref.finalize(self, getattr(library, f"search_close_{name}"), self.opened)

    def __call__(
        self, tokens: Tensor, layers: Sequence[LSTMState], context: Tensor, attention: Tensor
    ) -> tuple[Tensor, tuple[LSTMState, ...], Tensor, Tensor, Tensor]:
        dtype, tokens = self.values.dtype, dense(tokens.long())
        before = [(dense(hidden.to(dtype)), dense(cell.to(dtype))) for hidden, cell in layers]
        context, before_weights = (dense(part.to(dtype)) for part in (context, attention))
        after = tuple(LSTMState(torch.empty_like(hidden), torch.empty_like(cell)) for hidden, cell in before)
        for structure, (first_hidden, first_cell), (last_hidden, last_cell) in zip(
            self.cell_structures, before, after, strict=True
        ):
            structure.cell.point(first_hidden=first_hidden, first_cell=first_cell)
            structure.cell.point(last_hidden=last_hidden, last_cell=last_cell)
        contexts, weights = torch.empty_like(context), torch.empty_like(before_weights)
        queries = context.new_empty(*tokens.shape, len(self.query))
        attended = self.structure.speller.attended
        attended.steps = tokens.shape[1]
        attended.point(queries=queries, weights=weights, contexts=contexts)
        log_probs = context.new_empty(*tokens.shape, self.vocab)
        self.structure.readout.point(log_probs=log_probs)
        self.structure.point(tokens=tokens, contexts=context, weights=before_weights)
        self.function(self.opened, ctypes.byref(self.structure), ctypes.c_int64(torch.get_num_threads()))
        scale = self.energy.scale
        following = weights if scale is None else attention + weights * scale.unsqueeze(1)
        return log_probs, after, contexts, weights, following
