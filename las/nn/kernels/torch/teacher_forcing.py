"""Teacher-forced passes of the speller, with a hand-written backward pass.

Step t, where x_t, the contribution of the previous token to the gates, is known beforehand:

    h_t^1 = cell_1(x_t + W_c c_{t-1})      h_t^l = cell_l(W h_t^{l-1})      c_t = attention(h_t)

`forward` runs a loop over all steps without a graph, so that scheduled sampling may draw tokens from the model on the
way. `TeacherForcedPass` then attaches the backward pass: only sequential products stay in the loop, and the gradient of
a weight is one product over all steps. `DecoderLoop` is the loop in torch's operations. Its cells are `DecoderLayer`s,
the loops of `las.nn.kernels.torch.bptt` with an input that is known only step by step; its attention is one of
`las.nn.kernels.torch.attention`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from las.nn.attention.additive import AdditiveAttention
from las.nn.attention.base import Attention, AttentionMemory
from las.nn.attention.dot import DotAttention
from las.nn.attention.location import LocationAttention
from las.nn.attention.weight_feedback import WeightFeedbackAttention
from las.nn.cells.base import NUM_GATES, LSTMCell, LSTMState
from las.nn.kernels.torch import bptt
from las.nn.kernels.torch import layer as autograd
from las.nn.kernels.torch.attention import (
    AdditiveKernel,
    AttentionKernel,
    DotKernel,
    LocationKernel,
    WeightFeedbackKernel,
)
from las.nn.kernels.torch.bptt import Parameters, Plan
from las.nn.kernels.torch.equations import Norm
from las.nn.kernels.torch.packing import Buffer, FrameBuffers, OneFrameBuffers, packing_of


class InputSide(NamedTuple):
    """The input side of a cell: known + W below, or its layer norm if there is a gain."""

    known: Float[Tensor, "batch steps gates"]
    weight: Float[Tensor, "gates below"]
    gain: Tensor | None
    offset: Tensor | None


class DecoderLayer:
    """One cell of the speller: call `forward` for each step, `end`, `begin`, `backward` for each step from the last,
    `totals`."""

    def __init__(self, plan: Plan, side: InputSide, parameters: Parameters, recording: bool) -> None:
        packing, (_, self.num_steps, width) = plan.packing, side.known.shape
        self.plan, self.side, self.parameters = plan, side, Parameters.side_by_side([parameters])
        self.norm: Norm | None = None
        if side.gain is not None and side.offset is not None:
            self.norm = Norm(side.gain.view(1, 1, -1), side.offset.view(1, 1, -1), plan.eps)
        self.raw = side.known.new_empty(1, packing.positions.shape[1], width)  # known + W below
        packing.pack(side.known, self.raw)
        self.below = self.raw.new_empty(*self.raw.shape[:2], side.weight.shape[1])
        inputs = self.raw if self.norm is None else torch.empty_like(self.raw)
        self.raws, self.belows, self.inputs = map(packing.steps, (self.raw, self.below, inputs))
        self.transposed = side.weight.t().contiguous()
        self.zeros = self.raw.new_zeros(1, len(packing.order), width // NUM_GATES)
        buffers = (FrameBuffers if recording else OneFrameBuffers)(packing, self.raw)
        pieces = (Buffer(step, [step]) for step in self.inputs)
        self.steps = bptt.forward(plan, pieces, LSTMState(self.zeros, self.zeros), self.parameters, buffers)

    def feed(self, step: int, known: Tensor) -> None:
        """Replace `known` of a step that was not computed yet."""
        self.raws[step][0].copy_(known)

    def forward(self, step: int, below: Tensor) -> Tensor:
        """Hidden state [B, H] of this step, from the output [B, ...] of the layer below."""
        self.raws[step][0].addmm_(below, self.transposed)
        self.belows[step][0].copy_(below)
        if self.norm is not None:
            self.norm.forward(self.raws[step], self.inputs[step])
        return next(self.steps)[0]

    def end(self) -> None:
        """Finish the forward pass, after the last step."""
        self.trace = bptt.finish(self.steps)
        self.hidden = self.plan.packing.after(self.trace.hidden)

    def begin(self, d_hidden: Tensor) -> None:
        """Prepare the backward pass, from the gradients [B, U, H] of h from outside the loop."""
        packing, zeros = self.plan.packing, self.zeros
        arriving = bptt.arriving(packing, d_hidden, LSTMState(zeros, zeros))
        self.d_hidden = packing.steps(packing.after(arriving))
        self.d_raw = torch.empty_like(self.raw)
        self.d_raws = packing.steps(self.d_raw)
        if self.norm is not None:
            self.norm = Norm(self.norm.gain, self.norm.bias, self.norm.eps, self.norm.means, self.norm.scales)
        num_inputs = self.raw.shape[1]
        self.back = bptt.backward(self.plan, self.parameters, self.trace, num_inputs, arriving, zeros.clone())

    def backward(self, step: int, d_hidden: Tensor) -> Tensor:
        """The gradient of `below`, with `d_hidden` added to the gradient of h."""
        self.d_hidden[step][0].add_(d_hidden)
        grads = next(self.back)
        if self.norm is not None:
            grads = self.norm.backward(step, grads, self.raws[step])
        return torch.mm(self.d_raws[step].copy_(grads)[0], self.side.weight)

    def totals(self) -> tuple[Tensor | None, ...]:
        """Gradients of the input side and of the parameters."""
        packing, gradients = self.plan.packing, bptt.finish(self.back)
        of_norm: tuple[Tensor | None, Tensor | None] = None, None
        if self.norm is not None:
            d_inputs = gradients.inputs[:, packing.positions[0]]
            self.norm.collect(slice(None), d_inputs, self.raw)
            of_norm = self.norm.d_gain.flatten(), self.norm.d_bias.flatten()
        of_cell = (None if part is None else part.squeeze(0) for part in gradients[3:])
        return packing.unpack(self.d_raw), self.d_raw[0].t() @ self.below[0], *of_norm, *of_cell


class AttentionForm(NamedTuple):
    """The kernel of a class of attentions, and the names of the parameters of its energy."""

    attention: type[AttentionKernel]
    energies: tuple[str, ...] = ()


FORMS: dict[type[Attention], AttentionForm] = {
    DotAttention: AttentionForm(DotKernel),
    AdditiveAttention: AttentionForm(AdditiveKernel, ("score.weight",)),
    LocationAttention: AttentionForm(LocationKernel, ("score.weight", "filters.weight", "location.weight")),
    WeightFeedbackAttention: AttentionForm(WeightFeedbackKernel, ("score.weight", "feedback.weight")),
}

Embed = Callable[[Tensor, slice], Tensor]
"""Embeds the previous tokens [B, n] of a run of steps, [B, n, E]."""

Draw = Callable[[int, Tensor, Tensor], Tensor]
"""Samples the tokens [B] fed at a step, from the hidden state [B, H] and context [B, V] of the step before."""


class PassOutputs(NamedTuple):
    """The results of all steps."""

    hidden: Float[Tensor, "batch steps hidden"]
    """Hidden states of the last cell."""
    contexts: Float[Tensor, "batch steps value"]
    weights: Float[Tensor, "batch steps states"]


class PassInputs(NamedTuple):
    """All tensors with a gradient; one input side and one set of parameters per cell."""

    keys: Tensor
    values: Tensor
    attention: tuple[Tensor, ...]
    sides: tuple[InputSide, ...]
    cells: tuple[Parameters, ...]

    def flat(self) -> list[Tensor | None]:
        """The tensors in the order of the gradients of `TeacherForcingLoop.backward`."""
        per_cell = [tensor for parts in zip(self.sides, self.cells, strict=True) for part in parts for tensor in part]
        return [self.keys, self.values, *self.attention, *per_cell]


def unsupported_reason(cells: Sequence[LSTMCell], attention: Attention) -> str:
    """The reason why `forward` cannot compute these cells with this attention; empty if it can.

    Only exact classes are supported, because a subclass may change the equations.
    """
    if type(attention) not in FORMS:
        return f"{type(attention).__name__} has no hand-written backward pass"
    return next(filter(None, (autograd.unsupported_reason(cell, next(cell.parameters())) for cell in cells)), "")


Feed = Callable[[int], None]
"""A function called before each step but the first, which may `replace` the known input of the step."""


@runtime_checkable
class TeacherForcingLoop(Protocol):
    """Cells and attention of one pass: `run`, then `results`, then `backward` any number of times."""

    def __init__(
        self,
        cells: Sequence[LSTMCell],
        form: AttentionForm,
        inputs: PassInputs,
        mask: Tensor,
        masks: Sequence[Tensor | None],
        recording: bool,
    ) -> None: ...

    def run(self, feed: Feed | None) -> None:
        """Compute all steps."""

    def previous_outputs(self, step: int) -> tuple[Tensor, Tensor]:
        """The hidden state [B, H] and the context [B, V] before this step."""

    def replace(self, step: int, known: Tensor) -> None:
        """Replace the known input of the gates of a step that was not computed yet, [B, 4H]."""

    def results(self) -> tuple[Tensor, Tensor, Tensor]:
        """Hidden states, contexts and weights, [B, U, ...]."""

    def backward(self, d_hidden: Tensor, d_contexts: Tensor, d_weights: Tensor) -> list[Tensor | None]:
        """Gradients of all inputs (see `PassInputs.flat`), from those of the results."""


class DecoderLoop:
    """A `TeacherForcingLoop` in torch's operations, on any device."""

    def __init__(
        self,
        cells: Sequence[LSTMCell],
        form: AttentionForm,
        inputs: PassInputs,
        mask: Tensor,
        masks: Sequence[Tensor | None],
        recording: bool,
    ) -> None:
        batch, self.num_steps, _ = inputs.sides[0].known.shape
        self.packing = packing_of(torch.full((batch,), self.num_steps), self.num_steps, device=mask.device)
        self.masks = [*masks, None]
        memory = AttentionMemory(inputs.keys, inputs.values, mask)
        self.attention = form.attention(memory, self.num_steps, recording, *inputs.attention)
        self.layers = [
            DecoderLayer(
                autograd.plan_of(cell, self.packing, next(cell.parameters()).dtype), side, parameters, recording
            )
            for cell, side, parameters in zip(cells, inputs.sides, inputs.cells, strict=True)
        ]

    def run(self, feed: Feed | None) -> None:
        for step in range(self.num_steps):
            if feed and step:
                feed(step)
            below = self.attention.contexts[step]
            for layer, mask in zip(self.layers, self.masks, strict=True):
                self.hidden = layer.forward(step, below)
                below = self.hidden if mask is None else self.hidden * mask[:, step]
            self.attention.forward(step, self.hidden)
        for layer in self.layers:
            layer.end()

    def previous_outputs(self, step: int) -> tuple[Tensor, Tensor]:
        return self.hidden, self.attention.contexts[step]

    def replace(self, step: int, known: Tensor) -> None:
        self.layers[0].feed(step, known)

    def results(self) -> tuple[Tensor, Tensor, Tensor]:
        hidden = self.packing.unpack(self.layers[-1].hidden)
        return hidden, self.attention.contexts[1:].transpose(0, 1), self.attention.weights[1:].transpose(0, 1)

    def backward(self, d_hidden: Tensor, d_contexts: Tensor, d_weights: Tensor) -> list[Tensor | None]:
        self.attention.begin(d_contexts.transpose(0, 1), d_weights.transpose(0, 1))
        *lower, last = self.layers
        last.begin(d_hidden)
        for layer in lower:
            layer.begin(layer.zeros.new_zeros(*d_hidden.shape[:2], layer.zeros.shape[2]))
        for step in reversed(range(self.num_steps)):
            grads = self.attention.backward(step)
            for layer, mask in reversed([*zip(self.layers, self.masks, strict=True)]):
                grads = layer.backward(step, grads if mask is None else grads * mask[:, step])
            self.attention.d_contexts[step] += grads
        per_layer = [tensor for layer in self.layers for tensor in layer.totals()]
        return [*self.attention.totals(last.hidden[0]), *per_layer]


class TeacherForcedPass(torch.autograd.Function):
    """The results of a loop that has run, with its backward pass attached; inputs are (loop, *PassInputs.flat)."""

    @staticmethod
    def forward(ctx: Any, loop: TeacherForcingLoop, *inputs: Any) -> Any:
        ctx.loop = loop
        ctx.save_for_backward(*inputs)
        return loop.results()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        _ = ctx.saved_tensors  # makes autograd check that none was changed in between
        with torch.autocast(grads[0].device.type, enabled=False):
            return None, *ctx.loop.backward(*grads)


def forward(
    cells: Sequence[LSTMCell],
    attention: Attention,
    memory: AttentionMemory,
    tokens: Int[Tensor, "batch steps"],
    embed: Embed,
    masks: Sequence[Tensor | None],
    draw: Draw | None = None,
    kind: type[TeacherForcingLoop] = DecoderLoop,
) -> PassOutputs:
    """Compute all steps, each with the context of the one before as input.

    Half-precision tensors are computed in fp32; under autocast a loop may round the operands of its products. There is
    no second derivative.

    Args:
        tokens: the previous token of each step.
        masks: dropout masks of the hidden states of each cell but the last, [batch, steps, H]; None for no dropout.
        draw: samples the tokens fed from the second step on, in place of `tokens`; None for teacher forcing alone.
        kind: the class of the loop.
    """
    recording, original_type = torch.is_grad_enabled(), memory.values.dtype
    with torch.set_grad_enabled(recording and draw is None):
        inputs = pass_inputs(cells, attention, memory, embed(tokens, slice(None)))
    tokens = tokens.clone()
    with torch.no_grad():
        loop = kind(cells, FORMS[type(attention)], inputs, memory.mask, masks, recording)
    with torch.no_grad(), torch.autocast(memory.keys.device.type, enabled=False):

        def feed(step: int) -> None:
            assert draw is not None
            tokens[:, step] = draw(step, *loop.previous_outputs(step))
            embedded = embed(tokens[:, step : step + 1], slice(step, step + 1))
            loop.replace(step, pass_inputs(cells[:1], attention, memory, embedded).sides[0].known[:, 0])

        loop.run(None if draw is None else feed)
    if recording and draw:
        inputs = pass_inputs(cells, attention, memory, embed(tokens, slice(None)))
    results = TeacherForcedPass.apply(loop, *inputs.flat()) if recording else loop.results()
    return PassOutputs(*(result.to(original_type) for result in results))


def pass_inputs(
    cells: Sequence[LSTMCell], attention: Attention, memory: AttentionMemory, embedded: Tensor
) -> PassInputs:
    """The tensors of one pass, at least in fp32."""
    names = ("query.weight", *FORMS[type(attention)].energies)
    of_attention = tuple(_wide(attention.get_parameter(name)) for name in names)
    no_embedding = embedded.new_zeros(*embedded.shape[:2], 0)  # only the first cell reads the embeddings
    sides = tuple(_side(cell, no_embedding if index else embedded) for index, cell in enumerate(cells))
    return PassInputs(_wide(memory.keys), _wide(memory.values), of_attention, sides, tuple(map(_parameters, cells)))


def _side(cell: LSTMCell, embedded: Tensor) -> InputSide:
    """The input side of a cell, given the embeddings that are the first columns of its input."""
    weight = cast(Tensor, cell.input_weight)
    gain, offset = autograd.side_of(cell)
    if gain is None and cell.forget_bias and autograd.parameters_of(cell).gain is None:
        forget = autograd.forget_bias(cell).flatten()
        offset = forget if offset is None else offset + forget
    size = embedded.shape[2]
    known = functional.linear(embedded, weight[:, :size], offset if gain is None else None)
    if gain is None or offset is None:
        return InputSide(_wide(known), _wide(weight[:, size:]), None, None)
    return InputSide(_wide(known), _wide(weight[:, size:]), _wide(gain), _wide(offset))


def _parameters(cell: LSTMCell) -> Parameters:
    weight, *others = autograd.parameters_of(cell)
    return Parameters(_wide(weight), *(None if tensor is None else _wide(tensor) for tensor in others))


def _wide(tensor: Tensor) -> Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
