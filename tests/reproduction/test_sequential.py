"""Seeds that are added until claims are decided: which rows get them, and how often a verdict is false."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from trained_tables import table

from las.cli import reproduce, train_jobs
from las.reproduction import judging, sequential
from las.reproduction.jobs import Job
from las.reproduction.results import Line, Outcome, Table
from las.reproduction.rules import both, lower
from las.reproduction.sequential import LOOKS
from las.reproduction.verdicts import NOT_SUPPORTED, SUPPORTED, TOO_SMALL, decide
from las.runtime.errors import ConfigError


def looked_at(rates: dict[str, list[float]], looks: tuple[int, ...] = LOOKS) -> Table:
    return dataclasses.replace(table(rates), looks=looks)


def test_shares_of_all_looks_are_one() -> None:
    assert sum(map(sequential.share, LOOKS)) == pytest.approx(1.0)


def test_the_strongest_look_counts_with_its_share() -> None:
    generator = np.random.default_rng(0)
    rates = {"a": generator.normal(0.18, 0.02, 20).tolist(), "b": generator.normal(0.2, 0.02, 20).tolist()}
    rule = lower("a", "b")
    found = sequential.evidence(rule, looked_at(rates))
    each = [rule(table({name: values[:look] for name, values in rates.items()})).p or 1.0 for look in LOOKS]
    assert found.p == pytest.approx(min(p / sequential.share(look) for p, look in zip(each, LOOKS, strict=True)))
    assert sequential.evidence(rule, table(rates)) == rule(table(rates)), "without looks nothing is divided"


def test_a_look_that_the_rows_have_not_reached_does_not_count() -> None:
    rates = {"a": [0.1, 0.11, 0.09], "b": [0.2, 0.21, 0.19]}
    three, five = (sequential.evidence(lower("a", "b"), looked_at(rates, looks)) for looks in ((3,), (3, 5)))
    assert three == five and three.p is not None
    assert sequential.evidence(lower("a", "b"), looked_at(rates, (5,))).p is None


def test_rules_say_which_rows_they_compare() -> None:
    assert sequential.rows_of(both(lower("a", "b"), lower("c", "b"))) == ["b", "a", "c"]


@pytest.mark.slow
def test_stopping_at_the_first_verdict_is_false_at_most_once_in_twenty() -> None:
    generator, false, rule, tables = np.random.default_rng(1), 0, lower("a", "b"), 300
    for _ in range(tables):
        rates = {name: generator.normal(0.2, 0.03, LOOKS[-1]).tolist() for name in "ab"}
        looks = [looked_at(rates, LOOKS[:number]) for number in range(1, len(LOOKS) + 1)]
        verdicts = [decide({"claim": sequential.evidence(rule, each)})["claim"].verdict for each in looks]
        false += SUPPORTED in verdicts or NOT_SUPPORTED in verdicts
    assert false <= 0.05 * tables


def test_seeds_are_added_to_the_rows_of_undecided_claims_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C6 is certain at three seeds; the rows of C5 are equal, which five show."""
    looks_planned = (3, 5)
    monkeypatch.setattr(reproduce, "LOOKS", looks_planned)
    monkeypatch.setattr(sequential, "LOOKS", looks_planned)
    errors = {"baseline": 0.3, "ln_encoder_only": 0.2, "ln_both": 0.2, "ln_decoder_only": 0.9}
    trained: dict[str, int] = {}
    finished: list[Job] = []

    def train(jobs: list[Job], *_: object) -> None:
        finished.extend(jobs)
        trained.update({job.row.name: job.seed for job in jobs})

    def gathered(requested: reproduce.Request, jobs: list[Job], command: str, looks: list[int]) -> Table:
        lines = []
        for row in requested.recipe.rows:
            own = [job for job in finished if job.row.name == row.name]
            values = {job.seed: errors[row.name] * (1 + 0.05 * (-1) ** (job.seed // 2)) for job in own}
            outcomes = [Outcome(seed, 1, 9, "abc", "", {"test": value}, None) for seed, value in values.items()]
            lines.append(Line(row.name, row.label, tuple(outcomes)))
        return Table("bo18_table3", "open", "synthetic_hard", "wer", command, tuple(lines), looks=tuple(looks))

    monkeypatch.setattr(train_jobs, "train", train)
    monkeypatch.setattr(reproduce, "gathered", gathered)
    monkeypatch.setattr(reproduce, "require_built", lambda *_: None)
    monkeypatch.setattr(reproduce, "of_table", lambda _, table: judging.judge([table]))
    written = ["recipe=bo18_table3", "until=decided", f"runs_dir={tmp_path}", f"results_dir={tmp_path}/r"]
    requested = reproduce.request([*written, "corpus.name=nowhere", "optim.lr=0.002"])
    plan, looks = reproduce.checked_plan(requested._replace(seeds=3)), list[int]()
    reproduce.train_until_decided(requested, plan, looks, "")
    assert looks == [3, 5]
    verdict = judging.judge([gathered(requested, [], "", looks)])
    assert verdict["C6"].verdict == SUPPORTED and verdict["C5"].verdict == TOO_SMALL
    assert trained == {"baseline": 3, "ln_decoder_only": 3, "ln_encoder_only": 5, "ln_both": 5}

    requested, before = requested._replace(hours=0.0), len(finished)
    reproduce.train_until_decided(requested, plan, [], "")
    assert len(finished) == before, "no seed is begun when the hours are over"


def test_what_does_not_go_with_until_is_refused() -> None:
    for wrong in (["seeds=3"], ["tier=smoke"]):
        with pytest.raises(ConfigError, match=r"until=decided"):
            reproduce.request(["recipe=bo18_table3", "until=decided", *wrong])
    for wrong in (["hours=2"], ["until=never"]):
        with pytest.raises(ConfigError, match=r"decided"):
            reproduce.request(["recipe=bo18_table3", *wrong])
