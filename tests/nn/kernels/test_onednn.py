"""What `autograd` leaves to oneDNN, and its own W x, against torch's products and the cells themselves."""

import pytest
import torch
from autograd_cases import make
from kernel_cases import INPUT, every_cell, layer_both, unroll_both
from torch import Tensor

from las.nn.kernels import plain as plain_kernel
from las.nn.kernels.torch import equations, input_projection
from las.nn.kernels.torch import layer as autograd
from las.nn.kernels.torch import products as onednn
from las.nn.kernels.torch.products import PackedProduct, Product, product_of


def needs_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onednn, "PACKED", 1)
    if not PackedProduct.gains(torch.empty(1, 2, 2)):
        pytest.skip("this torch was built without oneDNN")


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("rows", "outer", "inner"), [(1, 4, 1), (16, 40, 10), (7, 129, 65), (33, 260, 97)])
@pytest.mark.parametrize("directions", [1, 2])
def test_packed_products_are_those_of_torch(
    directions: int, rows: int, outer: int, inner: int, transposed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_operators(monkeypatch)
    torch.manual_seed(1)
    matrix = torch.randn(directions, inner, outer).mT if transposed else torch.randn(directions, outer, inner)
    left, to = torch.randn(directions, rows, inner), torch.randn(directions, rows, outer)
    expected = (left.double() @ matrix.double().mT).float()
    for product in (Product(matrix), PackedProduct(matrix)):
        whole = torch.full((directions, rows + 1, outer), float("nan"))
        out = whole[:, 1:]  # with gaps between directions
        product.write(left, out)
        torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)
        product.add(to, left, out)
        torch.testing.assert_close(out, expected + to, rtol=1e-5, atol=1e-5)
        product.add(out, left, out)
        torch.testing.assert_close(out, 2 * expected + to, rtol=1e-5, atol=2e-5)
        assert whole[:, 0].isnan().all()


def test_only_large_matrices_in_single_precision_are_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onednn, "PACKED", 64)
    assert type(product_of(torch.empty(3, 5, 3))) is Product
    assert type(product_of(torch.empty(1, 8, 8, dtype=torch.float64))) is Product
    assert type(product_of(torch.empty(1, 8, 8, device="meta"))) is Product
    needs_operators(monkeypatch)
    assert type(product_of(torch.empty(1, 8, 8))) is PackedProduct
    monkeypatch.setattr(onednn, "OPERATORS", ("_reorder_linear_weight", "no_such_operator"))
    assert type(product_of(torch.empty(1, 8, 8))) is Product


@every_cell
def test_the_recurrence_is_the_same_with_packed_weights(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_operators(monkeypatch)
    cells, lengths = [make(name, torch.float32), make(name, torch.float32)], torch.tensor([4, 2, 0])
    frames = torch.randn(3, 4, INPUT, requires_grad=True)
    given = [frames, *cells[0].parameters(), *cells[1].parameters()]

    def results() -> list[Tensor]:
        outputs = layer_both(autograd, cells, frames, lengths)
        return [outputs.detach(), *torch.autograd.grad(outputs.square().sum(), given)]

    packed = results()
    monkeypatch.setattr(equations, "product_of", Product)
    for one, other in zip(packed, results(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("rows", "inputs", "gates"), [(1, 1, 4), (3, 7, 12), (40, 33, 20), (5, 16, 16)])
def test_convolutions_are_products(rows: int, inputs: int, gates: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    frames, grads, weight = torch.randn(rows, inputs), torch.randn(rows, gates), torch.randn(gates, inputs)
    monkeypatch.setattr(onednn, "BLOCK", 8)
    torch.testing.assert_close(onednn.forward_product(frames, weight), frames @ weight.t(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(onednn.backward_product(grads, weight), grads @ weight, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("lengths", [[4, 2, 0], [0, 0, 0]])
def test_layers_are_the_same_by_convolutions(lengths: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [make("ln_global_all", torch.float32) for _ in range(2)]
    frames = torch.randn(3, 4, INPUT, requires_grad=True)
    given = [frames, *cells[0].parameters(), *cells[1].parameters()]

    def results() -> list[Tensor]:
        outputs = layer_both(autograd, cells, frames, torch.tensor(lengths))
        return [outputs.detach(), *torch.autograd.grad(outputs.square().sum(), given)]

    products = results()
    monkeypatch.setattr(onednn, "CONVOLVED", 1)
    for one, other in zip(results(), products, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@every_cell
@pytest.mark.parametrize("run", [1, 50, 1 << 17])
def test_what_frames_contribute_is_what_the_cell_says(name: str, run: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_projection, "RUN", run)
    cell, rows = make(name), torch.randn(7, INPUT, dtype=torch.float64, requires_grad=True)
    given = [rows, *cell.parameters()]

    def results(inputs: Tensor) -> list[Tensor]:
        weights = torch.linspace(-1, 1, inputs.numel(), dtype=inputs.dtype).view_as(inputs)
        grads = torch.autograd.grad((inputs * weights).sum(), given, allow_unused=True, materialize_grads=True)
        return [inputs.detach(), *grads]

    found = results(autograd.input_gates(cell, rows))
    for one, other in zip(found, results(cell.input_gates(rows)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)


@every_cell
def test_gradients_equal_finite_differences(name: str) -> None:
    cell, rows = make(name), torch.randn(4, INPUT, dtype=torch.float64, requires_grad=True)
    gain, offset = (None if part is None else part.detach().requires_grad_() for part in autograd.side_of(cell))
    arguments = rows, cell.get_parameter("input_weight"), gain, offset, 1e-5
    assert torch.autograd.gradcheck(input_projection.project, arguments, fast_mode=True)


def test_half_precision_is_left_to_the_cell() -> None:
    cell = make("ln_global_all", torch.bfloat16)
    rows = torch.randn(3, INPUT, dtype=torch.bfloat16)
    assert autograd.input_gates(cell, rows).dtype == torch.bfloat16
    with torch.autocast("cpu"):
        mixed = autograd.input_gates(make("lstm", torch.float32), rows.float())
    assert mixed.dtype == torch.bfloat16


def test_layers_in_double_precision_equal_the_plain_recurrence() -> None:
    cells, frames = [make("ln_global_all"), make("ln_global_all")], torch.randn(2, 3, INPUT, dtype=torch.float64)
    lengths = torch.tensor([3, 2])
    expected = unroll_both(plain_kernel, cells, [cell.input_gates(frames) for cell in cells], lengths)
    torch.testing.assert_close(layer_both(autograd, cells, frames, lengths), expected, rtol=1e-11, atol=1e-11)
