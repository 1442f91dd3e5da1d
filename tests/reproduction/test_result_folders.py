"""Results go below the working directory; what the project has trained is read first and only a checkout changes it."""

import dataclasses
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from console import Answer
from places import REPOSITORY
from trained_tables import table

from las.cli import reproduce
from las.reproduction import jobs, recipe, result_folders, results
from las.runtime.errors import ConfigError, StorageError
from las.storage import run_records

Las = Callable[..., Answer]
OWN = Path("recipes/results")


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package as a wheel installs it, and a working directory beside it."""
    package = tmp_path / "site-packages/las"
    (package / OWN).mkdir(parents=True)
    for path in (REPOSITORY / "recipes").glob("[!r]*"):
        (package / "recipes" / path.name).symlink_to(path)
    monkeypatch.setattr(recipe, "directory", lambda: package / "recipes")
    monkeypatch.setattr(recipe, "__file__", str(package / "reproduction/recipe.py"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return package


def test_results_go_below_the_working_directory(wheel: Path) -> None:
    assert reproduce.request(["recipe=bo18_table1"]).results == Path("results")
    for given in (
        "recipes/results",
        "recipes/results/in_progress",
        str(wheel / OWN),
        str(wheel),
        "../site-packages/las/x",
    ):
        with pytest.raises(ConfigError, match="results_dir="):
            result_folders.writable(given)
    assert result_folders.writable("mine/results") == Path("mine/results")


def test_the_project_itself_writes_beside_its_recipes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(REPOSITORY)
    for given in (str(OWN), str(OWN / "in_progress"), str(REPOSITORY / OWN)):
        assert result_folders.writable(given) == Path(given)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="results_dir=recipes/results"):
        result_folders.writable(str(OWN))


def test_what_the_project_has_trained_is_not_trained_again(wheel: Path, las: Las) -> None:
    given = ["recipe=bo18_table1", "tier=smoke", "corpus=timit", "corpus.root=x"]
    rows = jobs.jobs(recipe.read("bo18_table1"), "smoke", 1, Path("runs"), given[2:])
    made = table({row.row.name: (0.1,) for row in rows}, tier="smoke", name="bo18_table1")
    lines = [
        dataclasses.replace(line, outcomes=(dataclasses.replace(line.outcomes[0], digest=job.digest),))
        for line, job in zip(made.lines, rows, strict=True)
    ]
    stored = dataclasses.replace(made, corpus="timit", lines=tuple(lines))
    results.write(stored, wheel / OWN / f"{stored.stem}.json")
    before = {path: path.read_bytes() for path in wheel.rglob("*") if path.is_file() and not path.is_symlink()}
    answer = las("reproduce", *given, "report=true")
    assert answer.code == 0 and answer.out.count("finished elsewhere") == len(rows), answer
    assert "written to results" in answer.out
    written = json.loads(Path(f"results/{stored.stem}.json").read_text())
    assert [len(line["outcomes"]) for line in written["lines"]] == [1] * len(rows)
    assert "C1: " in answer.out and Path("results/claims.json").exists()
    assert {path: path.read_bytes() for path in wheel.rglob("*") if path.is_file() and not path.is_symlink()} == before


def test_damaged_runs_are_listed_with_the_others_before_anything_is_trained(wheel: Path, las: Las) -> None:
    given = ["recipe=bo18_table1", "tier=smoke", "corpus=timit", "corpus.root=x"]
    job, *others = jobs.jobs(recipe.read("bo18_table1"), "smoke", 1, Path("runs"), given[2:])
    job.directory.mkdir(parents=True)
    (job.directory / "result.json").write_text('{"steps": []}')
    answer = las("reproduce", *given, "dry_run=true")
    assert answer.code == 5 and "1 trainings" in answer.err
    assert (
        answer.out.count("│ damaged") == 1 and answer.out.count("to do") == len(others) and " 0 finished" in answer.out
    )
    assert f"\n{job.directory}/result.json: damaged (steps" in answer.out


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("metrics.jsonl", "[1]\n", "metrics.jsonl:1: damaged"),
        ("result.json", '{"steps": 1, "splits": {"dev": {"perplexity": 2}}}', "of dev)"),
        ("analysis/smoothness.jsonl", '{"common": true}\n', "KeyError('gradient')"),
    ],
)
def test_files_of_a_run_that_a_table_reads(name: str, content: str, says: str, tmp_path: Path) -> None:
    job = jobs.Job(recipe.read("bo18_table1").rows[0], 1, 1, (), {}, tmp_path)
    assert results.fault(job) == ""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(content)
    assert says in results.fault(job)


@pytest.mark.parametrize("content", ["{}", '{"lines": 3}', '{"lines": [{}]}', "[" * 9999, '{"lines": [], "x": 1}'])
def test_a_damaged_table_is_named(content: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(StorageError, match=r"x\.json: .*damaged"):
        results.read(tmp_path / "x.json")


def test_the_time_left_is_by_the_speed_of_the_row_and_each_training_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds_of = {"baseline": 10, "ln_encoder_only": 30}  # of 60 updates
    read = Counter[Path]()

    def events(folder: Path) -> list[dict[str, float]]:
        read[folder] += 1
        taken = seconds_of.get(folder.parts[-3], 0) if folder.name.startswith("seed1") else 0
        return [{"time": time, "step": 6 * time * 10 / taken} for time in range(taken + 1)] if taken else []

    monkeypatch.setattr(run_records, "events", events)
    of_all = jobs.jobs(recipe.read("bo18_table3"), "smoke", 3, tmp_path, ())
    finished = [job for job in of_all if job.row.name in seconds_of and job.seed == 1]
    waiting = [job for job in of_all if job not in finished]
    needed = jobs.expected(waiting, finished)
    speeds = {"baseline": 6.0, "ln_encoder_only": 2.0}
    assert needed == {job.directory: job.max_steps / speeds.get(job.row.name, 4.0) for job in waiting}
    assert max(read.values()) == 1 and len(read) == len(of_all)
    assert set(jobs.expected(waiting, []).values()) == {None}
