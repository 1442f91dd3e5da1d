"""Learning rates: what is far from the rate of a model's card, and the rates of a range test."""

from itertools import pairwise
from typing import Any

import pytest
from tiers import rest_slow

from las.config.build import compose
from las.runtime.errors import ConfigError
from las.training import schedules
from las.training.range_test import Point, RangeTest, Sweep


def config(rate: float, **optimiser: Any) -> dict[str, Any]:
    return {
        "learning_rate": {"value": 0.004, "parameters": 1.4e6},
        "optim": {"_target_": "torch.optim.Adam", "lr": rate, **optimiser},
    }


def test_the_rate_of_a_larger_model_is_told() -> None:
    """The measured case: 0.001 made 8.3 % word errors on AN4 with 7.3 million parameters, 0.004 made 12.2 %."""
    assert schedules.remark(config(0.004), 7_278_776) == (
        "learning rate 0.004 was tuned for a model of 1.4 M parameters; this one has 7.3 M: about 0.001 suits it "
        "(optim.lr=0.001), or find it with las tune_lr"
    )
    assert schedules.remark(config(0.001), 7_278_776) == ""


@pytest.mark.parametrize(
    ("rate", "parameters", "told"),
    [
        (0.004, 1_390_565, ""),
        (0.004, 5_500_000, ""),
        (0.004, 5_700_000, "this one has 5.7 M: about 0.001 suits it"),
        (0.008, 1_390_565, ""),
        (0.03, 1_400_038, "this one has 1.4 M and 0.03: about 0.004 suits it"),
        (0.0001, 1_390_565, "this one has 1.4 M and 0.0001: about 0.004 suits it"),
        (0.0005, 1_390_565, ""),
        (0.004, 100_000, ""),
    ],
)
def test_far_is_more_than_twice_or_less_than_a_tenth(rate: float, parameters: int, told: str) -> None:
    line = schedules.remark(config(rate), parameters)
    assert told in line and bool(told) == bool(line)


def test_rates_of_other_optimisers_are_not_compared() -> None:
    assert schedules.remark(config(0.1, _target_="torch.optim.SGD"), 10**9) == ""


def test_a_section_that_is_no_rate_is_named() -> None:
    wrong = config(0.004) | {"learning_rate": {"value": 0.004, "parameters": 0}}
    with pytest.raises(ConfigError, match=r"learning_rate\.parameters=0 must be above 0"):
        schedules.remark(wrong, 10)


@pytest.mark.parametrize(
    ("model", "rate", "schedule"),
    rest_slow(
        [
            ("las_small", 0.004, "las.ExponentialSchedule"),
            ("las_timit", 0.001, "las.ExponentialSchedule"),
            ("las_switchboard_8", 0.001, "las.NewbobMultiEpochSchedule"),
            ("park2019_las_6_1280", 0.001, "las.ExponentialSchedule"),
        ],
        keep=1,
    ),
)
def test_a_card_brings_its_rate_and_schedule(model: str, rate: float, schedule: str) -> None:
    composed = compose("train", [f"model={model}"])
    assert (composed["optim"]["lr"], composed["schedule"]["_target_"]) == (rate, schedule)
    chosen = compose("train", [f"model={model}", "optim.lr=0.3", "schedule=constant"])
    assert (chosen["optim"]["lr"], chosen["schedule"]["_target_"]) == (0.3, "las.Schedule")


@pytest.mark.parametrize(
    ("rate", "rounded"), [(0.00175, 0.001), (0.005, 0.005), (0.0049, 0.002), (1.0, 1.0), (30.0, 20.0)]
)
def test_rates_are_rounded_down(rate: float, rounded: float) -> None:
    assert schedules.rounded_down(rate) == rounded


def test_the_rates_of_a_sweep_grow_by_one_ratio() -> None:
    rates = Sweep(low=1e-4, high=1.0, updates=13, smoothing=0.9).rates()
    assert rates[0] == 1e-4 and rates[-1] == pytest.approx(1.0)
    assert [b / a for a, b in pairwise(rates)] == [pytest.approx(10 ** (1 / 3))] * 12


def test_a_tenth_of_the_rate_with_the_lowest_loss_is_suggested() -> None:
    points = [Point(0.001, 3.0, 3.0), Point(0.06, 2.0, 2.4), Point(0.3, 2.0, 2.5)]
    assert RangeTest(points, True).suggestion == 0.005
