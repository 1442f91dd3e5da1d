"""The part of language models and transducers that reads tokens: an embedding and recurrent layers."""

from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from las.config.build import require
from las.nn.cells.base import RecurrentCell, State
from las.nn.dropout import Dropout
from las.nn.rnn import CellFactory, RecurrentLayer


class PredictionNetwork(nn.Module):
    """An LSTM over the tokens before: embedding and layers of any cell (Graves 2012, section 2.3).

    Args:
        vocab_size: output symbols, the boundary (id 0), which is fed first, included.
        cell: makes the cell of one layer from (input_size, hidden_size).
        num_layers: depth of the LSTM.
        hidden_size: width of the LSTM.
        embedding_size: width of the embedding of the previous token.
        dropout: on the embedding and on each layer's output, while training.
    """

    boundary = 0

    def __init__(
        self,
        vocab_size: int,
        *,
        cell: CellFactory,
        num_layers: int = 1,
        hidden_size: int = 256,
        embedding_size: int = 64,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        sizes = {"num_layers": num_layers, "hidden_size": hidden_size, "embedding_size": embedding_size}
        for key, number in sizes.items():
            require(key, number, 1)
        require("dropout", dropout, 0.0, 1.0)
        self.embedding = nn.Embedding(vocab_size, embedding_size)
        self.layers, self.output_size = nn.ModuleList(), embedding_size
        for _ in range(num_layers):
            layer = RecurrentLayer(cell, self.output_size, hidden_size)
            self.layers.append(layer)
            self.output_size = layer.output_size
        self.dropout = Dropout(dropout)

    @property
    def cells(self) -> list[RecurrentCell]:
        return [cast(RecurrentLayer, layer).cell for layer in self.layers]

    def forward(self, targets: Int[Tensor, "batch tokens"]) -> Float[Tensor, "batch tokens1 hidden"]:
        """Return the outputs after none, one, ... of the tokens; padding does not affect those before it."""
        rows = self.dropout(self.embedding(nn.functional.pad(targets, (1, 0), value=self.boundary)))
        num_rows = torch.full((len(rows),), rows.shape[1], device=rows.device)
        for layer in self.layers:
            rows = self.dropout(layer(rows, num_rows)[0])
        return rows

    def initial_state(self, batch: int) -> tuple[State, ...]:
        """Return the state before the boundary, one beam per sentence."""
        return tuple(cell.initial_state(batch, 1) for cell in self.cells)

    def step(
        self, tokens: Int[Tensor, "batch beam"], state: tuple[State, ...]
    ) -> tuple[Float[Tensor, "batch beam hidden"], tuple[State, ...]]:
        """Return the output after one more token, and the new state; without dropout."""
        rows, layers = self.embedding(tokens), []
        for cell, before in zip(self.cells, state, strict=True):
            layers.append(cell.step(cell.input_gates(rows), before))
            rows = layers[-1].hidden
        return rows, tuple(layers)
