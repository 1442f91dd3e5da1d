"""Statistics of a few trainings, against tables and numbers computed by hand."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from las.reproduction import statistics
from las.reproduction.statistics import (
    Summary,
    brown_forsythe,
    relative_gain,
    student,
    student_quantile,
    summary,
    welch,
)


@pytest.mark.parametrize(
    ("degrees", "quantile"),
    [(1.0, 12.7062), (2.0, 4.3027), (3.0, 3.1824), (4.0, 2.7764), (9.0, 2.2622), (30.0, 2.0423), (1000.0, 1.9623)],
)
def test_quantiles_are_those_of_the_tables(degrees: float, quantile: float) -> None:
    assert student_quantile(0.975, degrees) == pytest.approx(quantile, abs=6e-5)


@given(st.floats(-50, 50), st.floats(0.5, 200))
@example(1e-8, 1.0)  # smaller than the rounding of 1 - t²
def test_students_distribution_is_symmetric_and_known_where_it_has_a_formula(t: float, degrees: float) -> None:
    assert student(t, degrees) + student(-t, degrees) == pytest.approx(1)
    assert student(t, 1.0) == pytest.approx(0.5 + math.atan(t) / math.pi, abs=1e-9)
    assert student(t, 2.0) == pytest.approx(0.5 + t / (2 * math.sqrt(2 + t * t)), abs=1e-9)


def test_a_summary_by_hand() -> None:
    found = summary([1.0, 2.0, 3.0, 6.0])
    deviation = math.sqrt((4 + 1 + 0 + 9) / 3)
    half = 3.1824 * deviation / 2
    assert found.n == 4 and found.mean == 3 and (found.lowest, found.highest) == (1, 6)
    assert found.deviation == pytest.approx(deviation) and found.error == pytest.approx(deviation / 2)
    assert found.interval == pytest.approx((3 - half, 3 + half), abs=1e-3)
    assert summary([0.2]) == Summary(1, 0.2, None, None, None, 0.2, 0.2)


def test_welch_by_hand() -> None:
    """Variances 1 and 4, n = 3 and 5: error √(1/3 + 4/5), degrees after Satterthwaite."""
    first, second = [1.0, 2.0, 3.0], [2.0, 3.0, 4.0, 5.0, 7.0]
    variance = sum((x - 4.2) ** 2 for x in second) / 4
    error = math.sqrt(1 / 3 + variance / 5)
    degrees = error**4 / ((1 / 3) ** 2 / 2 + (variance / 5) ** 2 / 4)
    found = welch(first, second)
    assert found.name == "Welch" and found.difference == pytest.approx(2.2)
    assert found.p == pytest.approx(2 * (1 - student(2.2 / error, degrees)))
    half = student_quantile(0.975, degrees) * error
    assert found.interval == pytest.approx((2.2 - half, 2.2 + half))
    assert (found.interval[0] > 0) == (found.p < 0.05)


def test_one_training_is_no_test_and_none_that_differ_are_certain() -> None:
    assert welch([1.0], [2.0, 3.0])[1:] == (1.5, None, None)
    assert welch([1.0, 1.0], [1.0, 1.0])[1:] == (0.0, (0.0, 0.0), 1.0)
    assert welch([1.0, 1.0], [2.0, 2.0])[1:] == (1.0, (1.0, 1.0), 0.0)


def test_a_narrower_set_is_found_whatever_its_place() -> None:
    wide, narrow = [1.0, 4.0, 9.0, 16.0, 20.0, -3.0], [100.0, 100.1, 99.9, 100.2, 99.8, 100.0]
    found = brown_forsythe(wide, narrow)
    assert found.name == "Brown-Forsythe" and found.difference < 0 and found.p is not None and found.p < 0.05
    assert brown_forsythe(narrow, [value - 50 for value in narrow]).p == pytest.approx(1)


def test_a_relative_gain_is_a_share_of_the_mean_before() -> None:
    found = relative_gain([20.0, 22.0], [18.9, 18.9])
    assert found.difference == pytest.approx(0.1)
    assert found.interval is not None and found.interval[0] < 0.1 < found.interval[1]
    assert statistics.relative_gain([2.0], [1.0]).interval is None
