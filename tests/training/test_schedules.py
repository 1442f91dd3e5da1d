"""Learning rate schedules by hand and by whole lists, stopped at any validation; rates of a model and of a sweep."""

import functools
import itertools
import json
from itertools import pairwise
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from las.config.build import build, compose, config_directory
from las.runtime.errors import ConfigError, NumericalError
from las.training.range_test import Point, RangeTest, Sweep
from las.training.schedules import (
    ExponentialSchedule,
    NewbobMultiEpochSchedule,
    NewbobSchedule,
    Schedule,
    remark,
)

CARDS = sorted(path.stem for path in (config_directory() / "schedule").glob("*.yaml"))


@functools.cache
def config_of(name: str) -> dict[str, Any]:
    """The schedule of a card."""
    return compose("train", [f"schedule={name}"])["schedule"]


@given(st.integers(1, 100), st.sampled_from([0.0, 0.2]))
def test_warmup_is_linear_up_to_its_last_step(warmup: int, start: float) -> None:
    schedule = Schedule(warmup_steps=warmup, warmup_from=start)
    line = numpy.linspace(start, 1.0, num=warmup + 1)
    assert [schedule.factor(step) for step in range(warmup + 2)] == pytest.approx([*line, 1.0])


def by_sub_epoch(schedule: Schedule, losses: list[float]) -> list[float]:
    """The factor of the first sub-epoch and of each one after a validation with the loss given."""
    found = [schedule.factor(10**6)]
    for loss in losses:
        schedule.validated(float(loss))
        found.append(schedule.factor(10**6))
    return found


IMPOSSIBLE: list[tuple[dict[str, Any], str]] = [
    ({"warmup_steps": -1}, "warmup_steps=-1"),
    ({"warmup_from": 1.5}, "warmup_from=1.5"),
    ({"warmup_sub_epochs": 1}, "warmup_sub_epochs must"),
    ({"warmup_rates": [0.5, -0.1]}, r"warmup_rates\[1\]=-0.1"),
    ({"warmup_steps": 5, "warmup_rates": [0.5]}, "warmup_steps and warmup_rates"),
]


@pytest.mark.parametrize(("options", "words"), IMPOSSIBLE)
def test_a_warmup_that_cannot_be_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Schedule(**options)


BY_HAND = [
    # The first validation has nothing to compare with; 0.1 % better is not better; the best counts, not the last.
    (NewbobSchedule(), [5, 4, 3.996, 6, 4.1, 3, 0, 0], [1, 1, 1, 0.5, 0.25, 0.125, 0.125, 0.125, 0.0625]),
    (NewbobSchedule(patience=2), [5] * 8, [1, 1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25]),
    (NewbobSchedule(patience=1), [5, 5, 4, 4, 4], [1, 1, 1, 1, 1, 0.5]),
    (NewbobSchedule(decay=0.1, floor=0.05), [5] * 4, [1, 1, 0.1, 0.05, 0.05]),
    (NewbobMultiEpochSchedule(stay=1, floor=0.2), [1] * 4, [1, 1, 0.5, 0.25, 0.2]),
    (NewbobMultiEpochSchedule(stay=1, warmup_steps=10), [1, 1], [1, 1, 0.5]),
    (Schedule(warmup_rates=[0.1, 0.5, 0.3]), [1] * 4, [0.1, 0.5, 0.3, 1, 1]),
]


@pytest.mark.parametrize(("schedule", "losses", "factors"), BY_HAND)
def test_factors_by_hand(schedule: Schedule, losses: list[float], factors: list[float]) -> None:
    assert by_sub_epoch(schedule, losses) == factors


def test_a_warmup_by_steps_multiplies_what_newbob_says() -> None:
    schedule = NewbobSchedule(decay=0.1, floor=0.05, warmup_steps=10)
    by_sub_epoch(schedule, [5] * 4)
    assert schedule.factor(5) == 0.025


def returnn_rates(losses: list[float], warmup: list[float], decay: float, window: int, stay: int) -> list[float]:
    """The rule once more, in whole lists: the rate of every sub-epoch from the losses of all before it."""
    rates = list(warmup) or [1.0]
    for epoch in range(1, len(losses) + 1):  # so many are done; which rate has the next?
        if epoch < len(warmup):
            continue
        rate = rates[-1]
        if len(rates[-stay:]) == stay and len(set(rates[-stay:])) == 1 and epoch > 1:
            changes = [(losses[i] - losses[i - 1]) / abs(losses[i]) / rates[i] for i in range(1, epoch)]
            rate *= decay if numpy.mean(changes[-window:]) > -0.01 else 1.0
        rates.append(rate)
    return rates[: len(losses) + 1]


@given(
    st.lists(st.sampled_from([-0.02, 0.0, 0.003, 0.013, 0.04, 0.3]), min_size=5, max_size=60),
    st.integers(1, 5),
    st.integers(1, 6),
    st.sampled_from([0, 2, 5, 25]),
)
@settings(max_examples=300)
def test_newbob_multi_epoch_is_the_rule_written_down_in_whole_lists(
    improvements: list[float], window: int, stay: int, warmup: int
) -> None:
    losses = list(itertools.accumulate(improvements, lambda loss, improvement: loss * (1 - improvement), initial=2.0))
    schedule = NewbobMultiEpochSchedule(decay=0.7, window=window, stay=stay, warmup_sub_epochs=warmup, warmup_from=0.04)
    line = list(numpy.linspace(0.04, 1.0, num=warmup)) if warmup else []
    assert by_sub_epoch(schedule, losses) == pytest.approx(returnn_rates(losses, line, 0.7, window, stay))


def test_the_card_of_zeineldeen_2020_warms_up_and_then_waits() -> None:
    """Two sub-epochs at the full rate after the warm-up's last one, then a standstill of the whole window decays."""
    schedule = build(config_of("newbob_multi_epoch"))
    found = by_sub_epoch(schedule, [2.0] * 33)
    assert [1e-3 * factor for factor in found[:25]] == pytest.approx(numpy.linspace(4e-5, 1e-3, num=25))
    assert found[24:] == pytest.approx([1.0] * 3 + [0.7] * 3 + [0.49] * 3 + [0.343])


@pytest.mark.parametrize("schedule", [Schedule(), NewbobSchedule(), NewbobMultiEpochSchedule(), ExponentialSchedule()])
@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_dev_loss_that_cannot_be_compared_is_named(schedule: Schedule, loss: float) -> None:
    before = schedule.state_dict()
    with pytest.raises(NumericalError, match="dev loss is"):
        schedule.validated(loss)
    assert schedule.state_dict() == before


@pytest.mark.parametrize(
    ("name", "points"),
    [
        ("park_b", {250: 0.5, 500: 1, 20_000: 1, 50_000: 0.1, 80_000: 0.01, 90_000: 0.01}),
        ("park_d", {250: 0.25, 1_000: 1, 40_000: 1, 100_000: 0.1, 160_000: 0.01, 200_000: 0.01}),
        ("park_l", {250: 0.25, 1_000: 1, 140_000: 1, 230_000: 0.1, 320_000: 0.01, 400_000: 0.01}),
    ],
)
def test_the_cards_of_park_2019_ramp_hold_and_decay(name: str, points: dict[int, float]) -> None:
    schedule = build(config_of(name))
    assert [schedule.factor(step) for step in points] == pytest.approx(list(points.values()))


def test_a_checkpoint_from_before_sub_epochs_were_counted_still_loads() -> None:
    schedule = NewbobSchedule()
    schedule.load_state_dict({"warmup_steps": 7, "decay": 0.1, "current": 0.5, "best": 2.0, "without_improvement": 1})
    assert schedule.state_dict() == {"sub_epochs": 0, "current": 0.5, "best": 2.0, "without_improvement": 1}
    assert (schedule.warmup_steps, schedule.decay) == (0, 0.5)  # arguments are the config's
    with pytest.raises(KeyError):
        schedule.load_state_dict({"current": 0.5})


@pytest.mark.parametrize("name", CARDS)
def test_a_stop_after_any_validation_changes_nothing(name: str) -> None:
    """A schedule made anew before every sub-epoch from what the one before wrote down gives the same factors."""
    config = config_of(name)
    losses = [2.0 / (1 + number % 40) + 0.1 * (number % 3) for number in range(80)]
    steps = (1, 77, 5000, 50_000)
    quiet, written, found = build(config), build(config).state_dict(), []
    for loss in losses:
        resumed = build(config)
        resumed.load_state_dict(json.loads(json.dumps(written, allow_nan=False)))
        assert [resumed.factor(step) for step in steps] == [quiet.factor(step) for step in steps]
        found.append(resumed.factor(steps[-1]))
        resumed.validated(loss)
        quiet.validated(loss)
        written = resumed.state_dict()
    assert len(set(found)) > 1 or name not in ("newbob", "newbob_multi_epoch", "warmup_sub_epochs")


def config(rate: float, **optimiser: Any) -> dict[str, Any]:
    return {
        "learning_rate": {"value": 0.004, "parameters": 1.4e6},
        "optim": {"_target_": "torch.optim.Adam", "lr": rate, **optimiser},
    }


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
    line = remark(config(rate), parameters)
    assert told in line and bool(told) == bool(line)


def test_rates_of_other_optimisers_are_not_compared() -> None:
    assert remark(config(0.1, _target_="torch.optim.SGD"), 10**9) == ""


def test_a_section_that_is_no_rate_is_named() -> None:
    wrong = config(0.004) | {"learning_rate": {"value": 0.004, "parameters": 0}}
    with pytest.raises(ConfigError, match=r"learning_rate\.parameters=0"):
        remark(wrong, 10)


def test_the_option_of_a_model_brings_its_rate_and_schedule() -> None:
    for chosen, rate, schedule in (
        ([], 0.001, "las.NewbobMultiEpochSchedule"),
        (["optim.lr=0.3", "schedule=constant"], 0.3, "las.Schedule"),
    ):
        composed = compose("train", ["model=las_switchboard_8", *chosen])
        assert (composed["optim"]["lr"], composed["schedule"]["_target_"]) == (rate, schedule)


def test_the_rates_of_a_sweep_grow_by_one_ratio() -> None:
    rates = Sweep(low=1e-4, high=1.0, updates=13, smoothing=0.9).rates()
    assert rates[0] == 1e-4 and rates[-1] == pytest.approx(1.0)
    assert [b / a for a, b in pairwise(rates)] == [pytest.approx(10 ** (1 / 3))] * 12


def test_a_tenth_of_the_rate_with_the_lowest_loss_is_suggested() -> None:
    points = [Point(0.001, 3.0, 3.0), Point(0.06, 2.0, 2.4), Point(0.3, 2.0, 2.5)]
    assert RangeTest(points, True).suggestion == 0.005
