"""The large products of the compiled kernel, against torch's in double precision."""

import pytest
import torch
from torch import Tensor

from las.nn.kernels.cpp import build
from las.nn.kernels.cpp.recurrence import CppLibrary

# Rows, inner size and columns on both sides of the edges of tiles and blocks (`matrices.h`).
SIZES = [(1, 1, 1), (5, 3, 7), (6, 384, 16), (7, 385, 17), (145, 20, 33), (300, 800, 40), (3, 5, 4100), (4, 0, 5)]


@pytest.fixture(scope="module")
def library() -> CppLibrary:
    try:
        return CppLibrary(build.library())
    except build.Unavailable as reason:
        pytest.skip(str(reason))


def matrix(rows: int, columns: int, transposed: bool, dtype: torch.dtype) -> Tensor:
    """Random numbers, of which either rows or columns lie together."""
    drawn = torch.randn(columns, rows, dtype=dtype).t() if transposed else torch.randn(rows, columns, dtype=dtype)
    assert drawn.shape == (rows, columns)
    return drawn


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("left_transposed", "right_transposed"), [(False, False), (False, True), (True, False)])
@pytest.mark.parametrize("size", SIZES)
def test_equals_torch_and_does_not_depend_on_threads(
    library: CppLibrary, size: tuple[int, int, int], left_transposed: bool, right_transposed: bool, dtype: torch.dtype
) -> None:
    torch.manual_seed(1)
    rows, inner, columns = size
    left, right = matrix(rows, inner, left_transposed, dtype), matrix(inner, columns, right_transposed, dtype)
    exact = left.double() @ right.double()
    tolerance = 8 * torch.finfo(dtype).eps
    threads = torch.get_num_threads()
    try:
        found = []
        for count in (1, 2):
            torch.set_num_threads(count)
            found.append(library.product(left, right))
            before = torch.ones(rows, columns, dtype=dtype)
            added = library.product(left, right, before)
            assert added.data_ptr() == before.data_ptr()
            torch.testing.assert_close(added.double(), exact + 1, rtol=tolerance, atol=tolerance * max(inner, 1))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*found)
    torch.testing.assert_close(found[0].double(), exact, rtol=tolerance, atol=tolerance * max(inner, 1))
