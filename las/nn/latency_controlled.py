"""Latency-controlled bidirectional listeners (Zhang et al. 2016, section 3): no state waits for more than a chunk.

An utterance is cut into chunks. Each is read with the right context, the frames after it, through all layers; the
right context's own outputs are dropped. In every layer

    backwards    starts anew, from zero, at the end of chunk + right context
    forwards     starts from its state at the end of the chunk before, not of that one's right context

so that the latency is chunk + right context, however many layers there are. All chunks of a batch are computed at once,
as its rows: backwards they do not depend on each other, and forwards the first layer reads nothing but frames, the last
one needs no right context. Only in the layers between does a chunk wait for the one before it.
"""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from las.config.build import require
from las.nn.cells.base import State
from las.nn.listener import Levels, Listener, Reduced
from las.nn.normalisation import Lengths, Rows, reverse
from las.nn.rnn import BidirectionalLayer
from las.nn.streaming import Stage
from las.runtime.errors import ArgumentError

Chunks = Float[Tensor, "chunks chunk_rows chunk_size"]
"""Chunks with their right context: those of the first utterance, of the second, ..."""
Outputs = Float[Tensor, "chunks chunk_rows outputs"]
"""What a layer makes of them, in both directions."""
Ahead = Float[Tensor, "chunks rows_ahead hidden"]
"""What it makes of them forwards, or of the chunks without their right context."""
ChunkLengths = Int[Tensor, "chunks"]


class LatencyControlledListener(Listener):
    """A listener of bidirectional layers that hears a chunk, and a right context, at a time.

    Args:
        input_size: features per frame.
        chunk, right_context: feature frames, multiples of those that become one encoded state.
        options: those of `Listener`.

    >>> import las, torch
    >>> options = dict(cell=las.PlainLSTMCell, num_layers=3, hidden_size=16, time_reduction=(2, 2, 1))
    >>> listener = las.LatencyControlledListener(40, chunk=32, right_context=16, **options).eval()
    >>> features = torch.randn(2, 100, 40)
    >>> whole, num_states = listener(features, num_frames=torch.tensor([100, 100]))
    >>> first, state = listener.stream(features[:, :70])
    >>> second, state = listener.stream(features[:, 70:], state, is_last=True)
    >>> whole.shape, first.shape, torch.allclose(torch.cat([first, second], 1), whole, atol=1e-5)
    (torch.Size([2, 25, 32]), torch.Size([2, 8, 32]), True)
    """

    def __init__(self, input_size: int, *, chunk: int = 32, right_context: int = 32, **options: Any) -> None:
        super().__init__(input_size, **options)
        whole = math.prod(self.reductions)
        for name, frames, least in (("chunk", chunk, whole), ("right_context", right_context, 0)):
            require(name, frames, least)
            if frames % whole:
                nearest = max(round(frames / whole), 1) * whole
                of = f"of the {whole} frames of an encoded state, for example {nearest}"
                raise ArgumentError(f"{name}={frames} must be a multiple {of}")
        if not all(type(layer) is BidirectionalLayer for layer in self.layers):
            raise ArgumentError("layer: latency is controlled in bidirectional layers: leave the layer out")
        entered = whole // math.prod(self.time_reduction)
        self.chunk, self.context = chunk // entered, right_context // entered

    def forward(self, features: Rows, num_frames: Lengths, levels: Levels | None = None) -> tuple[Reduced, Lengths]:
        rows, num_rows = self.enter(features, num_frames)
        batch, num_chunks = len(rows), max(-(-rows.shape[1] // self.chunk), 1)
        longest = self.num_states(torch.tensor([features.shape[1]]))
        begins = self.chunk * torch.arange(num_chunks, device=num_rows.device)
        lengths = (num_rows.unsqueeze(1) - begins).clamp(0, self.chunk + self.context).flatten()
        rows, main = _cut(rows, self.chunk, self.context), self.chunk
        for index in range(len(self.layers)):
            rows, lengths = self.rise(index, partial(self._all_chunks, index, main, batch), rows, lengths)
            main //= self.time_reduction[index]
            if levels is not None:
                levels.append(_joined(rows, lengths, main, batch))
        rows, num_states = _joined(rows, lengths, main, batch)
        rows = rows[:, : int(longest)]
        return self.lookahead(rows, num_states) if self.lookahead else (rows, num_states)

    def stages_of_layers(self) -> Iterator[Stage]:
        yield self._streamed_chunks

    def _layer(self, index: int) -> BidirectionalLayer:
        return cast(BidirectionalLayer, self.layers[index])

    def _all_chunks(self, index: int, main: int, batch: int, rows: Chunks, lengths: ChunkLengths) -> Outputs:
        """Return the outputs of a layer for all chunks of `main` rows and their right contexts."""
        context = rows.shape[1] - main
        if context and 0 < index < len(self.layers) - 1:
            outputs, state = [], None
            by_chunk = rows.unflatten(0, (batch, -1)).unbind(1), lengths.view(batch, -1).unbind(1)
            for chunk, length in zip(*by_chunk, strict=True):
                ahead, state = self._ahead(index, main, chunk, length, state)
                outputs.append(ahead)
            return self._both(index, torch.stack(outputs, dim=1).flatten(0, 1), rows, lengths)
        whole, _ = self._layer(index).forwards(*_joined(rows, lengths, main, batch))
        return self._both(index, _cut(whole, main, 0 if index else context), rows, lengths)

    def _streamed_chunks(self, rows: Rows, state: Any, is_last: bool) -> tuple[Reduced, Any]:
        """Return the states of the chunks whose right context is there, the chunks one after the other."""
        waiting, states = state or (rows[:, :0], [None] * len(self.layers))
        waiting, encoded = torch.cat([waiting, rows], dim=1), [rows.new_zeros(len(rows), 0, self.output_size)]
        while waiting.shape[1] >= self.chunk + self.context or (is_last and waiting.shape[1]):
            chunk, main, after = waiting[:, : self.chunk + self.context], self.chunk, []
            lengths = torch.full((len(chunk),), chunk.shape[1])
            for index, before in enumerate(states):
                outputs: list[State] = []
                layer = partial(self._next_chunk, index, main, before, outputs)
                chunk, lengths = self.rise(index, layer, chunk, lengths)
                main //= self.time_reduction[index]
                after += outputs
            encoded.append(chunk[:, :main])
            waiting, states = waiting[:, self.chunk :], after
        return torch.cat(encoded, dim=1), (waiting, states)

    def _next_chunk(
        self, index: int, main: int, before: State | None, after: list[State], rows: Chunks, lengths: ChunkLengths
    ) -> Outputs:
        """Return the outputs of a layer for one chunk of each utterance; the state after it goes into `after`."""
        ahead, state = self._ahead(index, main, rows, lengths, before)
        after.append(state)
        return self._both(index, ahead, rows, lengths)

    def _ahead(
        self, index: int, main: int, rows: Chunks, lengths: ChunkLengths, state: State | None
    ) -> tuple[Ahead, State]:
        """Return the outputs forwards of a chunk and its right context, and the state at the end of the chunk."""
        forwards = self._layer(index).forwards
        outputs, state = forwards(rows[:, :main], lengths.clamp(max=main), state)
        of_context, _ = forwards(rows[:, main:], (lengths - main).clamp(min=0), state)
        return torch.cat([outputs, of_context], dim=1), state

    def _both(self, index: int, ahead: Ahead, rows: Chunks, lengths: ChunkLengths) -> Outputs:
        """Return the outputs forwards, with those backwards from the end of each right context beside them."""
        back, _ = self._layer(index).backwards(reverse(rows, lengths), lengths)
        ahead = functional.pad(ahead, (0, 0, 0, rows.shape[1] - ahead.shape[1]))
        return torch.cat([ahead, reverse(back, lengths)], dim=-1)


def _cut(rows: Rows, main: int, context: int) -> Chunks:
    """Cut [batch, rows, size] into chunks of `main` rows with the `context` rows after them, zeros behind the end."""
    missing = -rows.shape[1] % main if rows.shape[1] else main
    chunks = functional.pad(rows, (0, 0, 0, missing + context)).unfold(1, main + context, main)
    return chunks.transpose(2, 3).flatten(0, 1)


def _joined(chunks: Chunks, lengths: ChunkLengths, main: int, batch: int) -> tuple[Rows, Lengths]:
    """Return the utterances again, without right contexts, and their lengths."""
    rows = chunks[:, :main].unflatten(0, (batch, -1)).flatten(1, 2)
    return rows, lengths.clamp(max=main).view(batch, -1).sum(1)
