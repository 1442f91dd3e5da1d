"""A caching allocator for large tensors on the CPU, as torch has one for GPUs."""

import threading
import weakref
from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor
from torch.nn import Parameter


class CachingAllocator:
    """Reuses the memory of large tensors that are no longer referenced.

    Torch returns large blocks to the operating system, and the first write to each page of a new block costs more than
    the computation. Used and idle memory together are at most `SLACK` times the largest amount in use at once.
    """

    SMALL = 1 << 20
    """Bytes below which the C library reuses memory itself."""

    SLACK = 1.5

    def __init__(self) -> None:
        self.idle: list[Tensor] = []
        self.held = 0  # bytes, idle or in use
        self.peak = 0  # the largest number of bytes in use at once
        self.lock = threading.Lock()

    def empty(self, like: Tensor, *shape: int) -> Tensor:
        """An uninitialised tensor like `like.new_empty(shape)`; small, GPU and traced tensors come from torch."""
        size = prod(shape) * like.element_size()
        if size < self.SMALL or like.device.type != "cpu" or type(like) not in (Tensor, Parameter):
            return like.new_empty(shape)
        block = self._block(size)
        # The tensor below holds the array: when the tensor's memory ends, so does the array.
        array = block.numpy()
        weakref.finalize(array, self.idle.append, block).atexit = False
        return torch.from_numpy(array)[:size].view(like.dtype).view(shape)

    def empty_like(self, tensor: Tensor) -> Tensor:
        """An uninitialised contiguous tensor like `torch.empty_like(tensor)`."""
        return self.empty(tensor, *tensor.shape)

    def cat(self, parts: Sequence[Tensor]) -> Tensor:
        """The result of `torch.cat(parts, 1)` for tensors with three axes."""
        first, _, size = parts[0].shape
        return torch.cat([*parts], 1, out=self.empty(parts[0], first, sum(part.shape[1] for part in parts), size))

    def release(self) -> None:
        """Return idle memory to the operating system."""
        with self.lock:
            while self.idle:
                self._give_back()
            self.peak = self.held

    def _block(self, size: int) -> Tensor:
        """A block of bytes: the smallest idle one of up to twice the size, or a new one."""
        with self.lock:
            sizes = [block.numel() for block in self.idle]  # len(block) takes ten times as long
            fitting = [(held, index) for index, held in enumerate(sizes) if size <= held <= 2 * size]
            block = self.idle.pop(min(fitting)[1]) if fitting else torch.empty(size, dtype=torch.uint8)
            self.held += 0 if fitting else size
            self.peak = max(self.peak, self.held - sum(block.numel() for block in self.idle))
            while self.idle and self.held > self.SLACK * self.peak:
                self._give_back()
        return block

    def _give_back(self) -> None:
        """Return the block that has been idle for the longest time."""
        self.held -= len(self.idle.pop(0))


allocator = CachingAllocator()
"""The allocator of all kernels."""
