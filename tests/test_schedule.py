import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from las import build
from las.schedule import Exponential, Newbob, Schedule

CARDS = sorted(path.stem for path in (build.config_directory() / "schedule").glob("*.yaml"))


def test_constant_without_warmup() -> None:
    assert [Schedule().factor(step) for step in (1, 2, 10**6)] == [1.0, 1.0, 1.0]


@given(st.integers(1, 1000))
def test_warmup_is_linear_from_its_first_step_to_all_of_it(warmup: int) -> None:
    schedule = Schedule(warmup_steps=warmup)
    assert schedule.factor(1) == 1 / warmup
    assert schedule.factor(warmup) == schedule.factor(warmup + 1) == 1.0
    rises = [schedule.factor(step + 1) - schedule.factor(step) for step in range(1, min(warmup, 50))]
    assert rises == pytest.approx([1 / warmup] * len(rises))


def factors_after(schedule: Newbob, errors: list[float]) -> list[float]:
    factors = []
    for error in errors:
        schedule.validated(error)
        factors.append(schedule.factor(10**6))
    return factors


def test_newbob_halves_when_the_error_does_not_improve_enough() -> None:
    """The first validation has nothing to compare with; 0.1 % better is not better; the best counts, not the last."""
    errors = [0.5, 0.4, 0.3996, 0.6, 0.41, 0.3, 0.0, 0.0]
    assert factors_after(Newbob(), errors) == [1, 1, 0.5, 0.25, 0.125, 0.125, 0.125, 0.0625]


def test_newbob_forgives_as_often_as_its_patience_says() -> None:
    assert factors_after(Newbob(patience=2), [0.5] * 8) == [1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25]
    assert factors_after(Newbob(patience=1), [0.5, 0.5, 0.4, 0.4, 0.4]) == [1, 1, 1, 1, 0.5]


def test_newbob_stays_above_its_floor_and_warms_up() -> None:
    schedule = Newbob(decay=0.1, floor=0.05, warmup_steps=10)
    assert factors_after(schedule, [0.5, 0.5, 0.5, 0.5]) == [1, 0.1, 0.05, 0.05]
    assert schedule.factor(5) == 0.025


def test_exponential_passes_through_its_points() -> None:
    schedule = Exponential(start_step=100, decay_steps=1000, final=0.01)
    points = {1: 1.0, 100: 1.0, 600: 0.1, 1100: 0.01, 10**6: 0.01}
    assert [schedule.factor(step) for step in points] == pytest.approx(list(points.values()))
    ratios = {round(schedule.factor(step + 1) / schedule.factor(step), 12) for step in range(100, 1100, 50)}
    assert len(ratios) == 1
    assert Exponential(warmup_steps=10, decay_steps=1000).factor(5) == pytest.approx(0.5 * 0.1**0.005)


@pytest.mark.parametrize("name", CARDS)
@given(errors=st.lists(st.floats(0, 2), max_size=6), more=st.lists(st.floats(0, 2), max_size=4))
def test_state_survives_json_and_goes_on_as_if_nothing_had_happened(
    name: str, errors: list[float], more: list[float]
) -> None:
    config = build.compose("train", [f"schedule={name}"])["schedule"]
    schedule, other = build.build(config), build.build(config)
    for error in errors:
        schedule.validated(error)
    other.load_state_dict(json.loads(json.dumps(schedule.state_dict(), allow_nan=False)))
    assert other == schedule
    for error in more:
        schedule.validated(error)
        other.validated(error)
    assert [other.factor(step) for step in (1, 77, 5000)] == [schedule.factor(step) for step in (1, 77, 5000)]
