"""The speller: an LSTM language model that attends to the listener's states (Chan et al. 2016, section 3.2).

One step, for the previous token y_{i-1} and the previous context c_{i-1}:

    s_i = LSTM([embed(y_{i-1}); c_{i-1}], s_{i-1})          input feeding
    c_i = attention(s_i, encoded)
    p(y_i) = softmax(linear(tanh(linear([s_i; c_i]))))

Its state is a value: search keeps as many as it likes and reorders them along the beam axis.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from las.attention.base import Attention, Memory
from las.cells.base import LSTMCell, LSTMState
from las.recurrent import CellFactory

AttentionFactory = Callable[[int, int], Attention]
"""Makes an attention from (query_size, value_size)."""


class SpellerState(NamedTuple):
    """All a step needs from the past; every tensor is [batch, beam, ...]."""

    layers: tuple[LSTMState, ...]
    context: Float[Tensor, "batch beam value"]
    weights: Float[Tensor, "batch beam states"]


class Spelling(NamedTuple):
    """A teacher-forced pass: one row per target token and one for the end of the sentence."""

    logits: Float[Tensor, "batch steps vocab"]
    weights: Float[Tensor, "batch steps states"]


class Speller(nn.Module):
    """Tokens out of encoded states.

    Args:
        vocab_size: output symbols, the sentence boundary (id 0) included.
        value_size: size of one encoded state.
        cell: makes the cell of one layer from (input_size, hidden_size).
        attention: makes the attention from (query_size, value_size).
        num_layers, hidden_size: of the LSTM.
        embedding_size: of the previous token.
        dropout: on the embedding, between layers and before the output layer, while training.
        scheduled_sampling: probability, per token, of feeding the model's own sample in place of the true previous
            token while training (Bengio et al. 2015).
    """

    boundary = 0  # both the start and the end of a sentence

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
        scheduled_sampling: float = 0.0,
    ) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        self.scheduled_sampling = scheduled_sampling
        self.embedding = nn.Embedding(vocab_size, embedding_size)
        self.cells = nn.ModuleList()
        size = embedding_size + value_size
        for _ in range(num_layers):
            self.cells.append(cell(size, hidden_size))
            size = hidden_size
        self.attention = attention(hidden_size, value_size)
        self.readout = nn.Linear(hidden_size + value_size, hidden_size)
        self.output = nn.Linear(hidden_size, vocab_size)
        self.dropout = nn.Dropout(dropout)

    def start(self, memory: Memory) -> SpellerState:
        """The state before the first token, with one beam per utterance."""
        batch = memory.values.shape[0]
        cells = cast(Iterable[LSTMCell], self.cells)
        layers = tuple(cell.initial_state(batch, 1) for cell in cells)
        context = memory.values.new_zeros(batch, 1, memory.values.shape[-1])
        return SpellerState(layers, context, self.attention.initial_weights(memory))

    def advance(
        self, tokens: Int[Tensor, "batch beam"], memory: Memory, state: SpellerState
    ) -> tuple[Float[Tensor, "batch beam readout"], SpellerState]:
        """Feed the previous tokens: what the output layer will see, and the new state."""
        inputs = torch.cat([self.dropout(self.embedding(tokens)), state.context], dim=-1)
        layers = []
        for cell, previous in zip(cast(Iterable[LSTMCell], self.cells), state.layers, strict=True):
            layer = cell.step(cell.input_gates(inputs), previous)
            layers.append(layer)
            inputs = self.dropout(layer.hidden)
        context, weights = self.attention.attend(layers[-1].hidden, memory, state.weights)
        return torch.cat([inputs, context], dim=-1), SpellerState(tuple(layers), context, weights)

    def logits(self, readout: Float[Tensor, "*batch readout"]) -> Float[Tensor, "*batch vocab"]:
        """Scores of the next token, before the softmax."""
        return self.output(self.dropout(torch.tanh(self.readout(readout))))

    def step(
        self, tokens: Int[Tensor, "batch beam"], memory: Memory, state: SpellerState
    ) -> tuple[Float[Tensor, "batch beam vocab"], SpellerState]:
        """Log-probabilities of the next token after `tokens`, and the new state."""
        readout, state = self.advance(tokens, memory, state)
        return torch.log_softmax(self.logits(readout), dim=-1), state

    def forward(self, memory: Memory, targets: Int[Tensor, "batch tokens"]) -> Spelling:
        """Teacher forcing: row i holds the scores of target i given targets before it; the last row is the end's."""
        batch, num_tokens = targets.shape
        previous = torch.cat([targets.new_full((batch, 1), self.boundary), targets], dim=1)
        state = self.start(memory)
        readouts: list[Tensor] = []
        weights: list[Tensor] = []
        for step in range(num_tokens + 1):
            tokens = previous[:, step : step + 1]
            if step and self.training and self.scheduled_sampling:
                tokens = self._sample(tokens, readouts[-1])
            readout, state = self.advance(tokens, memory, state)
            readouts.append(readout)
            weights.append(state.weights)
        # One matrix product for all steps: the output layer is the widest of the speller.
        return Spelling(self.logits(torch.cat(readouts, dim=1)), torch.cat(weights, dim=1))

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
