"""The sizes that recurrent layers are measured at, by name."""

from typing import NamedTuple

import torch
from torch import Tensor

LIBRISPEECH_FRAMES = (
    *(193, 259, 313, 424, 487, 646, 726, 812, 887, 981, 1079, 1178, 1212, 1253, 1267, 1299),
    *(1312, 1328, 1349, 1387, 1395, 1416, 1428, 1448, 1469, 1482, 1493, 1504, 1533, 1562, 1586, 1671),
)
"""Durations in 10 ms of 32 utterances of LibriSpeech's train-clean-5, evenly spread over 256 sorted ones."""


class Shape(NamedTuple):
    """Layers over a batch of rows.

    `reduction` has one entry for each layer: the number of neighbouring outputs that max pooling makes one.
    """

    description: str
    hidden_size: int
    input_size: int
    batch: int
    frames: int
    directions: int = 2
    shortest: float = 1.0
    """The shortest row as a share of the longest; lengths in between are uniform random."""
    lengths: tuple[int, ...] = ()
    """The true lengths of the rows, in place of random ones."""
    reduction: tuple[int, ...] = (1,)

    @property
    def ragged(self) -> bool:
        """True if the rows differ in length, so that some are padded."""
        return self.shortest < 1.0 or bool(self.lengths)

    def num_frames(self) -> Tensor:
        """The true length of each row, [batch], deterministic; the longest has all frames."""
        if self.lengths:
            return torch.tensor(self.lengths)
        lowest = max(round(self.shortest * self.frames), 1)
        drawn = torch.randint(lowest, self.frames + 1, (self.batch,), generator=torch.Generator().manual_seed(1))
        drawn[0] = self.frames
        return drawn


SHAPES = {
    "C1": Shape("small, CPU", 256, 512, 16, 200),
    "C2": Shape("middle, CPU", 512, 1024, 16, 200),
    "C3": Shape("large, CPU", 1024, 2048, 16, 100),
    "C4": Shape("C1 with rows of half to full length", 256, 512, 16, 200, shortest=0.5),
    "C5": Shape("C1, short enough to compile", 256, 512, 16, 10),
    "D1": Shape("first layer of the demo's listener", 128, 80, 32, 125, shortest=0.5),
    "S1": Shape("small", 256, 512, 16, 400),
    "S2": Shape("middle", 512, 1024, 32, 1000),
    "S3": Shape("large, few rows", 1024, 2048, 16, 1000),
    "S4": Shape("large: the headline", 1024, 2048, 32, 1600),
    "S5": Shape("large, many rows", 1024, 2048, 64, 533),
    "S6": Shape("wider than cuDNN's fast kernel", 1280, 2560, 32, 267),
    "S7": Shape("one direction", 1024, 1024, 32, 1000, directions=1),
    "S8": Shape("the shape FlashRNN published", 768, 768, 16, 1024, directions=1),
    "S9": Shape(
        "six layers on lengths of LibriSpeech",
        *(1024, 80, 32, max(LIBRISPEECH_FRAMES)),
        lengths=LIBRISPEECH_FRAMES,
        reduction=(3, 2, 1, 1, 1, 1),
    ),
    "S10": Shape("one step of a search: 32 utterances x 12", 1024, 1024, 384, 1, directions=1),
}
"""C and S are those of the design (CPU and GPU), C5 and D1 our own."""

ON_CPU = ("C1", "C2", "C3", "C4")
ON_CUDA = ("S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8", "S9")
