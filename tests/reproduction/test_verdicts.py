"""Verdicts: each rule on results made to be clear, contrary, and too few."""

from collections.abc import Mapping, Sequence

import pytest

from las.reproduction import claims, recipe
from las.reproduction.results import Line, Outcome, Table
from las.reproduction.verdicts import (
    NOT_SUPPORTED,
    SUPPORTED,
    UNDECIDED,
    Rule,
    attention_fails,
    best_of,
    both,
    breaks,
    elsewhere,
    far_worse,
    gain_grows,
    gains,
    less_spread_over,
    lower,
    narrower,
    not_lower,
    small_gains,
)

LOW, HIGH = (0.100, 0.101, 0.099), (0.200, 0.201, 0.199)
Rates = Mapping[str, Sequence[float | None]]


def table(rates: Rates, measure: str = "test", tier: str = "open", name: str = "any") -> Table:
    """A table of rows with one number for each seed; None is a broken training."""
    lines = []
    for row, values in rates.items():
        outcomes = [
            Outcome(seed, 1, 100, "abc", "" if value is not None else "NaN", _values(measure, value), None)
            for seed, value in enumerate(values, start=1)
        ]
        lines.append(Line(row, row, tuple(outcomes)))
    return Table(name, tier, "synthetic", "wer", "las reproduce", tuple(lines))


def _values(measure: str, value: float | None) -> dict[str, float]:
    return {} if value is None else {measure: value}


def verdict(rule: Rule, rates: Rates, measure: str = "test") -> str:
    return rule(table(rates, measure)).verdict


BROKEN = (None, None)
CASES: list[tuple[Rule, Rates, str]] = [
    (lower("a", "b"), {"a": LOW, "b": HIGH}, SUPPORTED),
    (lower("a", "b"), {"a": HIGH, "b": LOW}, NOT_SUPPORTED),
    (lower("a", "b"), {"a": (0.1, 0.3), "b": (0.15, 0.29)}, UNDECIDED),
    (lower("a", "b"), {"a": LOW[:1], "b": HIGH[:1]}, UNDECIDED),
    (lower("a", "b"), {"a": LOW}, UNDECIDED),
    (lower("a", "b"), {"a": BROKEN, "b": HIGH}, UNDECIDED),
    (far_worse("a", ["b", "c"]), {"a": HIGH, "b": LOW, "c": LOW}, SUPPORTED),
    (far_worse("a", ["b"]), {"a": (0.110, 0.111, 0.109), "b": LOW}, NOT_SUPPORTED),
    (far_worse("a", ["b"]), {"a": LOW, "b": HIGH}, NOT_SUPPORTED),
    (far_worse("a", ["b"]), {"a": HIGH[:1], "b": LOW[:1]}, UNDECIDED),
    (gains([("b", "a")], 0.05), {"a": LOW, "b": HIGH}, SUPPORTED),
    (gains([("b", "a")], 0.05), {"a": HIGH, "b": LOW}, NOT_SUPPORTED),
    (gains([("b", "a")], 0.05), {"a": (0.1, 0.3), "b": (0.15, 0.29)}, UNDECIDED),
    (gains([("b", "a")], 0.05), {"a": LOW[:1], "b": HIGH[:1]}, UNDECIDED),
    (small_gains("b", ["a"]), {"a": HIGH, "b": HIGH}, SUPPORTED),
    (small_gains("b", ["a"]), {"a": LOW, "b": HIGH}, NOT_SUPPORTED),
    (small_gains("b", ["a"]), {"a": (0.1, 0.3), "b": (0.15, 0.29)}, UNDECIDED),
    (small_gains("b", ["a"]), {"a": LOW[:1], "b": HIGH}, UNDECIDED),
    (best_of("a", ["b", "c"]), {"a": LOW, "b": HIGH, "c": BROKEN}, SUPPORTED),
    (best_of("a", ["b", "c"]), {"a": HIGH, "b": HIGH, "c": LOW}, NOT_SUPPORTED),
    (best_of("a", ["b", "c"]), {"a": BROKEN, "b": HIGH, "c": LOW}, NOT_SUPPORTED),
    (best_of("a", ["b", "c"]), {"a": LOW, "b": HIGH}, UNDECIDED),
    (breaks(["a"], sound=["b"]), {"a": BROKEN, "b": LOW}, SUPPORTED),
    (breaks(["a"], sound=["b"]), {"a": LOW, "b": LOW}, NOT_SUPPORTED),
    (breaks(["a"], sound=["b"]), {"a": (None, 0.1), "b": LOW}, UNDECIDED),
    (breaks(["a"], sound=["b"]), {"a": BROKEN, "b": BROKEN}, UNDECIDED),
    (breaks(["a"]), {"a": (None,)}, UNDECIDED),
    (breaks(["a"]), {}, UNDECIDED),
    (narrower("a", "b"), {"a": LOW * 3, "b": (0.1, 0.3, 0.5, 0.0, 0.2, 0.4)}, SUPPORTED),
    (narrower("a", "b"), {"b": LOW * 3, "a": (0.1, 0.3, 0.5, 0.0, 0.2, 0.4)}, NOT_SUPPORTED),
    (narrower("a", "b"), {"a": LOW, "b": HIGH}, UNDECIDED),
    (narrower("a", "b"), {"a": LOW[:2], "b": HIGH[:2]}, UNDECIDED),
    (narrower("a", "b"), {"a": (0.1,) * 3, "b": (0.2,) * 3}, UNDECIDED),
    (attention_fails("a", "b"), {"a": (0.1, 0.2), "b": (0.9, 0.95)}, SUPPORTED),
    (attention_fails("a", "b"), {"a": (0.9, 0.8), "b": (0.9, 0.95)}, NOT_SUPPORTED),
    (attention_fails("a", "b"), {"a": (0.1, 0.2), "b": (0.3, 0.4)}, UNDECIDED),
    (attention_fails("a", "b"), {"a": (0.1,), "b": (0.9,)}, UNDECIDED),
    (not_lower("a", "b", "test"), {"a": HIGH, "b": HIGH}, SUPPORTED),
    (not_lower("a", "b", "test"), {"a": LOW, "b": HIGH}, NOT_SUPPORTED),
    (not_lower("a", "b", "test"), {"a": (0.1, 0.3), "b": (0.15, 0.29)}, UNDECIDED),
    (not_lower("a", "b", "test"), {"a": LOW[:1], "b": HIGH}, UNDECIDED),
    (elsewhere("somewhere"), {}, UNDECIDED),
]


@pytest.mark.parametrize(("rule", "rates", "expected"), CASES)
def test_a_rule_gives_the_verdict_that_the_numbers_ask_for(rule: Rule, rates: Rates, expected: str) -> None:
    measure = "diagonality" if "attention_fails" in rule.__qualname__ else "test"
    found = rule(table(rates, measure))
    assert found.verdict == expected, found.test
    assert found.test


def test_every_rule_is_tried_in_all_three_ways() -> None:
    tried: dict[str, set[str]] = {}
    for rule, _, expected in CASES:
        tried.setdefault(rule.__qualname__.partition(".")[0], set()).add(expected)
    for name, verdicts in tried.items():
        assert name == "elsewhere" or verdicts == {SUPPORTED, NOT_SUPPORTED, UNDECIDED}, name
    used = {claim.rule.__qualname__.partition(".")[0] for claim in claims.CLAIMS} | {"small_gains"}  # inside both
    assert used - {"both", "less_spread_over", "gain_grows"} == tried.keys()


def test_a_grid_of_rates_is_compared_seed_by_seed() -> None:
    rule = less_spread_over(["a1", "a2"], ["b1", "b2"])
    wide = {"b1": (0.1, 0.2, 0.3), "b2": (0.5, 0.61, 0.69)}  # within a seed they are 0.4 apart
    narrow = {"a1": (0.1, 0.2, 0.3), "a2": (0.11, 0.21, 0.32)}
    assert verdict(rule, wide | narrow) == SUPPORTED
    swapped = {name.translate(str.maketrans("ab", "ba")): values for name, values in (wide | narrow).items()}
    assert verdict(rule, swapped) == NOT_SUPPORTED
    assert verdict(rule, wide | {"a1": (0.1, None), "a2": (None, 0.2)}) == UNDECIDED
    assert verdict(rule, wide) == UNDECIDED


def test_gains_of_two_pairs_are_compared_seed_by_seed() -> None:
    rule = gain_grows(("s", "s_ln"), ("l", "l_ln"))
    small = {"s": HIGH, "s_ln": (0.190, 0.191, 0.189)}
    large = {"l": HIGH, "l_ln": LOW}
    assert verdict(rule, small | large) == SUPPORTED
    assert verdict(rule, {"s": HIGH, "s_ln": LOW, "l": HIGH, "l_ln": HIGH}) == NOT_SUPPORTED
    assert verdict(rule, small) == UNDECIDED
    assert verdict(rule, small | {"l": (0.1, None), "l_ln": (None, 0.2)}) == UNDECIDED


def test_two_rules_at_once() -> None:
    yes, no = lower("a", "b"), lower("b", "a")
    rates = {"a": LOW, "b": HIGH}
    assert verdict(both(yes, yes), rates) == SUPPORTED
    assert verdict(both(yes, no), rates) == NOT_SUPPORTED
    assert verdict(both(yes, elsewhere("?")), rates) == UNDECIDED


def test_what_was_not_recorded_is_said() -> None:
    rule = lower("a", "b", "weight_drift")
    assert rule(table({"a": LOW, "b": HIGH})).test == "weight_drift was not recorded for b, a"


def test_all_claims_are_judged_and_a_few_steps_decide_nothing() -> None:
    rates = {"ln_encoder_only": LOW, "baseline": HIGH}
    found = claims.judge(claims.CLAIMS, [table(rates, name="bo18_table1")])
    assert len(found) == 26 and found["C2"].verdict == SUPPORTED
    assert {each.verdict for name, each in found.items() if name != "C2"} == {UNDECIDED}
    smoke = claims.judge(claims.of("bo18_table1"), [table(rates, tier=recipe.SMOKE, name="bo18_table1")])
    assert {name: each.verdict for name, each in smoke.items()} == {"C1": UNDECIDED, "C2": UNDECIDED}
