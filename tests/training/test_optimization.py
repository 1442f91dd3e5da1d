"""Gradients between backward and step, noise on weights, and Nadam against its equation in NumPy."""

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from las.runtime.errors import ConfigError
from las.training.optimization import AnnealedNoise, ConstantNoise, GradientTransform, Nadam, WeightNoise


def model(*gradients: list[float]) -> nn.ParameterDict:
    """Parameters a, b, ... of ones with these gradients."""
    found = nn.ParameterDict()
    for name, gradient in zip("abcd", gradients, strict=False):
        found[name] = nn.Parameter(torch.ones(len(gradient)))
        found[name].grad = torch.tensor(gradient)
    return found


def changed(changes: GradientTransform, of: nn.ParameterDict, step: int = 1) -> list[list[float]]:
    changes.change(of.named_parameters(), step)
    return [each.grad.tolist() for each in of.values() if each.grad is not None]


def large() -> nn.ParameterDict:
    """Many gradients, all zero."""
    return model([0.0] * 150_000, [0.0] * 50_000)


def noise(changes: GradientTransform, step: int = 1) -> torch.Tensor:
    of = large()
    changes.change(of.named_parameters(), step)
    return torch.cat([each.grad.flatten() for each in of.values() if each.grad is not None])


def test_l2_is_the_gradient_of_a_sum_of_squares_in_the_objective() -> None:
    net = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    inputs = torch.randn(5, 4)
    net(inputs).square().sum().backward()
    GradientTransform(l2=0.3, l2_parameters=["0.*", "*.bias"]).change(net.named_parameters(), 1)
    other = copy.deepcopy(net)
    other.zero_grad()
    squares = sum(each.square().sum() for each in (*other[0].parameters(), other[1].bias))
    (other(inputs).square().sum() + 0.3 * squares).backward()
    for one, two in zip(net.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one.grad, two.grad)


def test_clipping_by_norm_is_torchs_bit_for_bit() -> None:
    torch.manual_seed(2)
    one = model(*torch.randn(3, 7).tolist())
    two = copy.deepcopy(one)
    for copied, each in zip(two.values(), one.values(), strict=True):
        copied.grad = each.grad.clone()
    norm = GradientTransform(clip_norm=1.0).change(one.named_parameters(), 1)
    assert norm == float(nn.utils.clip_grad_norm_(two.parameters(), 1.0))
    assert all(torch.equal(each.grad, other.grad) for each, other in zip(one.values(), two.values(), strict=True))


def test_the_order_of_changes() -> None:
    """L2 0.5 · 2 · 1 makes (2, -6) into (3, -5), of norm √34; clipped by value (3, -4), whose norm 5 is scaled to 1."""
    of = model([2.0, -6.0])
    norm = GradientTransform(l2=0.5, clip_value=4.0, clip_norm=1.0).change(of.named_parameters(), 1)
    assert norm == pytest.approx(34**0.5)
    assert of["a"].grad.tolist() == pytest.approx([0.6, -0.8], abs=1e-6)


def test_a_gradient_that_is_too_long_is_zeroed_and_gets_no_noise() -> None:
    changes = GradientTransform(zero_above=5.0, noise=ConstantNoise(std=1.0), clip_norm=1.0)
    of = model([3.0], [4.1])
    assert changes.change(of.named_parameters(), 1) == pytest.approx(5.0804, abs=1e-4)
    assert [each.grad.tolist() for each in of.values()] == [[0.0], [0.0]]
    assert changed(GradientTransform(zero_above=5.0), model([3.0], [4.0])) == [[3.0], [4.0]]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("options", [{}, {"clip_value": 1.0}, {"clip_norm": 1.0}, {"zero_above": 9.0}])
def test_what_is_not_finite_is_told_whatever_is_clipped(options: dict[str, Any], bad: float) -> None:
    of = model([1.0, bad])
    assert not math.isfinite(GradientTransform(**options).change(of.named_parameters(), 1))
    if "zero_above" in options:
        assert of["a"].grad.tolist() == [0.0, 0.0]


def test_constant_noise_is_cut_off_at_two_deviations() -> None:
    """What is left has 0.8796 of the deviation, and 0.6827 / 0.9545 of it lie within one deviation."""
    found = noise(GradientTransform(noise=ConstantNoise(std=0.3)))
    assert float(found.abs().max()) <= 0.6
    assert float(found.std()) == pytest.approx(0.8796 * 0.3, rel=0.01)
    assert float((found.abs() < 0.3).float().mean()) == pytest.approx(0.6827 / 0.9545, abs=0.005)
    assert abs(float(found.mean())) < 0.003


@pytest.mark.parametrize("step", [1, 2, 1000])
def test_annealed_noise_loses_variance_with_the_steps(step: int) -> None:
    """At the first step t = 0, so η itself."""
    found = noise(GradientTransform(noise=AnnealedNoise(eta=0.3)), step)
    assert float(found.var()) == pytest.approx(0.3 / (1 + (step - 1)) ** 0.55, rel=0.02)


def test_noise_is_added_before_clipping() -> None:
    of = large()
    GradientTransform(noise=ConstantNoise(std=1.0), clip_norm=1.0).change(of.named_parameters(), 1)
    assert float(nn.utils.get_total_norm([each.grad for each in of.values()])) == pytest.approx(1.0, rel=1e-4)


def test_parameters_without_gradient_are_left_alone() -> None:
    of = model([1.0], [2.0])
    of["b"].grad = None
    assert changed(GradientTransform(l2=0.5, l2_parameters=["b", "a"]), of) == [[2.0]]
    of.requires_grad_(False)
    of["a"].grad = None
    assert GradientTransform(l2=0.5).change(of.named_parameters(), 1) == 0.0


def network() -> nn.Sequential:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(40, 50), nn.Linear(50, 30))


def noisy(noise: WeightNoise, step: int, of: nn.Module | None = None) -> Tensor:
    """What is added to the parameters at a step."""
    of = of or network()
    before = parameters_to_vector(of.parameters()).detach()
    with noise.applied(of.named_parameters(), step):
        return parameters_to_vector(of.parameters()).detach() - before


def test_the_noise_has_its_deviation_and_no_mean() -> None:
    added = noisy(WeightNoise(std=0.075), 1)
    assert float(added.std()) == pytest.approx(0.075, rel=0.05)
    assert abs(float(added.mean())) < 4 * 0.075 / len(added) ** 0.5


def test_parameters_are_restored_bit_for_bit_even_after_an_error() -> None:
    net, noise = network(), WeightNoise(std=1e6)
    before = parameters_to_vector(net.parameters()).detach()
    assert noisy(noise, 1, net).all() and torch.equal(parameters_to_vector(net.parameters()), before)
    with pytest.raises(KeyboardInterrupt), noise.applied(net.named_parameters(), 2):
        raise KeyboardInterrupt
    assert torch.equal(parameters_to_vector(net.parameters()), before)


NETWORK = network()


@pytest.mark.parametrize(
    "drawn",
    [
        lambda seed, step: noise(GradientTransform(noise=ConstantNoise(std=0.1), seed=seed), step),
        lambda seed, step: noise(GradientTransform(noise=AnnealedNoise(eta=0.1), seed=seed), step),
        lambda seed, step: noisy(WeightNoise(std=0.1, seed=seed, start_step=2), step, NETWORK),
    ],
)
def test_noise_depends_on_seed_and_step_alone(drawn: Callable[[int, int], Tensor]) -> None:
    state = torch.get_rng_state()
    first = drawn(3, 5)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    assert torch.equal(drawn(3, 5), first)
    for seed, step in ((4, 5), (3, 6)):
        assert not torch.equal(drawn(seed, step), first)
    assert len(first.unique()) > 0.9 * len(first)  # one draw for each, not one per parameter


def test_it_begins_after_its_start_step_and_keeps_to_its_parameters() -> None:
    noise, net = WeightNoise(std=0.1, start_step=10, parameters=["0.*", "*.bias"]), network()
    assert not noisy(noise, 10, net).any()
    added = noisy(noise, 11, net).split([each.numel() for each in net.parameters()])
    assert [bool(each.any()) for each in added] == [True, True, False, True]  # without the second layer's weights
    with pytest.raises(ConfigError, match=r"weight_noise.parameters: .*'listener\.\*'"):
        noisy(WeightNoise(std=0.1, parameters=["listener.*"]), 1)


@pytest.mark.parametrize("key", ["l2", "zero_above", "clip_value", "clip_norm"])
@pytest.mark.parametrize("value", [-1.0, math.nan])
def test_numbers_that_cannot_be_are_refused(key: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"^{key}="):
        GradientTransform(**{key: value})
    for noise in (ConstantNoise, WeightNoise):
        with pytest.raises(ConfigError, match=r"^std="):
            noise(std=value)
    with pytest.raises(ConfigError, match=r"^start_step="):
        WeightNoise(start_step=-1)


SHAPES = [(3, 4), (5,), ()]


def numpy_nadam(
    weights: list[numpy.ndarray], gradients: list[list[numpy.ndarray]], lr: float, eps: float
) -> list[numpy.ndarray]:
    """The kernel ApplyAdam of TensorFlow 1 with use_nesterov, transcribed; one list of gradients per step."""
    means, squares = [0.0 * weight for weight in weights], [0.0 * weight for weight in weights]
    for step, of_step in enumerate(gradients, start=1):
        alpha = lr * numpy.sqrt(1 - 0.999**step) / (1 - 0.9**step)
        for index, gradient in enumerate(of_step):
            means[index] = means[index] + (gradient - means[index]) * (1 - 0.9)
            squares[index] = squares[index] + (gradient**2 - squares[index]) * (1 - 0.999)
            ahead = gradient * (1 - 0.9) + 0.9 * means[index]
            weights[index] = weights[index] - alpha * ahead / (numpy.sqrt(squares[index]) + eps)
    return weights


def problem(num_steps: int = 50, dtype: torch.dtype = torch.float64) -> tuple[list[nn.Parameter], list[list[Tensor]]]:
    """Parameters and the gradients of every step, whose sizes differ by orders of magnitude."""
    draw = torch.Generator().manual_seed(3)
    parameters = [nn.Parameter(torch.randn(shape, generator=draw, dtype=dtype)) for shape in SHAPES]
    scales = [10.0 ** (step % 5 - 3) for step in range(num_steps)]
    gradients = [[scale * torch.randn(shape, generator=draw, dtype=dtype) for shape in SHAPES] for scale in scales]
    return parameters, gradients


def updated(optimiser: torch.optim.Optimizer, parameters: list[nn.Parameter], gradients: list[list[Tensor]]) -> None:
    for of_step in gradients:
        for parameter, gradient in zip(parameters, of_step, strict=True):
            parameter.grad = gradient.clone()
        optimiser.step()


@pytest.mark.parametrize(("lr", "eps"), [(5e-4, 0.1), (1e-3, 1e-8), (0.1, 1.0)])
def test_fifty_steps_are_those_of_the_equation(lr: float, eps: float) -> None:
    parameters, gradients = problem()
    start = [parameter.detach().numpy().copy() for parameter in parameters]
    wanted = numpy_nadam(start, [[each.numpy() for each in of_step] for of_step in gradients], lr, eps)
    updated(Nadam(parameters, lr=lr, eps=eps), parameters, gradients)
    for parameter, weight in zip(parameters, wanted, strict=True):
        numpy.testing.assert_allclose(parameter.detach().numpy(), weight, rtol=1e-12, atol=1e-14)


def test_parameters_of_nadam_without_gradient_stay_and_start_when_they_get_one() -> None:
    (late, *_), gradients = problem(2)
    parameters, _ = problem(2)
    optimiser = Nadam([*parameters, late], lr=0.1)
    before = late.detach().clone()
    updated(optimiser, parameters, gradients[:1])
    assert torch.equal(late, before) and late not in optimiser.state
    late.grad = gradients[0][0].clone()
    updated(optimiser, parameters, gradients[1:])
    assert [int(optimiser.state[each]["step"]) for each in (*parameters, late)] == [2, 2, 2, 1]
    alone = nn.Parameter(before)
    updated(Nadam([alone], lr=0.1), [alone], [[gradients[0][0]]])
    assert torch.equal(late, alone)  # its bias correction counts its own steps


def test_a_closure_makes_the_gradients() -> None:
    parameter = nn.Parameter(torch.tensor([1.0, -2.0]))
    optimiser = Nadam([parameter], lr=0.1)

    def closure() -> Tensor:
        parameter.square().sum().backward()
        return parameter.detach().square().sum()

    assert optimiser.step(closure) == 5.0 and optimiser.state[parameter]["step"] == 1


@pytest.mark.parametrize("options", [{"betas": [0.9]}, {"betas": [0.9, 1.0]}, {"lr": -1.0}, {"eps": -1.0}])
def test_settings_of_nadam_that_cannot_be_are_refused(options: dict) -> None:
    with pytest.raises(ConfigError, match="must"):
        Nadam([nn.Parameter(torch.ones(1))], **options)
