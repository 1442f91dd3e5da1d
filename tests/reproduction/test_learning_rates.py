"""The choice of learning rates, and trainings that a stored table has already."""

import dataclasses
from pathlib import Path

import pytest

from las.cli import reproduce
from las.reproduction import jobs, recipe, result_folders, results
from las.reproduction.jobs import Job
from las.reproduction.recipe import Recipe
from las.reproduction.results import Line, Outcome, Table

RATES = (0.001, 0.002, 0.004)


@pytest.fixture(scope="module")
def tuned() -> Recipe:
    """A recipe of two rows whose tier `smoke` tries three learning rates, with three seeds."""
    read = recipe.read("bo18_table3")
    smoke = dataclasses.replace(read.tiers["smoke"], rates=RATES, seeds=3)
    return dataclasses.replace(read, rows=read.rows[:2], tiers={**read.tiers, "smoke": smoke})


@pytest.fixture(scope="module")
def planned(tuned: Recipe) -> list[Job]:
    return plan(tuned)


def outcome(job: Job, dev: float, broken: str = "") -> Outcome:
    values = {"dev": dev, "dev_loss": dev, "test": dev, "seconds": 60.0}
    return Outcome(job.seed, job.copy, 10, "c", broken, values, None, digest=job.digest, rate=job.rate)


def table_of(tuned: Recipe, planned: list[Job], errors: dict[tuple[str, int, float], float]) -> Table:
    """A stored table with the trainings that have an error, by row, seed and rate."""
    lines = []
    for row in tuned.rows:
        own = [job for job in planned if job.row.name == row.name and job.rate is not None]
        places = [(job, (row.name, job.seed, job.rate or 0.0)) for job in own]
        lines.append(
            Line(row.name, row.label, tuple(outcome(job, errors[key]) for job, key in places if key in errors))
        )
    return Table(tuned.name, "smoke", "timit", "phone_error_rate", "las reproduce", tuple(lines))


def plan(tuned: Recipe, given: tuple[str, ...] = (), seeds: int | None = None) -> list[Job]:
    return jobs.jobs(tuned, "smoke", seeds, Path("runs"), ["corpus=timit", "corpus.root=x", *given])


def test_every_seed_is_trained_with_every_rate(tuned: Recipe, planned: list[Job]) -> None:
    assert [(job.row.name, job.seed, job.rate) for job in planned] == [
        (row.name, seed, rate) for seed in (1, 2, 3) for row in tuned.rows for rate in RATES
    ]
    assert planned[5].config["optim"]["lr"] == 0.004
    assert len({job.directory for job in planned}) == len(planned)


def test_a_row_may_have_rates_of_its_own(tuned: Recipe) -> None:
    """At a tier that has rates; they are all that is asked of the row, and not of the others."""
    own = dataclasses.replace(tuned.rows[0], rates=(0.5, 0.25))
    changed = dataclasses.replace(tuned, rows=(own, tuned.rows[1]))
    planned = plan(changed, seeds=1)
    assert [job.rate for job in planned] == [0.5, 0.25, *RATES]
    known = table_of(changed, planned, {(own.name, 1, 0.5): 0.3, (own.name, 1, 0.25): 0.2})
    line = results.collect(changed, "smoke", planned, "", [known]).line(own.name)
    assert [(each.rate, line.tried[0].rate) for each in line.outcomes] == [(0.25, 0.5)]
    without = dataclasses.replace(
        changed, tiers=tuned.tiers | {"smoke": dataclasses.replace(tuned.tiers["smoke"], rates=())}
    )
    assert [job.rate for job in plan(without, seeds=1)] == [None, None]


def test_a_given_rate_replaces_those_of_the_tier(tuned: Recipe) -> None:
    planned = plan(tuned, given=("optim.lr=0.5",))
    assert [(job.seed, job.rate) for job in planned] == [(seed, None) for seed in (1, 1, 2, 2, 3, 3)]
    assert {job.config["optim"]["lr"] for job in planned} == {0.5}


def test_a_row_with_a_rate_of_its_own_tries_no_others(tuned: Recipe) -> None:
    asked = recipe.read("lr_sweep")
    smoke = dataclasses.replace(tuned.tiers["smoke"], seeds=1)
    planned = plan(dataclasses.replace(asked, rows=asked.rows[:4], tiers={**tuned.tiers, "smoke": smoke}))
    assert {job.rate for job in planned} == {None}
    assert len({job.config["optim"]["lr"] for job in planned}) > 1


def test_each_seed_counts_with_its_best_rate_on_dev_and_the_others_are_kept_apart(
    tuned: Recipe, planned: list[Job]
) -> None:
    first, second = (row.name for row in tuned.rows)
    losses = {1: (0.3, 0.2, 0.25), 2: (0.2, 0.3, 0.25)}
    errors = {(first, seed, rate): each[k] for seed, each in losses.items() for k, rate in enumerate(RATES)}
    known = table_of(tuned, planned, {**errors, (second, 1, 0.001): 0.5})
    table = results.collect(tuned, "smoke", planned, "las reproduce", [known])
    assert [(each.seed, each.rate, each.dev_loss) for each in table.line(first).outcomes] == [
        (1, 0.002, 0.2),
        (2, 0.001, 0.2),
    ]
    others = [(each.seed, each.rate) for each in table.line(first).tried]
    assert sorted(others) == [(1, 0.001), (1, 0.004), (2, 0.002), (2, 0.004)]
    assert table.line(second).outcomes == (), "two of its rates are not trained yet"
    assert [each.rate for each in table.line(second).tried] == [0.001]


def test_a_broken_training_is_never_the_best(planned: list[Job]) -> None:
    planned, rates = planned[:3], frozenset(RATES)
    trained = [outcome(planned[0], 0.1, "not finite"), outcome(planned[1], 0.6), outcome(planned[2], 0.6)]
    assert [each.rate for each in results.divided(trained, rates)[0]] == [0.002]
    assert results.divided(trained[1:], rates)[0] == []
    broken = [outcome(job, 1.0, "broken") for job in planned]
    assert [each.rate for each in results.divided(broken, rates)[0]] == [0.001]


def test_a_stored_training_counts_only_with_the_same_settings(tuned: Recipe, planned: list[Job]) -> None:
    known = table_of(tuned, planned, {(tuned.rows[0].name, 1, rate): 0.3 for rate in RATES})
    assert len(results.stored([known], planned)) == 3
    others = plan(tuned, given=("trainer.batch_size=3",), seeds=1)
    assert results.stored([known], others) == {}
    assert results.collect(tuned, "smoke", others, "", [known]).line(tuned.rows[0].name).outcomes == ()


def test_a_training_stored_at_one_of_several_rates_counts_where_that_is_the_only_one(
    tuned: Recipe, planned: list[Job]
) -> None:
    first = tuned.rows[0].name
    known = table_of(tuned, planned, {(first, 1, rate): 0.3 for rate in RATES})
    fixed = plan(tuned, given=(f"optim.lr={RATES[1]}",), seeds=1)
    line = results.collect(tuned, "smoke", fixed, "", [known]).line(first)
    assert [(each.seed, each.rate) for each in line.outcomes] == [(1, None)] and not line.tried


def test_trainings_of_another_recipe_with_the_same_rows_count(tuned: Recipe, tmp_path: Path) -> None:
    given = ["recipe=bo18_table1", "tier=smoke", "corpus=timit", "corpus.root=x", f"results_dir={tmp_path}"]
    asked = reproduce.request(given)
    planned = plan(tuned, ("optim.lr=0.002",), seeds=2)
    lines = [
        Line(row.name, row.label, tuple(outcome(job, 0.3) for job in planned if job.row.name == row.name))
        for row in tuned.rows
    ]
    whole = Table("bo18_table3", "smoke", "timit", "phone_error_rate", "las reproduce", tuple(lines))
    results.write(whole, tmp_path / "bo18_table3-smoke-timit.json")
    results.write(whole, tmp_path / "bo18_table3-smoke-synthetic.json")
    wanted = jobs.jobs(asked.recipe, "smoke", 2, Path("runs"), [*given[2:4], "optim.lr=0.002"])
    known = result_folders.stored_tables(tmp_path, asked.recipe, "smoke", wanted)
    assert [table.corpus for table in known] == ["timit"]
    table = results.collect(asked.recipe, "smoke", wanted, "", known)
    assert {line.name: [each.seed for each in line.outcomes] for line in table.lines} == {
        row.name: [1, 2] for row in asked.recipe.rows
    }


def test_a_table_with_rates_is_read_as_it_was_written(tuned: Recipe, planned: list[Job], tmp_path: Path) -> None:
    known = table_of(tuned, planned, {(row.name, 1, rate): 0.3 for row in tuned.rows for rate in RATES})
    table = results.collect(tuned, "smoke", planned, "las reproduce", [known])
    results.write(table, tmp_path / "x.json")
    assert results.read(tmp_path / "x.json") == table
    assert [len(line.tried) for line in table.lines] == [2, 2]
