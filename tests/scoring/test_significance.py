"""Significance tests against NIST's sc_stats on 1,092 pairs of systems, its own test data, and textbook examples."""

import json
import math
from pathlib import Path

import pytest
import significance_cases as cases
from hypothesis import given
from hypothesis import strategies as st
from tiers import rest_slow

from las.runtime.errors import ArgumentError, DataError
from las.scoring import significance, tables
from las.scoring.alignment import Aligned
from las.scoring.error_rates import Score, error_rate, summarise
from las.scoring.significance import SignificanceTest

GOLD = json.loads((Path(__file__).parents[1] / "gold" / "significance.json").read_text())
TESTS = list(cases.tests())


def scores(references: cases.Texts, systems: list[cases.Texts]) -> list[Score]:
    speakers = {name: name.split("-")[0] for name in references}
    return [error_rate(references, hypotheses, speakers) for hypotheses in systems]


def found(first: Score, second: Score) -> list[str]:
    """The columns of the gold file, as we find them."""
    outcomes = significance.tests(first, second)
    p_values = [tables.probability(outcomes[name].sc_stats_p) for name in cases.TESTS.values()]
    return [*p_values, str(outcomes["mapsswe"].pairs), f"{outcomes['mapsswe'].statistic:.3f}"]


@pytest.mark.parametrize("number", rest_slow(range(len(cases.SHAPES)), keep=3), ids=str)
def test_p_values_are_those_of_sc_stats(number: int) -> None:
    systems = scores(*TESTS[number])
    ours = [found(systems[one], systems[other]) for one, other in cases.pairs()]
    assert ours == GOLD["tests"][number]


def test_the_gold_is_what_sc_stats_says() -> None:
    assert [list(pair.values()) for pair in cases.sc_stats(*TESTS[0])] == GOLD["tests"][0]


def words(text: str) -> list[Aligned]:
    """`c` correct, `s` substitution, `d` deletion, `i` insertion."""
    spoken = {"c": ("x", "x", "correct"), "s": ("x", "y", "substitution"), "d": ("x", None, "deletion")}
    return [Aligned(*spoken.get(letter, (None, "y", "insertion"))) for letter in text]


@given(st.lists(st.tuples(st.text("csd", max_size=9), st.text("i", max_size=2)), min_size=1, max_size=5))
def test_segments_hold_every_error_once(drawn: list) -> None:
    first = words("".join(text + extra for text, extra in drawn))
    second = words("".join(reversed([text + extra for text, extra in drawn])))
    listed = significance.segments(first, second)
    assert sum(each.first for each in listed) == sum(aligned.kind != "correct" for aligned in first)
    assert sum(each.second for each in listed) == sum(aligned.kind != "correct" for aligned in second)
    assert all(each.first or each.second for each in listed)


def test_the_matched_pair_test_is_its_formula() -> None:
    """d = 1, 2, 0: mean 1, standard deviation 1, z = √3."""
    outcome = significance.mapsswe([words("s"), words("ss"), words("s")], [words("c"), words("cc"), words("s")])
    assert outcome.pairs == 3
    assert outcome.statistic == pytest.approx(math.sqrt(3))
    assert outcome.p == pytest.approx(0.0833, abs=5e-5)
    assert outcome.sc_stats_p == pytest.approx(0.0836, abs=5e-5)  # at z = 1.73


def test_without_a_difference_nothing_is_significant() -> None:
    same = [words("scs"), words("cc")]
    assert significance.mapsswe(same, same) == SignificanceTest(1, 0.0, 1.0, 1.0)
    assert significance.mcnemar(same, same) == SignificanceTest(0, 0.0, 1.0, 1.0)
    assert significance.mapsswe([], []) == SignificanceTest(0, 0.0, 1.0, 1.0)


def test_many_trials_are_exact_for_us_and_halved_by_sc_stats() -> None:
    """10 of 30: 2 P(X <= 10) = 0.0987; sc_stats reads it at 5 instead, where z = -3.65."""
    first, second = [words("s")] * 20 + [words("c")] * 10, [words("c")] * 20 + [words("s")] * 10
    outcome = significance.mcnemar(first, second)
    assert outcome.p == pytest.approx(0.0987, abs=5e-5)
    assert outcome.sc_stats_p == pytest.approx(0.00026, abs=5e-6)
    assert significance.mcnemar([words("s")] * 60_000, [words("c")] * 60_000).p == 0.0


def rates(*values: float) -> dict[str, float]:
    return {f"s{index}": float(value) for index, value in enumerate(values)}


def test_wilcoxon_weighs_differences_by_their_rank_which_equal_ones_share() -> None:
    """Differences 5, 4, 3, 2, -1: W = 1, E = 7.5, variance 13.75; 1, 1, -1: ranks 2, W = 2, E = 3, variance 3.5."""
    outcome = significance.wilcoxon(rates(25, 24, 23, 22, 20), rates(20, 20, 20, 20, 21))
    assert (outcome.pairs, outcome.statistic) == (5, pytest.approx(6.5 / math.sqrt(13.75)))
    assert outcome.p == pytest.approx(0.0796, abs=5e-5)
    assert significance.wilcoxon(rates(21, 21, 20), rates(20, 20, 21)).statistic == pytest.approx(1 / math.sqrt(3.5))


def test_a_comparison_says_who_is_better() -> None:
    first, second = summarise({"a": words("scc"), "b": words("s")}), summarise({"b": words("c"), "a": words("scc")})
    comparison = significance.compare(first, second)
    assert comparison.difference == pytest.approx(-1 / 4)
    assert comparison.tests.keys() == {"mapsswe", "mcnemar"}  # no speakers are known
    assert comparison.tests["mcnemar"].statistic == 1


def test_only_scores_of_the_same_utterances_are_compared() -> None:
    one, two = ({name: words("c") for name in names} for names in ("a", "ab"))
    with pytest.raises(DataError, match=r"only one.* 'b'"):
        significance.compare(summarise(one), summarise(two))
    with pytest.raises(ArgumentError, match="is no score"):
        significance.compare({"u1": "a"}, {"u1": "a"})
