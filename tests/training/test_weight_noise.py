"""Weight noise: what the model sees, what is left afterwards, and what the draws depend on."""

import pytest
import torch
from omegaconf import OmegaConf
from torch import Tensor, nn

from las.config.build import build, config_directory
from las.runtime.errors import ConfigError
from las.training.gradients import WeightNoise

CARDS = sorted(path.stem for path in (config_directory() / "weight_noise").glob("*.yaml"))


def model() -> nn.Sequential:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(40, 50), nn.Linear(50, 30))


def noisy(noise: WeightNoise, step: int, of: nn.Module | None = None) -> dict[str, Tensor]:
    """What is added to each parameter at a step."""
    of = of or model()
    before = {name: each.detach().clone() for name, each in of.named_parameters()}
    with noise.applied(of.named_parameters(), step):
        return {name: each.detach() - before[name] for name, each in of.named_parameters()}


def test_the_noise_has_its_deviation_and_no_mean() -> None:
    added = torch.cat([each.flatten() for each in noisy(WeightNoise(std=0.075), 1).values()])
    assert float(added.std()) == pytest.approx(0.075, rel=0.05)
    assert abs(float(added.mean())) < 4 * 0.075 / len(added) ** 0.5


def test_parameters_are_restored_bit_for_bit_even_after_an_error() -> None:
    net, noise = model(), WeightNoise(std=1e6)
    before = [each.detach().clone() for each in net.parameters()]
    with noise.applied(net.named_parameters(), 1):
        assert all(not torch.equal(one, two) for one, two in zip(net.parameters(), before, strict=True))
    assert all(torch.equal(one, two) for one, two in zip(net.parameters(), before, strict=True))
    with pytest.raises(KeyboardInterrupt), noise.applied(net.named_parameters(), 2):
        raise KeyboardInterrupt
    assert all(torch.equal(one, two) for one, two in zip(net.parameters(), before, strict=True))


def test_the_gradient_is_that_of_the_noisy_model() -> None:
    net, noise = nn.Linear(3, 1, bias=False), WeightNoise(std=0.5)
    inputs = torch.randn(4, 3)
    with noise.applied(net.named_parameters(), 7):
        net(inputs).square().sum().backward()
    (added,) = noisy(noise, 7, net).values()
    other = (net.weight.detach() + added).requires_grad_()
    (inputs @ other.T).square().sum().backward()
    torch.testing.assert_close(net.weight.grad, other.grad)


def test_draws_depend_on_seed_and_step_alone() -> None:
    first = noisy(WeightNoise(std=0.1, seed=1), 3)
    net = model()
    state = torch.get_rng_state()
    again = noisy(WeightNoise(std=0.1, seed=1, start_step=2), 3, net)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(99)
    again = noisy(WeightNoise(std=0.1, seed=1), 3, net)
    assert all(torch.equal(first[name], again[name]) for name in first)
    for other in (WeightNoise(std=0.1, seed=2), 3), (WeightNoise(std=0.1, seed=1), 4):
        assert all(not torch.equal(first[name], added) for name, added in noisy(*other).items())


def test_it_begins_after_its_start_step_and_keeps_to_its_parameters() -> None:
    noise = WeightNoise(std=0.1, start_step=10, parameters=["0.*", "*.bias"])
    assert not any(added.any() for added in noisy(noise, 10).values())
    assert {name for name, added in noisy(noise, 11).items() if added.any()} == {"0.weight", "0.bias", "1.bias"}
    with pytest.raises(ConfigError, match=r"weight_noise.parameters: .*'listener\.\*'"):
        noisy(WeightNoise(std=0.1, parameters=["listener.*"]), 1)


@pytest.mark.parametrize("options", [{"std": -0.1}, {"std": float("nan")}, {"start_step": -1}])
def test_numbers_that_cannot_be_are_refused(options: dict) -> None:
    with pytest.raises(ConfigError, match="must be at least 0"):
        WeightNoise(**options)


@pytest.mark.parametrize("name", CARDS)
def test_every_card_builds(name: str) -> None:
    group = config_directory() / "weight_noise"
    config = OmegaConf.merge(OmegaConf.load(group / "none.yaml"), OmegaConf.load(group / f"{name}.yaml"), {"seed": 4})
    config.pop("defaults", None)
    noise = build(OmegaConf.to_container(config))
    steps = {"none": 0, "park_b": 10_000, "park_d": 20_000, "park_l": 20_000}
    assert (noise.std, noise.start_step) == (0.0 if name == "none" else 0.075, steps[name])
