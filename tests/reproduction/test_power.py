"""The power of the rules, against tables and against simulated trainings."""

import numpy as np
import pytest

from las.reproduction import statistics
from las.reproduction.verdicts import WANTED, MeanPlan, RankPlan, SharePlan, SpreadPlan, t_power
from las.reproduction.verdicts import trainings_needed as needed


def test_the_power_of_t_is_that_of_the_noncentral_distribution() -> None:
    """`1 - scipy.stats.nct.cdf(scipy.stats.t.ppf(0.975, df), df, 3)`, scipy 1.17.1."""
    assert t_power(3.0, 4.0) == pytest.approx(0.6192575370802132, abs=1e-4)
    assert t_power(3.0, 2.0) == pytest.approx(0.3873893502006681, abs=1e-4)
    assert t_power(0.0, 8.0) == pytest.approx(0.025, abs=1e-6)


def test_seventeen_see_a_difference_of_one_deviation() -> None:
    """The sample size of every textbook: d = 1, 80 %, two-tailed 5 %."""
    plan = MeanPlan((1.0, 1.0), 1.0)
    assert needed(plan) == 17 and plan.power(17) == pytest.approx(0.807, abs=1e-3)
    assert plan.power(16) < WANTED and plan.detectable(17) == pytest.approx(0.991, abs=1e-3)
    assert needed(MeanPlan((0.0, 0.0), 1.0)) == 2 and needed(MeanPlan((1.0, 1.0), 1e-3)) is None


def test_of_many_trainings_the_number_is_that_of_the_normal_distribution() -> None:
    """2 (1.960 + 0.842)^2 / d^2, where Student's distribution is the normal one."""
    for difference in (0.1, 0.01, 0.005):
        assert needed(MeanPlan((1.0, 1.0), difference)) == pytest.approx(15.6978 / difference**2, rel=1e-3)


def test_five_trainings_see_no_spread_and_twenty_a_double_one() -> None:
    plan = SpreadPlan()
    assert plan.detectable(5) is None and plan.power(5) < 0.25
    ratio = plan.detectable(20)
    assert ratio is not None and ratio == pytest.approx(2.15, abs=0.01) and needed(plan) == 24


def test_counts_and_ranks_need_enough_trainings_to_be_rare() -> None:
    plan = SharePlan(1, others=1)
    assert plan.power(3) == 0.0 and plan.detectable(3) is None, "3 of 3 against 0 of 3 are likelier than 2.5 %"
    assert plan.power(4) == pytest.approx(0.9**4), "4 of 4 against 0 of 4: 1 in 70"
    assert (plan.detectable(4) or 0) == pytest.approx(0.8 ** (1 / 4), abs=1e-6)
    assert needed(plan) == 5 and needed(plan, 0.05 / 10) == 7 and needed(SharePlan(2, others=2)) == 4
    assert needed(RankPlan()) == 4 and RankPlan().detectable(3) is None and RankPlan().detectable(4) == 0.0


@pytest.mark.slow
def test_the_power_of_spreads_is_about_that_of_simulated_trainings() -> None:
    generator = np.random.default_rng(1)
    sees = [
        (statistics.brown_forsythe(generator.normal(0, 2, 24).tolist(), generator.normal(0, 1, 24).tolist()).less or 1)
        for _ in range(1000)
    ]
    assert np.mean(np.array(sees) < 0.025) == pytest.approx(SpreadPlan().power(24), abs=0.06)
