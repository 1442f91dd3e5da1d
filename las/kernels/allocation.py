"""A caching allocator for large tensors on the CPU, as torch has one for GPUs."""

import threading
import weakref
from math import prod

import torch
from torch import Tensor
from torch.nn import Parameter


class CachingAllocator:
    """Keeps the memory of large tensors that nothing refers to any more, and makes the next ones of it.

    What torch frees goes back to the system where it is large, and the first write to each page of new memory costs
    more than what is written. What is kept is never more than has been in use at once.
    """

    SMALL = 4 << 20
    """Below so many bytes, the C library keeps memory itself."""

    def __init__(self) -> None:
        self.idle: list[Tensor] = []
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

    def release(self) -> None:
        """Give back what is not in use."""
        with self.lock:
            self.idle.clear()

    def _block(self, size: int) -> Tensor:
        """Bytes: the smallest that are kept of up to twice the size, or new ones in place of kept ones."""
        with self.lock:
            fitting = [(len(block), at) for at, block in enumerate(self.idle) if size <= len(block) <= 2 * size]
            if fitting:
                return self.idle.pop(min(fitting)[1])
            given_back = 0
            while self.idle and given_back < size:
                given_back += len(self.idle.pop(0))
        return torch.empty(size, dtype=torch.uint8)


allocator = CachingAllocator()
"""The one of all kernels."""
