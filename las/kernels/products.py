"""Products of the rows of one frame with a recurrent weight, as fast as torch makes them.

`nn.LSTM` takes them from oneDNN, which wants a large weight in an order of its own; `torch.bmm` takes up to twice as
long. That order is worth its making only where one call multiplies by the weight again and again.
"""

import torch
from torch import Tensor

LARGE = 4 << 20
"""Bytes of a weight from which on oneDNN's order is faster."""

OPERATORS = "_reorder_linear_weight", "_linear_pointwise"


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
    """From copies of the matrices in oneDNN's order, through the operators that torch's compiler uses."""

    def __init__(self, matrix: Tensor) -> None:
        self.packed = [torch.ops.mkldnn._reorder_linear_weight(part) for part in matrix]

    @staticmethod
    def gains(matrix: Tensor) -> bool:
        """Whether this installation of torch has the operators, for such matrices, and these are large enough."""
        if matrix.device.type != "cpu" or matrix.dtype != torch.float32 or matrix[0].nbytes < LARGE:
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
    """The faster one of both."""
    return PackedProduct(matrix) if PackedProduct.gains(matrix) else Product(matrix)
