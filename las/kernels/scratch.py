"""Memory for what a kernel needs only until it returns."""

import threading
from collections.abc import Callable, Sequence
from itertools import accumulate
from math import prod

import torch
from torch import Tensor

Room = Callable[[Sequence[tuple[int, ...]], torch.dtype], list[Tensor]]
"""Makes tensors of these shapes, whose values are anything."""


def fresh(shapes: Sequence[tuple[int, ...]], dtype: torch.dtype) -> list[Tensor]:
    """New ones on the CPU."""
    return [torch.empty(shape, dtype=dtype) for shape in shapes]


class Scratch(threading.local):
    """Memory of the CPU that each thread keeps for its next call.

    What torch frees goes back to the system where it is large. The first write to each page of new memory then costs
    more than what is written: a twentieth of a layer's forward and backward pass, and more of a small layer's.
    """

    LINE = 64
    """Tensors start where a line of the cache does."""

    kept: Tensor

    def __init__(self) -> None:
        self.release()

    def tensors(self, shapes: Sequence[tuple[int, ...]], dtype: torch.dtype) -> list[Tensor]:
        """Kept ones, until the thread asks again: they must not outlive the call that asks."""
        sizes = [prod(shape) * dtype.itemsize for shape in shapes]
        places = [0, *accumulate(-(-size // self.LINE) * self.LINE for size in sizes)]
        if places[-1] > len(self.kept):
            self.release()  # before there is the larger one
            self.kept = torch.empty(places[-1], dtype=torch.uint8)
        parts = zip(places, sizes, shapes, strict=False)
        return [self.kept[at : at + size].view(dtype).view(shape) for at, size, shape in parts]

    def release(self) -> None:
        """Give everything back."""
        self.kept = torch.empty(0, dtype=torch.uint8)


scratch = Scratch()
"""The one of all kernels."""
