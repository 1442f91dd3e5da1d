"""`las.runtime.precision`: products in bfloat16 where oneDNN has none are those of autocast, in fp32."""

from collections.abc import Callable
from unittest.mock import Mock, patch

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from las.nn.recomputation import recomputed
from las.runtime import precision
from las.runtime.errors import ArgumentError
from las.runtime.precision import RoundedProducts, operand_type, products_as_now, products_of

CPU = torch.device("cpu")

Product = Callable[..., Tensor]
PRODUCTS: dict[str, tuple[Product, list[tuple[int, ...]]]] = {
    "linear": (functional.linear, [(3, 5, 40), (30, 40)]),
    "linear with bias": (functional.linear, [(7, 40), (30, 40), (30,)]),
    "bias by name": (lambda x, w, b: functional.linear(x, w, bias=b), [(7, 40), (30, 40), (30,)]),
    "conv1d": (lambda x, w: functional.conv1d(x, w, padding=2, groups=2), [(2, 4, 20), (6, 2, 5)]),
    "conv2d": (lambda x, w, b: functional.conv2d(x, w, b, (2, 1)), [(2, 3, 9, 8), (4, 3, 3, 3), (4,)]),
    "matmul": (torch.matmul, [(2, 3, 1, 20), (2, 3, 20, 11)]),
    "mm": (torch.mm, [(6, 20), (20, 11)]),
    "bmm": (torch.bmm, [(2, 6, 20), (2, 20, 11)]),
    "method": (lambda x, y: x.matmul(y), [(6, 20), (20, 11)]),
    "operator": (lambda x, y: x @ y, [(2, 6, 20), (20, 11)]),
}


@pytest.fixture
def no_bfloat16():
    with patch.object(precision, "has_bfloat16", lambda: False):
        yield


def operands_of(name: str, seed: int, strided: bool, half: bool) -> list[Tensor]:
    draw = torch.Generator().manual_seed(seed)
    operands = [torch.randn(shape, generator=draw) for shape in PRODUCTS[name][1]]
    if strided:
        operands = [each.transpose(0, -1).contiguous().transpose(0, -1) for each in operands]
    if half:
        operands[0] = operands[0].bfloat16()
    return [each.requires_grad_() for each in operands]


def with_gradients(product: Product, operands: list[Tensor]) -> list[Tensor]:
    result = product(*operands)
    return [result, *torch.autograd.grad(result.double().square().sum(), operands)]


@pytest.mark.parametrize("half", [False, True], ids=["fp32", "half"])
@pytest.mark.parametrize("strided", [False, True], ids=["dense", "strided"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_rounded_products_are_those_of_autocast(name, strided, half):
    """Types are the same; numbers differ by the rounding of results in bfloat16, so fp64 products are near to both."""
    product, _ = PRODUCTS[name]
    operands = operands_of(name, 1, strided, half)
    with torch.autocast("cpu", torch.bfloat16):
        theirs = with_gradients(product, operands)
        with RoundedProducts():
            ours = with_gradients(product, operands)
    exact = product(*(each.bfloat16().double() for each in operands))
    assert ours[0].dtype == torch.bfloat16
    assert torch.equal(ours[0], exact.float().bfloat16()) or torch.allclose(ours[0].double(), exact, 4e-3, 1e-5)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.dtype == other.dtype and mine.shape == other.shape
        torch.testing.assert_close(mine, other, rtol=0.02, atol=0.02 * other.abs().max().item())


def test_only_what_autocast_rounds_is_rounded():
    x, weight = torch.randn(4, 20), torch.randn(9, 20)
    exact = functional.linear(x, weight)
    with RoundedProducts():
        assert torch.equal(functional.linear(x, weight), exact)  # without autocast
        with torch.autocast("cpu", torch.bfloat16):
            assert functional.linear(x.double(), weight.double()).dtype == torch.float64
            assert torch.equal(x + x, 2 * x)
            with torch.autocast("cpu", enabled=False):
                assert torch.equal(functional.linear(x, weight), exact)
        with torch.autocast("cpu", torch.float16):
            assert functional.linear(x, weight).dtype == torch.float16


@pytest.mark.parametrize("has_bfloat16", [False, True])
def test_processors_with_bfloat16_use_torch(has_bfloat16):
    x, weight = torch.randn(4, 20), torch.randn(9, 20)
    with (
        patch.object(precision, "has_bfloat16", lambda: has_bfloat16),
        patch.object(precision, "RoundedProducts", Mock(wraps=RoundedProducts)) as emulation,
    ):
        with products_of(torch.float32, CPU):
            assert functional.linear(x, weight).dtype == torch.float32
        assert not emulation.called
        with products_of(torch.bfloat16, CPU):
            assert functional.linear(x, weight).dtype == torch.bfloat16
        assert emulation.called is not has_bfloat16


def test_products_stay_as_they_were_where_they_are_taken_again(no_bfloat16):
    """A loss that asks later, and what `recomputed` computes in the backward pass, have the products of the forward."""
    layer, rows = nn.Linear(20, 9), torch.randn(8, 20)
    with products_of(torch.bfloat16, CPU):
        again, expected = products_as_now(CPU), layer(rows)
        whole = with_gradients(lambda w: functional.linear(rows, w), [layer.weight])
        (parts,) = recomputed(lambda part: (functional.linear(part, layer.weight),), [(rows[:4],), (rows[4:],)])
    (gradient,) = torch.autograd.grad(parts.double().square().sum(), [layer.weight])
    torch.testing.assert_close(gradient, whole[1], rtol=0.02, atol=0.02 * gradient.abs().max().item())
    with again():
        assert torch.equal(layer(rows), expected)
    assert layer(rows).dtype == torch.float32
    with products_as_now(CPU)():
        assert layer(rows).dtype == torch.float32


def test_an_unknown_precision_names_those_there_are():
    assert operand_type("bf16") == torch.bfloat16
    with pytest.raises(ArgumentError, match="fp32 or bf16"):
        operand_type("fp61")
