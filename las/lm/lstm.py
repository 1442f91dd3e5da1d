"""An LSTM language model of a recogniser's tokens, with the same cells and kernels (Zeyer et al. 2018, section 4).

    p(y_i | y_1 ... y_{i-1}) = softmax(linear(LSTM(embed(y_{i-1}), s_{i-1})))

A sentence begins and ends with the boundary, id 0. As a scorer for search it has the interface of `las.lm.ngram`.
"""

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from las.data.tokenizers import Tokenizer
from las.lm import vocabulary
from las.nn.cells.base import State
from las.nn.ctc import CTCOutput
from las.nn.kernels import choice
from las.nn.model import FeatureAugmentation, Trainable, TrainingBatch
from las.nn.prediction import PredictionNetwork


class Prediction(NamedTuple):
    """Logits of whole sentences, one row per token and one for the end; there is no CTC output."""

    logits: Float[Tensor, "batch steps vocab"]
    ctc_output: CTCOutput | None = None


class NeuralState(NamedTuple):
    """The states of all layers after the symbols so far; every tensor is [batch, beam, ...]."""

    layers: tuple[State, ...]


class LSTMLanguageModel(PredictionNetwork, Trainable):
    """An LSTM language model: the distribution of the next token given the previous ones.

    Args:
        vocab_size: output symbols, the sentence boundary (id 0) included.
        cell: makes the cell of one layer from (input_size, hidden_size).
        num_layers: depth of the LSTM.
        hidden_size: width of the LSTM.
        embedding_size: width of the embedding of the previous token.
        dropout: on the embedding and on each layer's output, while training.
    """

    features = None

    def __init__(self, vocab_size: int, **options: Any) -> None:
        super().__init__(vocab_size, **options)
        self.output = nn.Linear(self.output_size, vocab_size)

    def explain(self) -> str:
        """Return a line for the log of a run: the kernel of the recurrences, and why it was selected."""
        return choice.explain(self.cells[0], self.embedding.weight)

    def forward(self, targets: Int[Tensor, "batch tokens"]) -> Float[Tensor, "batch steps vocab"]:
        """Logits: row i predicts target i from the targets before it, the last row predicts the end.

        Padding after a sentence does not affect the rows before it.
        """
        return self.output(super().forward(targets))

    def forward_batch(self, batch: TrainingBatch, augment: FeatureAugmentation) -> Prediction:
        """Predict the targets of a batch, which has no audio, so that nothing is augmented; logits in fp32."""
        return Prediction(self(batch.targets).float())

    @torch.no_grad()
    def start(self, batch: int, device: torch.device | str = "cpu") -> NeuralState:
        """Return the state at the start of each of `batch` sentences. The parameters are moved to this device."""
        if self.device != torch.device(device):
            self.to(device)
        empty = NeuralState(self.initial_state(batch))
        return self.advance(empty, torch.full((batch, 1), self.boundary, device=self.device))

    @torch.no_grad()
    def score(self, state: NeuralState) -> Float[Tensor, "batch beam symbols"]:
        return torch.log_softmax(self.output(state.layers[-1].hidden), dim=-1)

    @torch.no_grad()
    def advance(self, state: NeuralState, tokens: Int[Tensor, "batch beam"]) -> NeuralState:
        return NeuralState(self.step(tokens, state.layers)[1])

    def follow(
        self, state: NeuralState, tokens: Int[Tensor, "batch beam"]
    ) -> tuple[Float[Tensor, "batch beam"], NeuralState]:
        return self.score(state).gather(-1, tokens.unsqueeze(-1)).squeeze(-1), self.advance(state, tokens)


@torch.no_grad()
def of_tokens(model: LSTMLanguageModel, own: Tokenizer, tokens: Tokenizer, name: str) -> LSTMLanguageModel:
    """Reorder the outputs of a model of tokens `own` to those of `tokens`, the same symbols perhaps in another order.

    Changes the model in place. Raises DataError as `vocabulary.check` does, which names the model by `name`.
    """
    model.eval()
    words, log10_end = vocabulary.words_of(own), float(model.score(model.start(1))[0, 0, 0]) / math.log(10)
    vocabulary.check(words, log10_end, name, tokens)
    order = torch.tensor([words.index(word) for word in vocabulary.words_of(tokens)])
    for parameter in (model.embedding.weight, model.output.weight, model.output.bias):
        parameter.copy_(parameter[order])
    return model
