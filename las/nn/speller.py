"""The speller: an LSTM language model that attends to the listener's states (Chan et al. 2016, section 3.2).

One step, for the previous token y_{i-1} and the previous context c_{i-1}:

    s_i = LSTM([embed(y_{i-1}); c_{i-1}], s_{i-1})          input feeding
    c_i = attention(s_i, encoded)
    p(y_i) = softmax(linear(tanh(linear([s_i; c_i]))))      tanh or another of `READOUTS`

Its state is a value: search may keep several and reorder them along the beam axis.

Teacher forcing runs all steps in one compiled pass on a CPU (`_compiled_forward`), as replays of a captured step on a
GPU (`_replayed_forward`), and step by step elsewhere (`_reference_forward`).
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from las.config.build import require
from las.nn.attention.base import Attention, AttentionMemory, State
from las.nn.cells import base as cells
from las.nn.cells.lstm import PlainLSTMCell
from las.nn.dropout import Dropout, DropoutFactory, Masks, apply_mask, steps_of
from las.nn.factories import made
from las.nn.kernels import choice
from las.nn.kernels.choice import Compiled, Differences
from las.nn.kernels.cpp import speller as cpu
from las.nn.kernels.forms import uncompiled
from las.nn.kernels.graphs.recurrence import Recurrence
from las.nn.kernels.graphs.replayed import bucket
from las.nn.rnn import CellFactory
from las.nn.scheduled import PiecewiseLinear, ScheduledModule
from las.runtime.errors import ArgumentError, require_known

AttentionFactory = Callable[[int, int], Attention]
"""Makes an attention from (query_size, value_size)."""

READOUTS: dict[str, tuple[Callable[[Tensor], Tensor], int]] = {
    "tanh": (torch.tanh, 1),
    "maxout": (lambda values: values.unflatten(-1, (-1, 2)).amax(-1), 2),  # Goodfellow et al. 2013
}
"""Activations of the hidden layer below the output layer, and the number of values each reduces to one."""

READOUT_INPUTS = ("state", "state_and_token")
DROPOUT_PLACES = ("everywhere", "output")
FIRST_INPUTS = ("embedding", "zeros")


class SpellerState(NamedTuple):
    """The state of a decoding step; every tensor is [batch, beam, ...]."""

    layers: tuple[cells.State, ...]
    context: Float[Tensor, "batch beam value"]
    weights: Float[Tensor, "batch beam states"]
    attention: State
    """Result of `Attention.attend`: the last weights, unless a variant says otherwise."""


class SpellerOutput(NamedTuple):
    """Result of a teacher-forced pass: one row per target token and one for the end of the sentence."""

    logits: Float[Tensor, "batch steps vocab"]
    weights: Float[Tensor, "batch steps states"]


class Speller(ScheduledModule):
    """An attention decoder: encoded states to tokens.

    Args:
        vocab_size: output symbols, the sentence boundary (id 0) included.
        value_size: size of one encoded state.
        cell: makes the cell of one layer from (input_size, hidden_size).
        attention: makes the attention from (query_size, value_size).
        num_layers: depth of the LSTM.
        hidden_size: width of the LSTM.
        embedding_size: of the previous token.
        dropout: the probability, while training.
        dropout_mask: makes the dropout from its probability: `Dropout`, `UtteranceDropout`, `BatchDropout` or your own.
        dropout_at: `everywhere` (on the embedding, between layers and before the output layer) or only the `output`.
        first_input: what the first step reads in place of an embedded token: the `embedding` of the sentence boundary,
            or `zeros` (Zeineldeen et al. 2020).
        readout: activation of the hidden layer below the output layer, `tanh` or `maxout` (of pairs).
        readout_size: of that layer, before the maximum of `maxout`; `hidden_size` by default.
        readout_reads: `state` (and context) or `state_and_token` (the embedding of the previous token as well).
        scheduled_sampling: probability, per token, of feeding the model's own sample in place of the true previous
            token while training (Bengio et al. 2015); or a `PiecewiseLinear`.

    >>> import las, torch
    >>> speller = las.Speller(30, 32, cell=las.LNGlobalLSTMCell, attention=las.AdditiveAttention, hidden_size=16)
    >>> memory = speller.attention.prepare(torch.randn(2, 13, 32), torch.tensor([13, 8]))
    >>> output = speller(memory, targets=torch.tensor([[4, 7, 2], [5, 0, 0]]))
    >>> output.logits.shape
    torch.Size([2, 4, 30])
    """

    boundary = 0  # both the start and the end of a sentence
    scheduled_sampling: float

    def __init__(
        self,
        vocab_size: int,
        value_size: int,
        *,
        cell: CellFactory,
        attention: AttentionFactory,
        num_layers: int = 1,
        hidden_size: int = 256,
        embedding_size: int = 64,
        dropout: float = 0.0,
        dropout_mask: DropoutFactory = Dropout,
        dropout_at: str = "everywhere",
        first_input: str = "embedding",
        readout: str = "tanh",
        readout_size: int | None = None,
        readout_reads: str = "state",
        scheduled_sampling: float | PiecewiseLinear = 0.0,
    ) -> None:
        super().__init__()
        sizes = {"num_layers": num_layers, "hidden_size": hidden_size, "embedding_size": embedding_size}
        for key, number in (sizes | {"readout_size": readout_size}).items():
            require(key, number, 1)
        require("dropout", dropout, 0.0, 1.0)
        require_known("dropout_at", dropout_at, DROPOUT_PLACES)
        require_known("first_input", first_input, FIRST_INPUTS)
        require_known("readout", readout, READOUTS)
        require_known("readout_reads", readout_reads, READOUT_INPUTS)
        self.vocab_size = vocab_size
        self.schedule("scheduled_sampling", scheduled_sampling, largest=1.0)
        self.embedding = nn.Embedding(vocab_size, embedding_size)
        self.starts_with_zeros = first_input == "zeros"
        self.no_masks: Masks = [None] * (1 + num_layers)
        self.cells = nn.ModuleList()
        size = embedding_size + value_size
        for _ in range(num_layers):
            self.cells.append(made("cell", cell, size, hidden_size))
            size = self._cells[-1].output_size
        self.attention = made("attention", attention, size, value_size)
        self.reads_token = readout_reads == "state_and_token"
        self.activation, self.pooled = READOUTS[readout]
        width = readout_size or hidden_size
        if width % self.pooled:
            raise ArgumentError(f"readout_size={width} must be a multiple of {self.pooled} for readout={readout}")
        self.readout = nn.Linear(size + value_size + self.reads_token * embedding_size, width)
        self.output = nn.Linear(width // self.pooled, vocab_size)
        self.dropout, self.drops, self.dropout_at = dropout_mask(dropout), dropout > 0, dropout_at

    def start(self, memory: AttentionMemory) -> SpellerState:
        """Return the state before the first token, with one beam per utterance."""
        batch = memory.values.shape[0]
        layers = tuple(cell.initial_state(batch, 1) for cell in self._cells)
        context = memory.values.new_zeros(batch, 1, memory.values.shape[-1])
        weights = memory.keys.new_zeros(batch, 1, memory.keys.shape[1])
        return SpellerState(layers, context, weights, self.attention.initial_state(memory))

    @property
    def _cells(self) -> list[cells.RecurrentCell]:
        return cast(list[cells.RecurrentCell], [*self.cells])

    def embed(self, tokens: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch embedding"]:
        """Embed previous tokens; the boundary is the first one."""
        embedded: Tensor = self.embedding(tokens)
        if self.starts_with_zeros:
            embedded = embedded.masked_fill((tokens == self.boundary).unsqueeze(-1), 0.0)
        return embedded

    def decode_step(
        self, tokens: Int[Tensor, "batch beam"], memory: AttentionMemory, state: SpellerState, masks: Masks = ()
    ) -> tuple[Float[Tensor, "batch beam readout"], SpellerState]:
        """One step from the previous tokens: the input of the readout, and the new state.

        Args:
            masks: dropout masks of this step for the embedding and each layer's output, [batch, beam, size].
        """
        of_embedding, *of_layers = masks or self.no_masks
        state = state._replace(attention=self.attention.told(tokens, memory, state.attention))
        return self._decode_embedded(apply_mask(self.embed(tokens), of_embedding), memory, state, of_layers)

    def _decode_embedded(
        self, embedded: Tensor, memory: AttentionMemory, state: SpellerState, masks: Masks
    ) -> tuple[Tensor, SpellerState]:
        """One step from the embedded tokens [batch, beam, size]; `masks` are those of the layers."""
        output, state = self._next(embedded, memory, state, masks)
        return self._read(output, embedded, state.context), state

    def _next(
        self, embedded: Tensor, memory: AttentionMemory, state: SpellerState, masks: Masks
    ) -> tuple[Tensor, SpellerState]:
        """Return the output of the last layer and the state after the embedded tokens."""
        inputs, layers = torch.cat([embedded, state.context], dim=-1), []
        for cell, previous, mask in zip(self._cells, state.layers, masks, strict=True):
            layers.append(cell.step(cell.input_gates(inputs), previous))
            inputs = apply_mask(layers[-1].hidden, mask)
        return inputs, SpellerState(tuple(layers), *self.attention.attend(layers[-1].hidden, memory, state.attention))

    def _read(self, hidden: Tensor, embedded: Tensor, context: Tensor) -> Tensor:
        """Return the input of the readout layer."""
        return torch.cat([hidden, embedded, context] if self.reads_token else [hidden, context], dim=-1)

    def logits(self, readout: Float[Tensor, "*batch readout"]) -> Float[Tensor, "*batch vocab"]:
        """Scores of the next token, before the softmax."""
        return self.output(self.dropout(self.activation(self.readout(readout))))

    def step(
        self,
        tokens: Int[Tensor, "batch beam"],
        memory: AttentionMemory,
        state: SpellerState,
        step_fn: cpu.StepFn | None = None,
    ) -> tuple[Float[Tensor, "batch beam vocab"], SpellerState]:
        """Log-probabilities of the next token after `tokens`, and the new state.

        Args:
            step_fn: result of `select_step_fn` for the same memory.
        """
        if step_fn is None:
            readout, state = self.decode_step(tokens, memory, state)
            return torch.log_softmax(self.logits(readout), dim=-1), state
        log_probs, layers, *attended = step_fn(tokens, state.layers, state.context, state.attention)
        return log_probs, SpellerState(layers, *attended)

    def forward(self, memory: AttentionMemory, targets: Int[Tensor, "batch tokens"]) -> SpellerOutput:
        """Teacher forcing: row i holds the logits of target i given those before it, the last row those of the end."""
        previous = torch.cat([targets.new_full((len(targets), 1), self.boundary), targets], dim=1)
        # Masks are drawn before the loop, so that results do not depend on the loop.
        masks = self._masks(*previous.shape)
        forward = {"cpu": self._compiled_forward, "replayed": self._replayed_forward, "plain": self._reference_forward}
        readouts, weights = forward[self._loop(memory.values, PASSES)[0]](memory, previous, masks)
        # One matrix product for all steps: the output layer is the widest of the speller.
        return SpellerOutput(self.logits(readouts), weights)

    def explain(self, like: Tensor) -> str:
        """Return a line for the log of a run: the loop of teacher forcing for the device and type of a tensor."""
        name, reason = self._loop(like, PASSES)
        return f"speller: {name} ({reason})" if reason else f"speller: {name}"

    def select_step_fn(self, memory: AttentionMemory) -> cpu.StepFn | None:
        """Return a faster equivalent of `step` on a memory; None where there is none, as for gradients and dropout."""
        if self.training or torch.is_grad_enabled() or self._loop(memory.values, STEPS)[0] != "cpu":
            return None
        layers = (*self._cells, self.attention, self.embedding, self.readout, self.output)
        return self._compiled_step(memory) if cpu.supports(layers, memory) else None

    def _compiled_step(self, memory: AttentionMemory) -> cpu.StepFn:
        readout = cpu.Readout(self.readout, self.pooled, self.output, self.reads_token)
        embedding = self.embed(torch.arange(self.vocab_size, device=memory.values.device))
        return cpu.CppSearchStep(cast(Any, self._cells), self.attention, embedding, readout, memory)

    def _loop(self, like: Tensor, parts: "Parts") -> tuple[str, str]:
        """Return the name of the fastest way to compute passes or steps of a search, and why there is no faster one."""
        kernel = choice.select_kernel(self._cells[0], like)
        own = kernel not in choice.KERNELS.values() or any(uncompiled(cell, like.device.type) for cell in self._cells)
        if own or choice.requested() == "plain":
            return "plain", ""
        if type(self.attention) not in cpu.FORMS:
            return "plain", f"{type(self.attention).__name__} is not among the compiled attentions"
        if choice.has_graphs(like.device):
            return "replayed", ""
        wide = torch.promote_types(like.dtype, torch.float32)
        reason = parts[type(self.attention)].refusal(like.new_empty(0, dtype=wide))
        return ("plain", f"cpu: {reason}") if reason else ("cpu", "")

    def _reference_forward(self, memory: AttentionMemory, previous: Tensor, masks: Masks) -> tuple[Tensor, Tensor]:
        """Return the inputs of the readout and weights of all steps, [batch, steps, ...], step by step."""
        _, readouts, weights = zip(*self._steps(memory, previous, masks), strict=True)
        return torch.cat(readouts, dim=1), torch.cat(weights, dim=1)

    def _steps(
        self, memory: AttentionMemory, previous: Tensor, masks: Masks
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield the tokens that are fed, the input of the readout and the weights of each step."""
        state, readout = self.start(memory), memory.values
        state = state._replace(attention=self.attention.forced_state(memory, previous[:, 1:]))
        for step in range(previous.shape[1]):
            now = slice(step, step + 1)
            tokens = previous[:, now]
            if step and self.training and self.scheduled_sampling:
                tokens = self._sample(tokens, readout)
            readout, state = self.decode_step(tokens, memory, state, [steps_of(mask, now) for mask in masks])
            yield tokens, readout, state.weights

    def _compiled_forward(self, memory: AttentionMemory, previous: Tensor, masks: Masks) -> tuple[Tensor, Tensor]:
        """Return the inputs of the readout and weights of all steps, [batch, steps, ...], in one compiled pass."""
        of_embedding, *of_layers, of_last = masks
        fed = previous.clone()

        def embed(tokens: Tensor, steps: slice) -> Tensor:
            return apply_mask(self.embed(tokens), steps_of(of_embedding, steps))

        def draw(step: int, hidden: Tensor, context: Tensor) -> Tensor:
            last, now = slice(step - 1, step), slice(step, step + 1)
            before = apply_mask(hidden.unsqueeze(1), steps_of(of_last, last))
            readout = self._read(before, embed(fed[:, last], last), context.unsqueeze(1))
            fed[:, now] = self._sample(previous[:, now], readout)
            return fed[:, step]

        sampler = draw if self.training and self.scheduled_sampling else None
        outputs = cpu.forward(cast(Any, self._cells), self.attention, memory, previous, embed, of_layers, sampler)
        embedded = embed(fed, slice(None))
        return self._read(apply_mask(outputs.hidden, of_last), embedded, outputs.contexts), outputs.weights

    def _replayed_forward(self, memory: AttentionMemory, previous: Tensor, masks: Masks) -> tuple[Tensor, Tensor]:
        """Return the inputs of the readout and weights of all steps, [batch, steps, ...], replays of the first ones."""
        if self.training and self.scheduled_sampling:  # a replay computes its step again, so it may not draw
            with torch.no_grad():
                previous = torch.cat([tokens for tokens, *_ in self._steps(memory, previous, masks)], dim=1)
        of_embedding, *between, of_last = masks
        embedded = apply_mask(self.embed(previous), of_embedding)
        wider = memory.padded(bucket(len(previous)), bucket(memory.keys.shape[1]))
        rows = (0, 0, 0, 0, 0, len(wider.mask) - len(previous))
        inputs = [nn.functional.pad(part, rows) for part in (embedded, *between) if part is not None]
        recurrence = Recurrence(
            *(_Step(self), inputs, self.start(wider), wider),
            outputs_of=lambda after: (after.layers[-1].hidden, after.context, after.weights),
        )
        found = recurrence.outputs(choice.capture_on(memory.values.device))
        hidden, contexts, weights = (part[: len(previous), :, 0] for part in found)
        return self._read(apply_mask(hidden, of_last), embedded, contexts), weights[:, :, : memory.keys.shape[1]]

    def _masks(self, batch: int, steps: int) -> Masks:
        """Dropout masks of the embedding and of each layer's output, [batch, steps, size]; None without dropout."""
        if not (self.training and self.drops) or self.dropout_at == "output":
            return self.no_masks
        sizes = [self.embedding.embedding_dim, *(cell.output_size for cell in self._cells)]
        return [self.dropout(self.embedding.weight.new_ones(batch, steps, size)) for size in sizes]

    def _sample(
        self, tokens: Int[Tensor, "batch beam"], readout: Float[Tensor, "batch beam readout"]
    ) -> Int[Tensor, "batch beam"]:
        """Replace each true token, with the scheduled probability, by one drawn from the model."""
        with torch.no_grad():
            logits = self.logits(readout)
            # The largest of logits plus Gumbel noise is a draw from their softmax; logits that are not finite pass
            # through to the loss, where the trainer explains them, and do not raise here.
            drawn = (logits - torch.empty_like(logits).exponential_().log()).argmax(-1)
        replace = torch.rand(tokens.shape, device=tokens.device) < self.scheduled_sampling
        return torch.where(replace, drawn, tokens)


class _Step(nn.Module):
    """A step of teacher forcing with the modules that it reads."""

    def __init__(self, speller: Speller) -> None:
        super().__init__()
        self.cells, self.attention = speller.cells, speller.attention
        self.next, self.no_masks = speller._next, speller.no_masks[2:]

    def forward(self, inputs: Sequence[Tensor], state: SpellerState, memory: Sequence[Tensor]) -> SpellerState:
        embedded, *between = (part.unsqueeze(1) for part in inputs)
        return self.next(embedded, AttentionMemory(*memory), state, [*(between or self.no_masks), None])[1]


def _passes(kind: type[Attention]) -> Differences:
    """Return a small pass, compiled and step by step, and its gradients."""
    speller, encoded = _small(kind)
    previous, masks, results = torch.arange(36).view(9, 4) % 6, speller._masks(9, 4), []
    parts = speller.cells, speller.attention, speller.embedding
    read = [encoded, *(parameter for part in parts for parameter in part.parameters())]
    for forward in (speller._compiled_forward, speller._reference_forward):
        found = forward(speller.attention.prepare(encoded, _NUM_STATES), previous, masks)
        total = torch.stack([part.square().sum() for part in found]).sum()
        results.append([*found, *torch.autograd.grad(total, read)])
    return [(kind.__name__, ours, right) for ours, right in zip(*results, strict=True)]


@torch.no_grad()
def _search_steps(kind: type[Attention]) -> Differences:
    """Two steps of a search, compiled and in torch's operations."""
    speller, encoded = _small(kind)
    memory, results = speller.eval().attention.prepare(encoded, _NUM_STATES), []
    for step_fn in (speller._compiled_step(memory), None):
        state, found = speller.start(memory), []
        for token in (0, 4):
            log_probs, state = speller.step(torch.full((9, 1), token), memory, state, step_fn)
            found += [log_probs, *state.layers[-1], *state[1:]]
        results.append(found)
    return [(kind.__name__, ours, right) for ours, right in zip(*results, strict=True)]


_NUM_STATES = torch.tensor([7, 3, 1, 0, 7, 6, 5, 4, 2])


def _small(kind: type[Attention]) -> tuple[Speller, Tensor]:
    """Return a speller with this attention, and encoded states, all in fp32."""
    attention = functools.partial(cast(Any, kind), key_size=9)
    options: dict[str, Any] = {"num_layers": 2, "hidden_size": 11, "embedding_size": 3, "dropout": 0.5}
    speller = Speller(6, 5, cell=PlainLSTMCell, attention=attention, **options).float()
    return speller, torch.linspace(-9, 9, 9 * 7 * 5, dtype=torch.float32).sin().view(9, 7, 5).requires_grad_()


Parts = dict[type[Attention], Compiled]
PASSES: Parts = {
    kind: Compiled(f"passes with {kind.__name__}", functools.partial(_passes, kind), 1e-3) for kind in cpu.FORMS
}
STEPS: Parts = {
    kind: Compiled(f"search with {kind.__name__}", functools.partial(_search_steps, kind), 1e-3) for kind in cpu.FORMS
}
