"""Nadam: against its equation in NumPy, and through a checkpoint."""

import numpy
import pytest
import torch
from torch import Tensor, nn

from las.runtime.errors import ConfigError
from las.training.optimization import Nadam

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


def run(optimiser: torch.optim.Optimizer, parameters: list[nn.Parameter], gradients: list[list[Tensor]]) -> None:
    for of_step in gradients:
        for parameter, gradient in zip(parameters, of_step, strict=True):
            parameter.grad = gradient.clone()
        optimiser.step()


@pytest.mark.parametrize(("lr", "eps"), [(5e-4, 0.1), (1e-3, 1e-8), (0.1, 1.0)])
def test_fifty_steps_are_those_of_the_equation(lr: float, eps: float) -> None:
    parameters, gradients = problem()
    start = [parameter.detach().numpy().copy() for parameter in parameters]
    wanted = numpy_nadam(start, [[each.numpy() for each in of_step] for of_step in gradients], lr, eps)
    run(Nadam(parameters, lr=lr, eps=eps), parameters, gradients)
    for parameter, weight in zip(parameters, wanted, strict=True):
        numpy.testing.assert_allclose(parameter.detach().numpy(), weight, rtol=1e-12, atol=1e-14)


def test_parameters_without_gradient_stay_and_start_when_they_get_one() -> None:
    (late, *_), gradients = problem(2)
    parameters, _ = problem(2)
    optimiser = Nadam([*parameters, late], lr=0.1)
    before = late.detach().clone()
    run(optimiser, parameters, gradients[:1])
    assert torch.equal(late, before) and late not in optimiser.state
    late.grad = gradients[0][0].clone()
    run(optimiser, parameters, gradients[1:])
    assert [int(optimiser.state[each]["step"]) for each in (*parameters, late)] == [2, 2, 2, 1]
    alone = nn.Parameter(before)
    run(Nadam([alone], lr=0.1), [alone], [[gradients[0][0]]])
    assert torch.equal(late, alone)  # its bias correction counts its own steps


def test_a_closure_makes_the_gradients() -> None:
    parameter = nn.Parameter(torch.tensor([1.0, -2.0]))
    optimiser = Nadam([parameter], lr=0.1)

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = parameter.square().sum()
        loss.backward()
        return loss

    losses = [float(optimiser.step(closure).detach()) for _ in range(30)]
    assert losses[0] == 5.0 and losses[-1] < 0.1


@pytest.mark.parametrize("options", [{"betas": [0.9]}, {"betas": [0.9, 1.0]}, {"lr": -1.0}, {"eps": -1.0}])
def test_numbers_that_cannot_be_are_refused(options: dict) -> None:
    with pytest.raises(ConfigError, match="must"):
        Nadam([nn.Parameter(torch.ones(1))], **options)
