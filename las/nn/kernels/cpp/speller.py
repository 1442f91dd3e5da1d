"""Teacher-forced passes of the speller in C++ (`spelling.h`, `attending.h`), and its steps in a search (`searching.h`).

Step t of a pass, where x_t, the contribution of the previous token to the gates, is known beforehand:

    h_t^1 = cell_1(x_t + W_c c_{t-1})      h_t^l = cell_l(W h_t^{l-1})      c_t = attention(h_t)

`forward` runs a loop over all steps without a graph, so that scheduled sampling may draw tokens from the model on the
way. `PassFunction` then attaches the backward pass: only sequential products stay in the loop, and the gradient of
a weight is one product over all steps. Every thread computes all steps for its share of the batch. The tanh of an
attention, which is the largest tensor, is not stored: the backward pass computes it again.
"""

import ctypes
import weakref
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from las.nn.attention.base import Attention, AttentionMemory, Context, Weights
from las.nn.cells.base import LSTMCell, LSTMState
from las.nn.kernels.base import PassFunction
from las.nn.kernels.cpp import build
from las.nn.kernels.cpp import layer as cpu
from las.nn.kernels.cpp.speller_tensors import (
    ATTENTION_POINTERS,
    FORMS,
    AttentionForm,
    AttentionStructure,
    CellStructure,
    CellTensors,
    EnergyTensors,
    PassInputs,
    SpellerStructure,
    pass_inputs,
)
from las.nn.kernels.cpp.tensors import Doubles, Int64s, Structure, dense

Embed = Callable[[Tensor, slice], Tensor]
"""Embeds the previous tokens [B, n] of a run of steps, [B, n, E]."""

Draw = Callable[[int, Tensor, Tensor], Tensor]
"""Samples the tokens [B] fed at a step, from the hidden state [B, H] and context [B, V] of the step before."""

Feed = Callable[[int], None]
"""A function called before each step but the first, which may `replace` the known input of the step."""

CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64)


class PassOutputs(NamedTuple):
    """The results of all steps."""

    hidden: Float[Tensor, "batch steps hidden"]
    """Hidden states of the last cell."""
    contexts: Float[Tensor, "batch steps value"]
    weights: Float[Tensor, "batch steps states"]


class CppDecoderLoop:
    """Cells and attention of one pass on the CPU: `run`, then `results`, then `backward` any number of times."""

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
        self.numbers = batch, steps, *sizes, form.energy
        self.queries = self.keys.new_empty(batch, steps, len(self.query))
        self.weights = self.keys.new_zeros(batch, steps + 1, states)
        self.contexts = self.keys.new_zeros(batch, steps + 1, value_size)
        self.accumulated = None if self.energy.scale is None else self.keys.new_empty(batch, steps, states)
        self.d_scale: Tensor | None = None
        self.d_accumulated: Tensor | None = None
        self.sums = self.keys.new_empty(0)
        self.library = cpu.library_for(*inputs.flat())

    def run(self, feed: Feed | None) -> None:
        """Compute all steps."""
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
        """Return the hidden state [B, H] and the context [B, V] before this step."""
        return self.cells[-1].outputs[:, step - 1], self.contexts[:, step]

    def replace(self, step: int, known: Tensor) -> None:
        """Replace the known input of the gates of a step that was not computed yet, [B, 4H]."""
        self.cells[0].projected[:, step] = known

    def results(self) -> tuple[Tensor, Tensor, Tensor]:
        """Hidden states, contexts and weights, [B, U, ...]."""
        return self.cells[-1].outputs, self.contexts[:, 1:], self.weights[:, 1:]

    def backward(self, d_hidden: Tensor, d_contexts: Tensor, d_weights: Tensor) -> list[Tensor | None]:
        """Gradients of all inputs (see `PassInputs.flat`), from those of the results."""
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
        """Return the gradient of a weight, from those of its outputs and from its inputs, [batch, steps, size]."""
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


def forward(
    cells: Sequence[LSTMCell],
    attention: Attention,
    memory: AttentionMemory,
    tokens: Int[Tensor, "batch steps"],
    embed: Embed,
    masks: Sequence[Tensor | None],
    draw: Draw | None = None,
) -> PassOutputs:
    """Compute all steps, each with the context of the one before as input.

    Half-precision tensors are computed in fp32; under autocast the operands of products may be rounded. There is no
    second derivative.

    Args:
        tokens: the previous token of each step.
        masks: dropout masks of the hidden states of each cell but the last, [batch, steps, H]; None for no dropout.
        draw: samples the tokens fed from the second step on, in place of `tokens`; None for teacher forcing alone.
    """
    recording, original_type = torch.is_grad_enabled(), memory.values.dtype
    with torch.set_grad_enabled(recording and draw is None):
        inputs = pass_inputs(cells, attention, memory, embed(tokens, slice(None)))
    tokens = tokens.clone()
    with torch.no_grad():
        loop = CppDecoderLoop(cells, FORMS[type(attention)], inputs, memory.mask, masks, recording)
    with torch.no_grad(), torch.autocast(memory.keys.device.type, enabled=False):

        def feed(step: int) -> None:
            assert draw is not None
            tokens[:, step] = draw(step, *loop.previous_outputs(step))
            embedded = embed(tokens[:, step : step + 1], slice(step, step + 1))
            loop.replace(step, pass_inputs(cells[:1], attention, memory, embedded).sides[0].known[:, 0])

        loop.run(None if draw is None else feed)
    if recording and draw:
        inputs = pass_inputs(cells, attention, memory, embed(tokens, slice(None)))
    results = PassFunction.apply(loop, *inputs.flat()) if recording else loop.results()
    return PassOutputs(*(result.to(original_type) for result in results))


StepFn = Callable[
    [Int[Tensor, "batch beam"], Sequence[LSTMState], Context, Weights],
    tuple[Float[Tensor, "batch beam vocab"], tuple[LSTMState, ...], Context, Weights, Weights],
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
        ("utterances", Int64s),
    )


class Hypotheses(NamedTuple):
    """The n-best lists of a search. A length counts the end symbol; it is 0 where a list has no more hypotheses."""

    tokens: Int[Tensor, "batch nbest longest"]
    lengths: Int[Tensor, "batch nbest"]
    symbol_scores: Float[Tensor, "batch nbest longest"]
    """Log-probabilities of the tokens."""
    scores: Float[Tensor, "batch nbest"]
    ranks: Float[Tensor, "batch nbest"]


class HypothesesStructure(Structure):
    """The structure `Hypotheses` of `hypotheses.h`, field by field."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("size", "nbest", "longest", "eos")),
        ("exponent", ctypes.c_double),
        *((name, Int64s) for name in ("limits", "tokens", "lengths")),
        *((name, Doubles) for name in ("symbol_scores", "scores", "ranks")),
    )


def supports(layers: Sequence[nn.Module], memory: AttentionMemory) -> bool:
    """Return True if all layers, which the compiled loop supports, are of one type that it computes."""
    parameters = [parameter for part in layers for parameter in part.parameters()]
    return {memory.keys.dtype, *(each.dtype for each in parameters)} in ({torch.float32}, {torch.float64})


class CppSearchStep:
    """A `StepFn` on the memory of one batch of utterances: all layers for all beams, without gradients.

    The weights are copied once for all steps, so a step costs no operation of torch.

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
        self.function, self.whole = (getattr(library, f"search_{part}_{name}") for part in ("step", "whole"))
        weakref.finalize(self, getattr(library, f"search_close_{name}"), self.opened)

    def __call__(
        self, tokens: Tensor, layers: Sequence[LSTMState], context: Tensor, attention: Tensor
    ) -> tuple[Tensor, tuple[LSTMState, ...], Tensor, Tensor, Tensor]:
        tokens, before, context, before_weights = self._before(tokens, layers, context, attention)
        after = tuple(LSTMState(torch.empty_like(hidden), torch.empty_like(cell)) for hidden, cell in before)
        for structure, (last_hidden, last_cell) in zip(self.cell_structures, after, strict=True):
            structure.cell.point(last_hidden=last_hidden, last_cell=last_cell)
        contexts, weights = torch.empty_like(context), torch.empty_like(before_weights)
        queries = context.new_empty(*tokens.shape, len(self.query))
        self.structure.speller.attended.point(queries=queries, weights=weights, contexts=contexts)
        log_probs = context.new_empty(*tokens.shape, self.vocab)
        self.structure.readout.point(log_probs=log_probs)
        self._call(self.function)
        scale = self.energy.scale
        following = weights if scale is None else attention + weights * scale.unsqueeze(1)
        return log_probs, after, contexts, weights, following

    def search(
        self,
        tokens: Int[Tensor, "batch 1"],
        layers: Sequence[LSTMState],
        context: Context,
        attention: Tensor,
        limits: Sequence[int],
        expansion: tuple[int, int, float],
        nbest: int,
    ) -> Hypotheses:
        """Search from the first tokens and states to the hypotheses, in one call.

        Args:
            limits: greatest number of tokens of each utterance.
            expansion: end symbol, size of the beam, and exponent of the length normalisation.
            nbest: hypotheses of an utterance, at most the size of the beam.
        """
        held = self._before(tokens, layers, context, attention)
        eos, size, exponent = expansion
        shape, longest = (len(limits), nbest), max(limits, default=0) + 1
        ints, numbers = tokens.new_empty(*shape, longest), tokens.new_empty(*shape, longest, dtype=torch.float64)
        found = Hypotheses(ints, tokens.new_zeros(shape), numbers, *numbers.new_empty(2, *shape))
        structure = HypothesesStructure(size, nbest, longest, eos, exponent)
        limited = torch.tensor(limits)
        structure.point(limits=limited, **found._asdict())
        self._call(self.whole, ctypes.byref(structure))
        del held  # until here the C++ read it
        return found

    def _before(
        self, tokens: Tensor, layers: Sequence[LSTMState], context: Tensor, attention: Tensor
    ) -> tuple[Tensor, list[tuple[Tensor, Tensor]], Tensor, Tensor]:
        """Return what a step reads, as the structures point to it."""
        dtype, tokens = self.values.dtype, dense(tokens.long())
        before = [(dense(hidden.to(dtype)), dense(cell.to(dtype))) for hidden, cell in layers]
        context, weights = (dense(part.to(dtype)) for part in (context, attention))
        for structure, (first_hidden, first_cell) in zip(self.cell_structures, before, strict=True):
            structure.cell.point(first_hidden=first_hidden, first_cell=first_cell)
        self.structure.speller.attended.steps = tokens.shape[1]
        self.structure.point(tokens=tokens, contexts=context, weights=weights)
        return tokens, before, context, weights

    def _call(self, function: Any, *more: Any) -> None:
        function(self.opened, ctypes.byref(self.structure), *more, ctypes.c_int64(torch.get_num_threads()))
