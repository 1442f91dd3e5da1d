"""Dropout whose units share random numbers on a CPU."""

import pytest
import torch
from options import names, part

from las.nn import dropout
from las.nn.dropout import Dropout


def dropped(values: torch.Tensor, p: float, seed: int = 1) -> torch.Tensor:
    torch.manual_seed(seed)
    result: torch.Tensor = Dropout(p)(values)
    return result


@pytest.mark.parametrize("p", [0.05, 0.3, 0.5, 0.9])
def test_units_are_dropped_with_the_probability_and_the_mean_stays(p: float) -> None:
    result = dropped(torch.ones(400, 1000), p)
    share = float((result == 0).double().mean())
    assert share == pytest.approx(p, abs=5 * (p * (1 - p) / 400_000) ** 0.5)
    kept = result[result != 0]
    assert torch.equal(kept, kept[:1].expand_as(kept)) and float(kept[0]) == pytest.approx(1 / (1 - p), rel=2e-4)


def test_units_that_share_a_number_are_independent() -> None:
    zeros = (dropped(torch.ones(100_000, 8), 0.5) == 0).double()
    correlations = torch.corrcoef(zeros.T) - torch.eye(8)
    assert correlations.abs().max() < 5 / 100_000**0.5


def test_nothing_is_dropped_outside_training_or_without_a_probability() -> None:
    values = torch.randn(4, 6)
    assert Dropout(0.3).eval()(values) is values
    assert torch.equal(dropped(values, 0.0), values)
    assert torch.equal(dropped(values, 1.0), torch.zeros(4, 6))
    assert dropped(torch.empty(0, 6), 0.3).shape == (0, 6)


def test_there_is_a_second_derivative() -> None:
    values = torch.randn(4, 6, requires_grad=True)
    result = dropped(values, 0.5)
    (gradient,) = torch.autograd.grad(result.square().sum(), values, create_graph=True)
    (second,) = torch.autograd.grad(gradient.sum(), values)
    assert torch.allclose(second, torch.where(result == 0, 0.0, 8.0), rtol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("count", "threads"), [*((n, 1) for n in (1, 2, 3, 5, 1247, 4096, 4099, 70_001)), (200_003, 2), (300_000, 3)]
)
@pytest.mark.parametrize("drawn_before", [0, 1, 311])
def test_the_compiled_pass_draws_what_torch_draws(
    count: int, threads: int, drawn_before: int, dtype: torch.dtype
) -> None:
    torch.set_num_threads(threads)
    values = torch.linspace(-3, 3, count, dtype=dtype)
    results = []
    for function in (dropout.reference, dropout.compiled):
        torch.manual_seed(5)
        torch.empty(drawn_before, dtype=torch.int32).random_()  # halves of the numbers that follow
        scaled, factors = function(values, 20_000)
        results.append((scaled, factors, torch.get_rng_state(), torch.randn(3)))
    assert all(map(torch.equal, *results))
    assert results[0][0].dtype == dtype


def test_values_without_a_compiler_and_of_other_types_are_dropped_by_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    values = torch.linspace(-3, 3, 1000)
    expected = dropped(values, 0.3)
    monkeypatch.setattr(dropout.DROPOUT, "refusal", lambda values: "no compiler")
    assert torch.equal(dropped(values, 0.3), expected)
    assert dropped(values.bfloat16(), 0.3).dtype == torch.bfloat16


def test_a_transposed_view_is_dropped_in_its_own_order() -> None:
    values = torch.linspace(1, 2, 35).view(5, 7)
    assert torch.equal(dropped(values.t(), 0.4), dropped(values.t().contiguous(), 0.4))


@pytest.mark.parametrize("name", names("dropout"))
def test_options_share_their_masks_as_they_say(name: str) -> None:
    """In training, with the mean and the gradient of the values kept; elsewhere the values pass through."""
    layer, values = part("dropout", name)(0.4), torch.rand(30, 40, 50) + 1
    values.requires_grad_()
    torch.manual_seed(3)
    result = layer(values)
    kept = result != 0
    assert 0.3 < float(kept.double().mean()) < 0.9
    assert torch.equal(kept, kept[:, :1].expand_as(kept)) == (name in ("utterance", "batch"))
    assert torch.equal(kept, kept[:1].expand_as(kept)) == (name == "batch")
    torch.testing.assert_close(result, torch.where(kept, values / 0.6, 0.0), rtol=1e-4, atol=0)
    (gradient,) = torch.autograd.grad(result.sum(), values)
    torch.testing.assert_close(gradient, kept / 0.6, rtol=1e-4, atol=0)
    assert layer.eval()(values) is values
