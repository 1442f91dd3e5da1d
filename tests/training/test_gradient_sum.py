"""Gradients summed over processes while the backward pass goes on."""

from pathlib import Path

import pytest
import torch
from processes import Body, together
from torch import Tensor, nn

from las.runtime import distributed
from las.training.step import GradientSum


def model() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(2, 2))


def loss(layers: nn.Sequential, inputs: Tensor) -> Tensor:
    return layers[:3](inputs).square().sum()


def expected(shares: list[list[Tensor]]) -> list[Tensor | None]:
    layers = model()
    sum((loss(layers, part) for parts in shares for part in parts), torch.zeros(())).backward()
    return [parameter.grad for parameter in layers.parameters()]


SHARES = [[torch.full((2, 4), 0.5), torch.eye(4)], [torch.linspace(-1, 1, 8).view(2, 4)]]


def sums() -> int:
    """A body: a second update with a part frozen, a process with less to compute, and one with nothing."""
    with distributed.process_group(torch.device("cpu")):
        layers, number = model(), distributed.rank()
        sums = GradientSum(layers.parameters(), bucket_bytes=80)
        for shares, frozen in ((SHARES, False), (SHARES, True), ([SHARES[0], []], False)):
            layers[1].requires_grad_(not frozen)
            layers.zero_grad()
            sums.begin()
            for index, part in enumerate(shares[number]):
                if index + 1 < len(shares[number]):
                    loss(layers, part).backward()
                    assert sums.num_started == 0, "before the last part nothing is complete"
                    continue
                with sums.overlapped():
                    loss(layers, part).backward()
                assert len(sums.buckets) == (4 - frozen) and sums.num_started == 0, "the last layer has no gradient"
            sums.finish()
            for parameter, wanted in zip(layers.parameters(), expected(shares), strict=True):
                if parameter.requires_grad:
                    assert torch.allclose(parameter.grad, torch.zeros_like(parameter) if wanted is None else wanted)
                else:
                    assert parameter.grad is None
    return 0


def overlaps() -> int:
    """A body: sums of upper layers have begun before the gradients of the lowest are there."""
    with distributed.process_group(torch.device("cpu")):
        layers = model()[:3]
        sums, started = GradientSum(layers.parameters(), bucket_bytes=80), []
        layers[0].bias.register_hook(lambda _: started.append(sums.num_started))
        for _ in range(2):
            layers.zero_grad()
            sums.begin()
            with sums.overlapped():
                loss(layers, SHARES[0][0]).backward()
            assert sums.num_started == len(sums.buckets) == 3
            sums.finish()
        assert started == [2, 2]
    return 0


@pytest.mark.parametrize("body", [sums, overlaps])
def test_two_processes_have_the_gradient_of_one(body: Body, tmp_path: Path) -> None:
    ending = together(tmp_path, 2, body)
    assert ending.codes == [0, 0], ending.said
