"""One update: the same gradient in however many parts, and memory that runs out."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from options import names
from tiers import rest_slow
from torch import Tensor
from update_cases import STILL, batch, limited, updates

from las.nn.kernels.choice import use_kernel
from las.runtime.errors import LasError
from las.training.step import StepResult, TrainingStep


def parameters(of: TrainingStep) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in of.model.parameters()]


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_several_batches_give_the_gradient_of_one(reduction: str) -> None:
    whole, parts = updates(reduction=reduction), updates(reduction=reduction)
    one = whole([batch()], 1)
    three = parts([batch(slice(0, 1)), batch(slice(1, 4)), batch(slice(4, 6))], 1)
    assert three == pytest.approx(one, rel=1e-6) and one.finite
    torch.testing.assert_close(parameters(parts), parameters(whole), rtol=0, atol=1e-6)


FIRST = ("ba2016", "lstm", "zeineldeen2020_joined_cell")
MADE = [
    [f"cell@model.listener.cell={name}", f"cell@model.speller.cell={name}"]
    for name in sorted(names("cell"), key=lambda name: name not in FIRST)
]
MADE += [[f"attention@model.speller.attention={name}"] for name in names("attention") if name != "ctc_triggered"]


@pytest.mark.parametrize("made", rest_slow(MADE, keep=len(FIRST)), ids=str)
def test_kernels_change_all_parameters_alike(made: list[str]) -> None:
    """In fp64 and with a clipped gradient."""
    found, double = [], batch(slice(0, 3))
    double = replace(double, waveforms=double.waveforms.double())
    for kernel in ("auto", "plain"):
        step = updates(overrides=[*STILL, *made], clip_norm=0.1, l2=0.01)
        step.model.double()
        with use_kernel(kernel):
            results = [step([double], number) for number in (1, 2)]
        assert all(result.norm > 0.1 for result in results)
        found.append(parameters(step))
    torch.testing.assert_close(*found, rtol=1e-7, atol=1e-9)


def test_an_utterance_that_does_not_fit_alone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    small = updates()
    before = parameters(small)
    limited(small, monkeypatch, 0)
    with pytest.raises(LasError, match=r"step 3: .*u0.*limits\.longest_s"):
        small([batch()], 3)
    assert all(map(torch.equal, parameters(small), before))


def test_a_process_without_utterances_adds_nothing() -> None:
    whole, with_none = updates(), updates()
    empty = batch(slice(0, 0))
    assert empty.split(None) == []
    assert with_none([batch(), empty], 1) == whole([batch()], 1)


def test_bf16_is_near_fp32() -> None:
    exact, rough = updates(), updates("bf16")
    one, other = exact([batch()], 1), rough([batch()], 1)
    assert other.loss == pytest.approx(one.loss, rel=2e-2) and other.loss != one.loss
    assert all(parameter.dtype == torch.float32 for parameter in rough.model.parameters())


def test_what_a_step_draws_belongs_to_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(steps: Sequence[int]) -> list[StepResult]:
        noisy = updates()
        noisy.model.listener.input_noise = 0.5
        for group in noisy.optimiser.param_groups:
            group["lr"] = 0.0
        torch.manual_seed(len(steps))
        return [noisy([batch()], step) for step in steps]

    first, second, third = run([1, 2, 3])
    assert len({first, second, third}) == 3
    assert run([3]) == [third] and run([2, 1]) == [second, first]
