"""A teacher-forced pass of the speller with its backward pass written by hand.

Step t, for x_t known beforehand (what the previous token contributes to the gates):

    h_t^1 = cell_1(x_t + W_c c_{t-1})      h_t^l = cell_l(W h_t^{l-1})      c_t = attention(h_t)

The loop runs without a graph and before autograd hears of it, so that tokens may be drawn from the model on the way.
`TeacherForcedPass` then gives its results their gradient: only products that must follow one another are left in the
loop backwards, and the gradient of a weight is one product over all steps. Cells are computed by `las.nn.kernels.bptt`,
attentions by `las.nn.kernels.attention`.

One cell whose input is only known step by step: the loops of `las.nn.kernels.bptt`, with the input side in them.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

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
from las.nn.kernels import autograd, bptt
from las.nn.kernels.attention import AdditiveKernel, AttentionKernel, DotKernel, LocationKernel, WeightFeedbackKernel
from las.nn.kernels.bptt import Parameters, Plan
from las.nn.kernels.equations import Norm
from las.nn.kernels.packing import Buffer, FrameBuffers, OneFrameBuffers, packing_of


class InputSide(NamedTuple):
    """What a cell makes of its input: known + W below, or the layer norm of that where there is a gain."""

    known: Float[Tensor, "batch steps gates"]
    weight: Float[Tensor, "gates below"]
    gain: Tensor | None
    offset: Tensor | None


class DecoderLayer:
    """One cell: `forward` for each step, `end`, `begin`, `backward` for each step from the last, `totals`."""

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
        """Replace what is known of a step that was not computed yet."""
        self.raws[step][0].copy_(known)

    def forward(self, step: int, below: Tensor) -> Tensor:
        """h of this step."""
        self.raws[step][0].addmm_(below, self.transposed)
        self.belows[step][0].copy_(below)
        if self.norm is not None:
            self.norm.forward(self.raws[step], self.inputs[step])
        return next(self.steps)[0]

    def end(self) -> None:
        """Called after the last step."""
        self.trace = bptt.finish(self.steps)
        self.hidden = self.plan.packing.after(self.trace.hidden)

    def begin(self, d_hidden: Tensor) -> None:
        """Prepare the backward pass, from the gradients [B, U, H] that reach h from outside the loop."""
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
        """The gradient of what is below from one more gradient of h."""
        self.d_hidden[step][0].add_(d_hidden)
        grads = next(self.back)
        if self.norm is not None:
            grads = self.norm.backward(step, grads, self.raws[step])
        return torch.mm(self.d_raws[step].copy_(grads)[0], self.side.weight)

    def totals(self) -> tuple[Tensor | None, ...]:
        """Gradients of the side and of the parameters."""
        packing, gradients = self.plan.packing, bptt.finish(self.back)
        of_norm: tuple[Tensor | None, Tensor | None] = None, None
        if self.norm is not None:
            d_inputs = gradients.inputs[:, packing.positions[0]]
            self.norm.collect(slice(None), d_inputs, self.raw)
            of_norm = self.norm.d_gain.flatten(), self.norm.d_bias.flatten()
        of_cell = (None if part is None else part.squeeze(0) for part in gradients[3:])
        return packing.unpack(self.d_raw), self.d_raw[0].t() @ self.below[0], *of_norm, *of_cell


class AttentionForm(NamedTuple):
    """Who computes a class of attentions, and the names of the parameters of its energy."""

    attention: type[AttentionKernel]
    energies: tuple[str, ...] = ()


FORMS: dict[type[Attention], AttentionForm] = {
    DotAttention: AttentionForm(DotKernel),
    AdditiveAttention: AttentionForm(AdditiveKernel, ("score.weight",)),
    LocationAttention: AttentionForm(LocationKernel, ("score.weight", "filters.weight", "location.weight")),
    WeightFeedbackAttention: AttentionForm(WeightFeedbackKernel, ("score.weight", "feedback.weight")),
}

Embed = Callable[[Tensor, slice], Tensor]
"""The previous tokens [B, n] of a run of steps to what the first cell sees of them, [B, n, E]."""

Draw = Callable[[int, Tensor, Tensor], Tensor]
"""A step and the hidden state [B, H] and context [B, V] of the one before to the tokens [B] that are fed."""


class PassOutputs(NamedTuple):
    """The results of every step."""

    hidden: Float[Tensor, "batch steps hidden"]
    """Of the last cell."""
    contexts: Float[Tensor, "batch steps value"]
    weights: Float[Tensor, "batch steps states"]


class PassInputs(NamedTuple):
    """All tensors with a gradient, one side and one set of parameters per cell."""

    keys: Tensor
    values: Tensor
    attention: tuple[Tensor, ...]
    sides: tuple[InputSide, ...]
    cells: tuple[Parameters, ...]

    def flat(self) -> list[Tensor | None]:
        """In the order in which `TeacherForcingLoop.backward` gives their gradients."""
        per_cell = [tensor for parts in zip(self.sides, self.cells, strict=True) for part in parts for tensor in part]
        return [self.keys, self.values, *self.attention, *per_cell]


def unsupported_reason(cells: Sequence[LSTMCell], attention: Attention) -> str:
    """Why `forward` does not compute them: it knows classes exactly, a subclass may change the equations."""
    if type(attention) not in FORMS:
        return f"the equations of {type(attention).__name__} are not among those written by hand"
    return next(filter(None, (autograd.unsupported_reason(cell, next(cell.parameters())) for cell in cells)), "")


Feed = Callable[[int], None]
"""Called before each step but the first: it may `replace` what is known of this one."""


@runtime_checkable
class TeacherForcingLoop(Protocol):
    """The cells and the attention of one pass: `run`, then `results`, and `backward` as often as one likes."""

    def __init__(
        self,
        cells: Sequence[LSTMCell],
        form: AttentionForm,
        given: PassInputs,
        mask: Tensor,
        masks: Sequence[Tensor | None],
        recording: bool,
    ) -> None: ...

    def run(self, feed: Feed | None) -> None:
        """All steps."""

    def seen(self, step: int) -> tuple[Tensor, Tensor]:
        """The hidden state [B, H] and the context [B, V] before this step."""

    def replace(self, step: int, known: Tensor) -> None:
        """Change what is known of the gates of a step that was not computed yet, [B, 4H]."""

    def results(self) -> tuple[Tensor, Tensor, Tensor]:
        """Hidden states, contexts and weights, [B, U, ...]."""

    def backward(self, d_hidden: Tensor, d_contexts: Tensor, d_weights: Tensor) -> list[Tensor | None]:
        """Gradients of all that was given, from those of the results."""


class DecoderLoop:
    """By torch's operations, on any device: see `TeacherForcingLoop`."""

    def __init__(
        self,
        cells: Sequence[LSTMCell],
        form: AttentionForm,
        given: PassInputs,
        mask: Tensor,
        masks: Sequence[Tensor | None],
        recording: bool,
    ) -> None:
        batch, self.num_steps, _ = given.sides[0].known.shape
        self.packing = packing_of(torch.full((batch,), self.num_steps, device=mask.device), self.num_steps)
        self.masks = [*masks, None]
        memory = AttentionMemory(given.keys, given.values, mask)
        self.attention = form.attention(memory, self.num_steps, recording, *given.attention)
        self.layers = [
            DecoderLayer(
                autograd.plan_of(cell, self.packing, next(cell.parameters()).dtype), side, parameters, recording
            )
            for cell, side, parameters in zip(cells, given.sides, given.cells, strict=True)
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

    def seen(self, step: int) -> tuple[Tensor, Tensor]:
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
    """(loop, *Given.flat) to the results of a loop that was run with them: only the backward pass is left to do."""

    @staticmethod
    def forward(ctx: Any, loop: TeacherForcingLoop, *given: Any) -> Any:
        ctx.loop = loop
        ctx.save_for_backward(*given)
        return loop.results()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        _ = ctx.saved_tensors  # asked for, so that autograd sees whether one was changed in between
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
    """All steps, each fed with the context of the one before.

    Half-precision tensors are computed in fp32. There is no second derivative.

    Args:
        tokens: the previous token of each step.
        masks: factors of the hidden states of each cell but the last on their way up, [batch, steps, H], None for 1.
        draw: what is fed from the second step on, in place of `tokens`, if anything.
        kind: `DecoderLoop`, or another form of it.
    """
    recording, own = torch.is_grad_enabled(), memory.values.dtype
    with torch.set_grad_enabled(recording and draw is None):
        given = _given(cells, attention, memory, embed(tokens, slice(None)))
    tokens = tokens.clone()
    with torch.no_grad(), torch.autocast(memory.keys.device.type, enabled=False):
        loop = kind(cells, FORMS[type(attention)], given, memory.mask, masks, recording)

        def feed(step: int) -> None:
            assert draw is not None
            tokens[:, step] = draw(step, *loop.seen(step))
            embedded = embed(tokens[:, step : step + 1], slice(step, step + 1))
            loop.replace(step, _given(cells[:1], attention, memory, embedded).sides[0].known[:, 0])

        loop.run(None if draw is None else feed)
    if recording and draw:
        given = _given(cells, attention, memory, embed(tokens, slice(None)))
    results = TeacherForcedPass.apply(loop, *given.flat()) if recording else loop.results()
    return PassOutputs(*(result.to(own) for result in results))


def _given(cells: Sequence[LSTMCell], attention: Attention, memory: AttentionMemory, embedded: Tensor) -> PassInputs:
    """The tensors of one pass, at least in fp32."""
    names = ("query.weight", *FORMS[type(attention)].energies)
    of_attention = tuple(_wide(attention.get_parameter(name)) for name in names)
    nothing = embedded.new_zeros(*embedded.shape[:2], 0)  # what the cells above the first know of their input
    sides = tuple(_side(cell, nothing if index else embedded) for index, cell in enumerate(cells))
    return PassInputs(_wide(memory.keys), _wide(memory.values), of_attention, sides, tuple(map(_parameters, cells)))


def _side(cell: LSTMCell, embedded: Tensor) -> InputSide:
    """The input side of a cell, and of its gates what these first columns of its input contribute."""
    weight = cell.get_parameter("input_weight")
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
