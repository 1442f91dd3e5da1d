"""Statistics of a few trainings, against tables and numbers computed by hand."""

import itertools
import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from las.reproduction.statistics import (
    Summary,
    binomial_tails,
    brown_forsythe,
    fisher,
    holm,
    rank_sum,
    ratio_interval,
    share_interval,
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


def test_one_training_is_no_test_and_sets_without_spread_are_ranked() -> None:
    alone = welch([1.0], [2.0, 3.0])
    assert (alone.difference, alone.interval, alone.p) == (1.5, None, None)
    assert welch([1.0, 1.0], [1.0, 1.0]).p == 1.0
    two, four = welch([1.0] * 2, [2.0] * 2), welch([1.0] * 4, [2.0] * 4)
    assert two.p == pytest.approx(2 / 6), "of six ways to choose two of four, one has both ones"
    assert four.p == pytest.approx(2 / 70) and four.difference == 1 and four.interval is None


def test_a_scale_moves_the_null_and_leaves_the_values() -> None:
    before, after = [0.20, 0.22, 0.21], [0.19, 0.21, 0.20]
    assert welch(before, after, 0.9).difference == pytest.approx(0.2 - 0.9 * 0.21)
    assert welch(before, after, 0.9).less == pytest.approx(welch([0.9 * b for b in before], after).less)


def test_tiny_p_values_keep_their_digits() -> None:
    """`scipy.stats.ttest_ind(c, d, equal_var=False)`, scipy 1.17.1, for these two sets, and far beyond."""
    c, d = [1.0, 4.0, 9.0, 16.0, 20.0, -3.0], [100.0, 100.1, 99.9, 100.2, 99.8, 100.0, 100.4]
    assert welch(c, d).p == pytest.approx(1.7451437267915195e-06, rel=1e-9)
    assert 0 < student(-40.0, 30.0) < 1e-26


@pytest.mark.parametrize(
    ("first", "second", "p"),
    [
        ([0.7121, 0.7888, 0.6392, 0.7106, 0.5862], [0.4765, 0.345, 0.245, 0.3867, 0.1684], 0.4036624975164395),
        ([1.0, 4.0, 9.0, 16.0, 20.0, -3.0], [100.0, 100.1, 99.9, 100.2, 99.8, 100.0, 100.4], 0.0013851367428137297),
    ],
)
def test_brown_forsythe_is_levenes_test_from_the_median(first: list[float], second: list[float], p: float) -> None:
    """`scipy.stats.levene(first, second, center="median").pvalue`, scipy 1.17.1."""
    assert brown_forsythe(first, second).p == pytest.approx(p, abs=1e-9)


def test_a_narrower_set_is_found_whatever_its_place() -> None:
    wide, narrow = [1.0, 4.0, 9.0, 16.0, 20.0, -3.0], [100.0, 100.1, 99.9, 100.2, 99.8, 100.0]
    found = brown_forsythe(wide, narrow)
    assert found.name == "Brown-Forsythe" and found.difference < 0 and found.less is not None and found.less < 0.005
    assert brown_forsythe(narrow, [value - 50 for value in narrow]).p == pytest.approx(1)
    assert brown_forsythe([1.0, 1.0], [2.0, 2.0]).p is None


FEW = st.lists(st.sampled_from([0.0, 1.0, 2.0, 3.0]), min_size=1, max_size=4)


@given(FEW, FEW)
@settings(max_examples=40)
def test_ranks_are_those_of_all_ways_to_choose(first: list[float], second: list[float]) -> None:
    values = [*first, *second]
    rank = {value: sum(other < value for other in values) + (values.count(value) + 1) / 2 for value in values}
    sums = [sum(rank[value] for value in chosen) for chosen in itertools.combinations(values, len(second))]
    reached = sum(rank[value] for value in second)
    found = rank_sum(first, second)
    assert found.less == pytest.approx(sum(each <= reached for each in sums) / len(sums))
    assert found.greater == pytest.approx(sum(each >= reached for each in sums) / len(sums))


def test_the_interval_of_a_ratio_ends_where_welch_is_at_its_limit() -> None:
    before, after = [20.0, 22.0, 21.5], [18.9, 18.1, 19.2]
    low, high = ratio_interval(before, after, 0.9) or (0.0, 0.0)
    assert low < sum(after) / sum(before) < high
    for bound in (low, high):
        assert welch(before, after, bound).p == pytest.approx(0.05, abs=0.006)  # degrees are those at 0.9
    at_bound = ratio_interval(before, after, low)
    assert at_bound is not None and (at_bound[0] > low) == ((welch(before, after, low).p or 0) < 0.05)
    assert ratio_interval([2.0], [1.0], 1.0) is None and ratio_interval([-1.0, 1.0], [1.0, 2.0], 1.0) is None


def test_shares() -> None:
    assert binomial_tails(1, 3) == pytest.approx((0.5, 7 / 8)) and binomial_tails(3, 3) == (1.0, 1 / 8)
    assert share_interval(3, 10) == pytest.approx((0.06673951117773447, 0.652452850060008))  # scipy, method="exact"
    assert share_interval(0, 5) == pytest.approx((0.0, 1 - 0.025**0.2)) and share_interval(2, 2)[1] == 1.0


def test_holm_multiplies_the_smallest_by_all_and_never_overtakes() -> None:
    found = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005})
    assert found == pytest.approx({"d": 0.02, "a": 0.03, "c": 0.06, "b": 0.06})
    assert holm({"a": 0.7, "b": 0.8}) == {"a": 1.0, "b": 1.0} and holm({}) == {}


def test_fisher_is_the_hypergeometric_distribution() -> None:
    """`scipy.stats.fisher_exact([[8, 2], [1, 5]], alternative=...)`, scipy 1.17.1."""
    less, greater = fisher((1, 6), (8, 10))
    assert greater == pytest.approx(0.024475524475524476) and less == pytest.approx(0.9991258741258742)
    assert fisher((0, 5), (0, 5)) == (1.0, 1.0)
