"""Products of matrices that oneDNN, from which `nn.LSTM` takes its own, computes faster than torch.mm and torch.bmm.

Torch reaches oneDNN by two ways. A convolution of width one is a product. The operators that torch's compiler uses take
a weight in oneDNN's own order, which pays where one call multiplies by the same weight many times, as by the
recurrent weight frame by frame.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from las.nn.kernels.torch.allocator import allocator

CONVOLVED = 1 << 19
"""Numbers in a weight from which on convolutions are faster than products."""

BLOCK = 512
"""Number of columns computed at once, few enough for the C library to reuse the memory of oneDNN's copies."""

PACKED = 4 << 20
"""Bytes of a weight from which on oneDNN's order is faster."""

OPERATORS = "_reorder_linear_weight", "_linear_pointwise"


def convolves(rows: Tensor, weight: Tensor) -> bool:
    """True if `forward_product` and `backward_product` are faster than torch.mm; they need at least one row."""
    if rows.device.type != "cpu" or rows.dtype != torch.float32 or weight.numel() < CONVOLVED:
        return False
    return len(rows) > 0 and torch.backends.mkldnn.is_available()


def forward_product(
    rows: Float[Tensor, "rows input"], weight: Float[Tensor, "gates input"]
) -> Float[Tensor, "rows gates"]:
    """rows W^T, as a convolution."""
    return _convolved(functional.conv2d, rows, weight.split(BLOCK), len(weight))


def backward_product(
    grads: Float[Tensor, "rows gates"], weight: Float[Tensor, "gates input"]
) -> Float[Tensor, "rows input"]:
    """grads W, as a transposed convolution."""
    return _convolved(functional.conv_transpose2d, grads, weight.split(BLOCK, 1), weight.shape[1])


def _convolved(convolve: Callable[..., Tensor], rows: Tensor, weights: Sequence[Tensor], columns: int) -> Tensor:
    """The product block by block: the rows are an image one pixel wide, their values its channels."""
    out, image = allocator.empty(rows, len(rows), columns), rows[None, :, None].permute(0, 3, 1, 2)
    for part, weight in zip(out.split(BLOCK, 1), weights, strict=True):
        part.copy_(convolve(image, weight[:, :, None, None])[0, :, :, 0].t())
    return out


class Product:
    """rows M^T, [directions, rows, inner] by [directions, outer, inner] to [directions, rows, outer]."""

    def __init__(self, matrix: Tensor) -> None:
        self.matrix = matrix.mT

    def write(self, rows: Tensor, out: Tensor) -> None:
        torch.bmm(rows, self.matrix, out=out)

    def add(self, to: Tensor, rows: Tensor, out: Tensor) -> None:
        """Write to + rows M^T."""
        # One operation of both is slow where `out` has gaps between directions.
        torch.add(to, torch.bmm(rows, self.matrix), out=out)


class PackedProduct(Product):
    """A product with copies of the matrices in oneDNN's order, through the operators that torch's compiler uses."""

    def __init__(self, matrix: Tensor) -> None:
        self.packed = [torch.ops.mkldnn._reorder_linear_weight(part) for part in matrix]

    @staticmethod
    def gains(matrix: Tensor) -> bool:
        """True if this installation of torch has the operators and the matrices are large enough to gain."""
        if matrix.device.type != "cpu" or matrix.dtype != torch.float32 or matrix[0].nbytes < PACKED:
            return False
        return torch.backends.mkldnn.is_available() and all(hasattr(torch.ops.mkldnn, name) for name in OPERATORS)

    def write(self, rows: Tensor, out: Tensor) -> None:
        for into, product in zip(out, self._products(rows), strict=True):
            into.copy_(product)

    def add(self, to: Tensor, rows: Tensor, out: Tensor) -> None:
        for into, one, product in zip(out, to, self._products(rows), strict=True):
            torch.add(one, product, out=into)

    def _products(self, rows: Tensor) -> list[Tensor]:
        linear = torch.ops.mkldnn._linear_pointwise  # of rows, weight, bias, activation, its scalars and algorithm
        return [linear(one, packed, None, "none", [], "") for one, packed in zip(rows, self.packed, strict=True)]


def product_of(matrix: Tensor) -> Product:
    """The faster `Product` of a matrix."""
    return PackedProduct(matrix) if PackedProduct.gains(matrix) else Product(matrix)
