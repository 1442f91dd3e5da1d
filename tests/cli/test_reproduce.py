"""The verb: the plan, trainings that are not repeated, reports, mistakes; and every recipe at the tier smoke."""

import dataclasses
import json
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import tiny
from console import Las
from omegaconf import OmegaConf

from las.cli import prepare as cli_prepare
from las.cli import reproduce, train_jobs
from las.cli import train as cli_train
from las.config.build import compose
from las.config.targets import Surroundings
from las.reproduction import jobs as reproduction_jobs
from las.reproduction import recipe, results
from las.reproduction.results import Line, Outcome, Table
from las.runtime.errors import ConfigError, LasError, NumericalError
from las.training import chance
from las.training.chance import ChanceLevel

RECIPES = Path(__file__).parents[2] / "recipes"


def places(root: Path) -> list[str]:
    """Overrides that lead to the tiny corpus and keep everything in its folder."""
    results = [f"runs_dir={root / 'runs'}", f"results_dir={root / 'results'}"]
    return [*tiny.corpus(root), *results, "trainer.histograms=false"]


@pytest.fixture
def two_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recipes of which bo18_table3 has two rows."""
    folder = shutil.copytree(RECIPES, tmp_path / "recipes", ignore=shutil.ignore_patterns("results"))
    values = OmegaConf.to_container(OmegaConf.load(folder / "bo18_table3.yaml"))
    assert isinstance(values, dict)
    OmegaConf.save(OmegaConf.create({**values, "rows": values["rows"][:2]}), folder / "bo18_table3.yaml")
    monkeypatch.setattr(recipe, "directory", lambda: folder)


@pytest.fixture
def after(two_rows: None) -> Path:
    """The recipe whose second row, `further`, goes on from the first."""
    path = recipe.directory() / "bo18_table3.yaml"
    values = OmegaConf.load(path)
    values.rows = [values.rows[0], {**values.rows[0], "name": "further", "after": "baseline"}]
    OmegaConf.save(values, path)
    return path


def test_a_row_begins_with_the_training_of_another_with_the_same_seed(after: Path, corpus: Path) -> None:
    def jobs(runs: Path, *given: str) -> list[reproduction_jobs.Job]:
        return reproduction_jobs.jobs(recipe.read("bo18_table3"), "smoke", 2, runs, [*tiny.corpus(corpus), *given])

    here, there = jobs(corpus / "it's here"), jobs(Path("there"))
    assert [job.digest for job in here] == [job.digest for job in there], "wherever the runs lie"
    for first, second in zip(here[::2], here[1::2], strict=True):
        assert (first.source, second.source, second.seed) == (None, first, first.seed)
        begun = compose("train", list(second.overrides))["warm_start"]
        assert begun["from"] == second.config["warm_start"]["from"] == str(first.directory)
    own, other = here[1], jobs(Path("there"), "model.speller.dropout=0.5")[1]
    assert own.digest != other.digest
    with pytest.raises(ConfigError, match=r"baseline has 3 trainings with seed 1.*optim\.lr"):
        reproduction_jobs.jobs(recipe.read("bo18_table3"), "open", 1, corpus, [])


def test_the_training_that_a_row_begins_with_comes_first(
    after: Path, corpus: Path, las: Las, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where only a stored result of it is left; one that broke is an error that names the remedy."""
    command = ("reproduce", "recipe=bo18_table3", "tier=smoke", "rows=[further]", *places(corpus))
    answer = las(*command).succeeds()
    assert "== 1 of 2: baseline" in answer.out and "== 2 of 2: further" in answer.out
    (begun,) = (corpus / "runs/further").glob("*/*/warm_start.json")
    assert "runs/baseline" in json.loads(begun.read_text())["source"]["path"]
    assert "nothing is left" in las(*command, "dry_run=true").succeeds().out

    shutil.rmtree(corpus / "runs")
    assert "nothing is left" in las(*command, "dry_run=true").succeeds().out
    (stored,) = (corpus / "results").glob("bo18_table3-*.json")
    table = results.read(stored)
    results.write(dataclasses.replace(table, lines=table.lines[:1]), stored)  # that of baseline
    answer = las(*command, "dry_run=true").succeeds()
    assert "2 to train" in answer.out and answer.out.count("to do") == 2

    perfect = ChanceLevel(1.0, 0.0, "")  # nothing is better: every training is broken on every machine
    monkeypatch.setattr(chance, "chance_level", lambda *given: perfect)
    las(*command, "trainer.broken_after_epochs=0").fails(4, "further seed baseline broke rows")


def test_a_row_of_another_architecture_than_the_one_before_costs_no_training(
    after: Path, corpus: Path, las: Las
) -> None:
    values = OmegaConf.load(after)
    values.rows[1].overrides = ["+experiment=ln_encoder_only"]
    OmegaConf.save(values, after)
    answer = las("reproduce", "recipe=bo18_table3", "tier=smoke", *places(corpus))
    answer.fails(2, "bo18_table3 further architecture model.listener.cell._target_")
    assert not (corpus / "runs").exists()


@pytest.mark.slow
def test_a_recipe_is_planned_trained_once_and_reported(two_rows: None, corpus: Path, las: Las) -> None:
    command = ("reproduce", "recipe=bo18_table3", "tier=smoke", *places(corpus))
    answer = las(*command, "dry_run=true").succeeds()
    assert answer.out.count("to do") == 2 and "2 to train" in answer.out
    assert not (corpus / "runs").exists() and not (corpus / "results").exists()

    answer = las(*command, "rows=[ln_encoder_only]", "dry_run=true")
    assert answer.out.count("to do") == 1 and "0 finished" in answer.out

    answer = las(*command).succeeds()
    assert "== 1 of" in answer.out and "C5: undecided" in answer.out
    written = sorted(path.name for path in (corpus / "results").iterdir())
    assert written == [
        *(f"bo18_table3-smoke-timit.{suffix}" for suffix in ("html", "hypotheses.xz", "json", "md")),
        "claims-smoke-timit.md",
        "claims.json",
    ]
    claims = json.loads((corpus / "results/claims.json").read_text())
    assert [claim["verdict"] for claim in claims if claim["claim"] == "C26"] == ["supported"]
    table = (corpus / "results" / "bo18_table3-smoke-timit.md").read_text()
    results = [json.loads(path.read_text()) for path in sorted((corpus / "runs").glob("*/timit/seed1-*/result.json"))]
    assert len(results) == 2
    rate = results[0]["splits"]["test"]["phone_error_rate"]
    assert re.search(rf"\| no layer norm \(1\)( †)? \| 26\.8 % \| 15,947 \| {100 * rate:.1f} % \|", table)
    assert re.search(rf" \| 1 \| [01] of 1 \| [12] \| {results[0]['steps_to_converge']} \|", table)
    assert "ours - paper" not in table
    assert all(each in table for each in ("A. Ben Othman", "Assumed at", "(1) from table"))
    assert "las reproduce recipe=bo18_table3 tier=smoke corpus=timit corpus.root=... corpus.partial=true" in table
    assert str(corpus) not in "".join(path.read_text("latin-1") for path in (corpus / "results").iterdir())

    answer = las(*command).succeeds("2 finished nothing")
    assert "== 1 of" not in answer.out
    answer = las(*command, "dry_run=true", "seeds=2")
    assert "2 to train" in answer.out and "at most" in answer.out


@pytest.mark.slow
def test_another_recipe_shares_rows_that_are_the_same(corpus: Path) -> None:
    found = {}
    for name in ("bo18_table1", "bo18_table3", "bo18_controls"):
        jobs = reproduction_jobs.jobs(recipe.read(name), "smoke", 1, Path("runs"), tiny.corpus(corpus))
        found[name] = {job.row.name: job.directory for job in jobs}
    for row, directory in found["bo18_table1"].items():
        assert found["bo18_table3"][row] == found["bo18_controls"][row] == directory
    assert len({path for rows in found.values() for path in rows.values()}) == 8  # six rows are in one alone


def test_a_training_that_breaks_is_a_result(
    two_rows: None, corpus: Path, las: Las, monkeypatch: pytest.MonkeyPatch
) -> None:
    perfect = ChanceLevel(1.0, 0.0, "")  # nothing is better: every training is broken on every machine
    monkeypatch.setattr(chance, "chance_level", lambda *given: perfect)
    command = ("reproduce", "recipe=bo18_table3", "tier=smoke", *places(corpus), "trainer.broken_after_epochs=0")
    las(*command).succeeds("diverged")
    table = (corpus / "results" / "bo18_table3-smoke-timit.md").read_text()
    assert "| broken |" in table and "| 1, 1 broken |" in table and "Broken:" in table
    page = (corpus / "results" / "bo18_table3-smoke-timit.html").read_text()
    assert "Diverged trainings" in page
    answer = las(*command, "dry_run=true")
    assert answer.out.count("broken") == 2 and "nothing" in answer.out


def test_a_report_without_results_is_a_message_and_no_empty_page(two_rows: None, corpus: Path, las: Las) -> None:
    answer = las("reproduce", "recipe=bo18_table3", "tier=smoke", "report=true", *places(corpus))
    answer.fails(3, "recipe=bo18_table3 smoke timit tier=smoke corpus=timit")
    assert not (corpus / "runs").exists() and not list((corpus / "results").glob("*"))


def test_a_report_of_stored_results_needs_no_run_folders(two_rows: None, corpus: Path, las: Las) -> None:
    numbers = {"test": 0.25, "steps_to_converge": 100.0}
    outcomes = tuple(Outcome(seed, 1, 100, "abc", "", numbers, None) for seed in (1, 2))
    lines = tuple(Line(name, name, outcomes) for name in ("baseline", "ln_encoder_only"))
    table = Table("bo18_table3", "smoke", "timit", "phone_error_rate", "las reproduce as it was", lines)
    stored = corpus / "results" / "bo18_table3-smoke-timit.json"
    results.write(table, stored)
    before = stored.read_text()
    answer = las("reproduce", "recipe=bo18_table3", "tier=smoke", "report=true", *places(corpus)).succeeds()
    assert str(stored) in answer.out.replace("\n", "") and stored.read_text() == before
    text = stored.with_suffix(".md").read_text()
    assert "las reproduce as it was" in text and "25.0 %" in text and "Holm" in text


@pytest.mark.slow
def test_rows_are_trained_at_the_same_time_by_joblib(
    two_rows: None, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In processes of their own, with the corpus prepared before and the cores shared out."""
    pytest.importorskip("joblib")
    asked: list[list[str]] = []
    monkeypatch.setattr(cli_prepare, "prepare", asked.append)
    monkeypatch.setattr(train_jobs, "train_unseen", only_tell)
    said: list[str] = []
    monkeypatch.setattr(train_jobs.progress, "say", said.append)
    jobs = reproduction_jobs.jobs(recipe.read("bo18_table3"), "smoke", 1, corpus / "runs", tiny.corpus(corpus))
    train_jobs.train(jobs, at_once=2)
    assert len(asked) == 1 and len(said) == 2
    told = ["name=baseline threads", "name=ln_encoder_only threads"]
    assert sorted(each.partition(": ")[2] for each in said) == told
    said.clear()
    jobs = reproduction_jobs.jobs(recipe.read("bo18_table3"), "smoke", 2, corpus / "runs", tiny.corpus(corpus))
    firsts, seconds = jobs[::2], jobs[1::2]
    begun = [dataclasses.replace(job, source=first) for job, first in zip(seconds, firsts, strict=True)]
    train_jobs.train([*begun, *firsts], at_once=2)
    assert [each.partition(": ")[2] for each in said] == [name for name in told for _ in range(2)]


def only_tell(overrides: Sequence[str], look_every: int | None, folders: Sequence[Path]) -> str:
    """What a training would be, for another process."""
    threads = any(each.startswith("trainer.threads=") for each in overrides)
    return f"{next(each for each in overrides if each.startswith('name='))} {'threads' if threads else ''}"


def test_without_joblib_more_than_one_at_once_is_refused(
    two_rows: None, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "joblib", None)
    jobs = reproduction_jobs.jobs(recipe.read("bo18_table3"), "smoke", 1, corpus / "runs", tiny.corpus(corpus))
    with pytest.raises(LasError, match=r"las-asr\[joblib\]"):
        train_jobs.train(jobs, at_once=2)


def test_a_process_of_its_own_speaks_to_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def train(overrides: list[str]) -> dict[str, object]:
        reproduce.progress.say("loud")
        raise NumericalError("the loss is NaN")

    monkeypatch.setattr(cli_train, "train", train)
    assert train_jobs.train_unseen(["name=x", "seed=1"], None, Surroundings.here()) == "name=x broken: the loss is NaN"
    assert capsys.readouterr().out == ""


def test_a_training_can_be_looked_at_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[list[str]] = []
    monkeypatch.setattr(train_jobs.analyze, "analyze", done.append)
    monkeypatch.setattr(cli_train, "train", lambda overrides: done.append(overrides) or BROKEN)
    assert train_jobs.train_one(["name=x", "seed=1"], look_every=50) == "name=x seed=1: broken at step 3: NaN"
    looks = ["what=[covariate_shift,smoothness]", "every=50", *train_jobs.COMMON_DISTANCES, "name=x", "seed=1"]
    assert done == [looks, ["name=x", "seed=1"]]


def test_a_recipe_may_measure_on_the_way_and_a_command_otherwise() -> None:
    assert reproduce.request(["recipe=smoothness"]).look_every == 100
    assert reproduce.request(["recipe=smoothness", "look_every=50"]).look_every == 50
    assert reproduce.request(["recipe=bo18_table3"]).look_every is None


BROKEN = {"seed": 1, "steps": 3, "broken": "NaN"}


@pytest.mark.slow
@pytest.mark.parametrize("name", recipe.names())
def test_every_recipe_passes_smoke(name: str, smoke_root: Path, las: Las) -> None:
    """Each row trains, decodes and scores; rows that recipes share are trained once for all of them."""
    las("reproduce", f"recipe={name}", "tier=smoke", *places(smoke_root)).succeeds()
    table = json.loads((smoke_root / "results" / f"{name}-smoke-timit.json").read_text())
    for line in table["lines"]:
        assert line["outcomes"], line["name"]
        for outcome in line["outcomes"]:
            assert outcome["broken"] == "" and outcome["values"]["test"] >= 0, line["name"]
    assert [line["name"] for line in table["lines"]] == [row.name for row in recipe.read(name).rows]


@pytest.fixture(scope="module")
def smoke_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One prepared corpus for all recipes."""
    return tiny.tree(tmp_path_factory.mktemp("smoke"))


@pytest.mark.slow
def test_seeds_are_added_until_the_hours_are_used_up(two_rows: None, corpus: Path, las: Las) -> None:
    tiny_rows = [*tiny.MODEL, *tiny.SHORT, *tiny.QUICK, "schedule=constant", "optim.lr=0.01"]
    command = ("reproduce", "recipe=bo18_table3", "tier=open", *places(corpus), *tiny_rows, "until=decided")
    answer = las(*command, "hours=0.0001").succeeds()
    assert "hours are over" in answer.out
    begun = sorted(path.parent.name for path in (corpus / "runs").glob("*/timit/*/result.json"))
    assert len(begun) == 2 and all(name.startswith("seed1-") for name in begun)
    assert (corpus / "results/bo18_table3-open-timit.json").is_file()
    again = las(*command, "hours=0.0")
    assert again.code == 0 and "== 1 of" not in again.out, "nothing is trained twice"
