"""A caching allocator for large tensors on the CPU, as torch has one for GPUs."""

import threading
import weakref
from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor
from torch.nn import Parameter


class CachingAllocator:
    """Keeps the memory of large tensors that nothing refers to any more, and makes the next ones of it.

    What torch frees goes back to the system where it is large, and the first write to each page of new memory costs
    more than what is written. With what is in use, what is kept is at most `SLACK` times what has been in use at once.
    """

    SMALL = 1 << 20
    """Below so many bytes, the C library keeps memory itself."""

    SLACK = 1.5

    def __init__(self) -> None:
        self.idle: list[Tensor] = []
        self.held = 0  # bytes, idle or in use
        self.most = 0  # bytes that were in use at once
        self.lock = threading.Lock()

    def empty(self, like: Tensor, *shape: int) -> Tensor:
        """As `like.new_empty(shape)`; what is not on the CPU, or a tensor in name only, torch makes."""
        size = prod(shape) * like.element_size()
        if size < self.SMALL or like.device.type != "cpu" or type(like) not in (Tensor, Parameter):
            return like.new_empty(shape)
        block = self._block(size)
        # The tensor below holds the array: when the tensor's memory ends, so does the array.
        array = block.numpy()
        weakref.finalize(array, self.idle.append, block).atexit = False
        return torch.from_numpy(array)[:size].view(like.dtype).view(shape)

    def empty_like(self, tensor: Tensor) -> Tensor:
        """As `torch.empty_like`, contiguous."""
        return self.empty(tensor, *tensor.shape)

    def cat(self, parts: Sequence[Tensor]) -> Tensor:
        """As `torch.cat(parts, 1)` of tensors with three axes."""
        first, _, size = parts[0].shape
        return torch.cat([*parts], 1, out=self.empty(parts[0], first, sum(part.shape[1] for part in parts), size))

    def release(self) -> None:
        """Give back what is not in use."""
        with self.lock:
            while self.idle:
                self._give_back()
            self.most = self.held

    def _block(self, size: int) -> Tensor:
        """Bytes: the smallest that are kept of up to twice the size, or new ones."""
        with self.lock:
            fitting = [(len(block), at) for at, block in enumerate(self.idle) if size <= len(block) <= 2 * size]
            block = self.idle.pop(min(fitting)[1]) if fitting else torch.empty(size, dtype=torch.uint8)
            self.held += 0 if fitting else size
            self.most = max(self.most, self.held - sum(map(len, self.idle)))
            while self.idle and self.held > self.SLACK * self.most:
                self._give_back()
        return block

    def _give_back(self) -> None:
        """What has been idle for the longest time."""
        self.held -= len(self.idle.pop(0))


allocator = CachingAllocator()
"""The one of all kernels."""
