"""Tensors that C++ reads and writes: a caching allocator for large ones, as torch has one for GPUs, structures of their
addresses, and calls.
"""

import ctypes
import threading
import weakref
from math import prod
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import Parameter

from las.nn.kernels.cpp import build


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
        """Return an uninitialised tensor as `like.new_empty(shape)`; small, GPU and traced tensors come from torch."""
        size = prod(shape) * like.element_size()
        if size < self.SMALL or like.device.type != "cpu" or type(like) not in (Tensor, Parameter):
            return like.new_empty(shape)
        block = self._block(size)
        # The tensor below holds the array: when the tensor's memory ends, so does the array.
        array = block.numpy()
        weakref.finalize(array, self.idle.append, block).atexit = False
        return torch.from_numpy(array)[:size].view(like.dtype).view(shape)

    def empty_like(self, tensor: Tensor) -> Tensor:
        """Return an uninitialised contiguous tensor like `torch.empty_like(tensor)`."""
        return self.empty(tensor, *tensor.shape)

    def release(self) -> None:
        """Return idle memory to the operating system."""
        with self.lock:
            while self.idle:
                self._give_back()
            self.peak = self.held

    def _block(self, size: int) -> Tensor:
        """Return a block of bytes: the smallest idle one of up to twice the size, or a new one."""
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


def score_type(device: torch.device) -> torch.dtype:
    """Return the type in which scores of a search are summed."""
    return torch.float32 if device.type == "mps" else torch.float64  # Metal has no float64


def _pointer(dtype: torch.dtype) -> type[ctypes.c_void_p]:
    """Return a type of fields that point to numbers of this type, whatever type the others of the structure have."""
    return type("Pointer", (ctypes.c_void_p,), {"dtype": dtype})


Int64s, Doubles, Bools, Bytes = map(_pointer, (torch.int64, torch.float64, torch.bool, torch.uint8))


class Structure(ctypes.Structure):
    """Base class of structures that the C++ declares as well.

    The C++ is given addresses alone. It takes each for one on the CPU where elements of the field's type follow each
    other without gaps; a field of type `c_void_p` has the type of the first such tensor, as the others have.
    """

    kinds: dict[str, torch.dtype | None]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.kinds = {field[0]: getattr(field[1], "dtype", None) for field in cls._fields_}

    def point(self, **tensors: Tensor | None) -> None:
        """Set pointers to these tensors, which the caller keeps alive.

        Raises TypeError for one that the C++ would read wrongly; see `dense`.
        """
        for name, tensor in tensors.items():
            if tensor is not None:
                if not tensor.is_contiguous():
                    raise TypeError(f"{name} has strides {tensor.stride()}: the C++ takes it for a dense tensor")
                self._point(name, tensor)

    def point_apart(self, **tensors: Tensor) -> None:
        """Set pointers to tensors whose strides the structure has as numbers."""
        for name, tensor in tensors.items():
            self._point(name, tensor)

    def _point(self, name: str, tensor: Tensor) -> None:
        kind = self.kinds[name]
        if kind is None:
            kind = self.__dict__.setdefault("number", tensor.dtype)
        address = tensor.data_ptr() if tensor.is_cpu else 0
        if tensor.dtype != kind or tensor.is_neg() or (not address and tensor.numel()):
            raise TypeError(
                f"{name} is {tensor.dtype} on {tensor.device}{', negated when it is read' if tensor.is_neg() else ''}: "
                f"the compiled kernel reads {kind} on the CPU"
            )
        setattr(self, name, address)


def dense(tensor: Tensor) -> Tensor:
    """Return the tensor as the C++ reads it: elements without gaps, none of them negated only when it is read."""
    return tensor.contiguous().resolve_neg()


def call(name: str, dtype: torch.dtype | None, structure: Structure, shared: bool = True) -> None:
    """Call the library's function of this name, and for numbers of this type if it has one for each.

    With `shared`, as many threads as torch may use share the work.
    """
    function = name if dtype is None else f"{name}_{str(dtype).removeprefix('torch.')}"
    threads = torch.get_num_threads() if shared else 1
    getattr(build.library(), function)(ctypes.byref(structure), ctypes.c_int64(threads))


MATRIX = ("", ctypes.c_void_p), ("_row", ctypes.c_int64), ("_column", ctypes.c_int64)


class CppProduct(Structure):
    """The structure `Product` of `matrices.h`, field by field."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("rows", "inner", "columns", "adding")),
        *((f"left{name}", kind) for name, kind in MATRIX),
        *((f"right{name}", kind) for name, kind in MATRIX),
        ("to", ctypes.c_void_p),
    )


class CppLibrary(NamedTuple):
    """The compiled library, and how it multiplies matrices."""

    compiled: ctypes.CDLL
    unit: int | None = None
    """The number in `bfloat16.h` of what multiplies matrices rounded to bfloat16; None where nothing is rounded."""

    def call(self, name: str, dtype: torch.dtype, *arguments: Any) -> None:
        """Call a function, on as many threads as torch may use."""
        products = dtype if self.unit is None else torch.bfloat16
        function = getattr(self.compiled, f"{name}_{str(products).removeprefix('torch.')}")
        unit = () if self.unit is None else (ctypes.c_int64(self.unit),)
        function(*arguments, ctypes.c_int64(torch.get_num_threads()), *unit)

    def product(
        self, left: Float[Tensor, "rows inner"], right: Float[Tensor, "inner columns"], added_to: Tensor | None = None
    ) -> Float[Tensor, "rows columns"]:
        """Return the product left right, added to `added_to` in place if given; both may be transposed views."""
        left, right = (part.resolve_neg() if 1 in part.stride() else dense(part) for part in (left, right))
        to = allocator.empty(left, len(left), right.shape[1]) if added_to is None else added_to
        product = CppProduct(*left.shape, right.shape[1], added_to is not None)
        product.left_row, product.left_column = left.stride()
        product.right_row, product.right_column = right.stride()
        product.point_apart(left=left, right=right)
        product.point(to=to)
        self.call("multiply", left.dtype, ctypes.byref(product))
        return to
