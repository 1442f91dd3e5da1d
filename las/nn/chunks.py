"""Chunks of utterances: overlapping stretches of equal length, to train on short sequences (Zeineldeen et al. 2020).

With chunks of 50 frames every 25, all frames but the first 25 are in two chunks, once with their past and once with
their future cut off. An LSTM begins each chunk with an empty state.
"""

from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor


class Chunks(NamedTuple):
    """Places of the chunks of a batch."""

    rows: Int[Tensor, "chunks"]
    """Row of the batch of each chunk."""
    starts: Int[Tensor, "chunks"]
    lengths: Int[Tensor, "chunks"]

    def cut(self, sequences: Tensor, size: int) -> Tensor:
        """Cut sequences [batch, frames, ...] into chunks [chunks, size, ...], 0 behind the length of each."""
        offsets = torch.arange(size)
        places = (self.starts.unsqueeze(1) + offsets).clamp(max=sequences.shape[1] - 1)
        outside = offsets >= self.lengths.unsqueeze(1)
        rows, places, outside = (
            each.to(sequences.device, non_blocking=True) for each in (self.rows.unsqueeze(1), places, outside)
        )
        cut = sequences[rows, places]
        return cut.masked_fill(outside.view(*outside.shape, *[1] * (cut.dim() - 2)), 0)


def chunks_of(lengths: Int[Tensor, "batch"], size: int, step: int) -> Chunks:
    """Chunks of up to `size` frames that begin every `step` frames, as long as there are frames.

    >>> import torch
    >>> from las.nn.chunks import chunks_of
    >>> chunks_of(torch.tensor([60, 10]), 50, 25)
    Chunks(rows=tensor([0, 0, 0, 1]), starts=tensor([ 0, 25, 50,  0]), lengths=tensor([50, 35, 10, 10]))
    """
    counts = torch.div(lengths + step - 1, step, rounding_mode="floor")
    rows = torch.repeat_interleave(torch.arange(len(lengths), device=lengths.device), counts)
    firsts = torch.repeat_interleave(counts.cumsum(0) - counts, counts)
    starts = step * (torch.arange(len(rows), device=lengths.device) - firsts)
    return Chunks(rows, starts, torch.minimum(lengths[rows] - starts, torch.full_like(starts, size)))
