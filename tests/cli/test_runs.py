"""`las runs`: the list in every format, two runs compared, trainings followed; wrong keys and damaged runs are said."""

import csv
import json
import re
import shutil
import time
from pathlib import Path

import pytest
from console import Answer, Las
from rich.console import Console

from las.cli import runs
from las.runtime import progress
from las.storage import atomic, run_summary


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three finished runs, one stopped, one damaged, in `runs` of the working directory."""
    monkeypatch.chdir(tmp_path)
    for name, seed, test in (("baseline", 1, 0.3), ("ln_both", 1, 0.1), ("ln_both", 2, 0.2)):
        run = tmp_path / f"runs/{name}/an4/seed{seed}"
        run.mkdir(parents=True)
        split = {"wer": test, "interval": [test - 0.05, test + 0.05]}
        result = {"name": name, "corpus": "an4", "seed": seed, "steps": 500, "parameters": 12345, "commit": "abc"}
        atomic.write_json(run / "result.json", result | {"splits": {"dev": split, "test": split}})
        atomic.write_json(run / "config.json", {"name": name, "trainer": {"max_steps": 500}})
        (run / "metrics.jsonl").write_text('{"time": 10.0, "event": "x"}\n{"time": 100.0, "event": "x"}\n')
    stopped = tmp_path / "runs/stopped"
    stopped.mkdir()
    atomic.write_json(stopped / "config.json", {"name": "stopped", "seed": 4, "trainer": {"max_steps": 500}})
    (stopped / "metrics.jsonl").write_text('{"time": 1.0, "event": "train", "step": 20, "loss": 1.5}\n')
    (tmp_path / "runs/bad").mkdir()
    (tmp_path / "runs/bad/result.json").write_text("{")
    return tmp_path / "runs"


def folders(answer: Answer) -> list[str]:
    assert (answer.code, answer.err) == (0, ""), answer
    return [str(run["folder"]).removeprefix("runs/") for run in json.loads(answer.out)]


def test_the_list(folder: Path, las: Las) -> None:
    lines = las("runs").out.splitlines()
    assert lines[0].split() == list(runs.COLUMNS)
    line = next(line for line in lines if line.endswith("runs/ln_both/an4/seed2"))
    assert line.split("  ")[0] == "ln_both"
    assert "500  WER 20.0 % [15.0, 25.0]  WER 20.0 % [15.0, 25.0]      12,345      1.5  abc" in line
    assert "20 of 500" in next(line for line in lines if line.endswith("runs/stopped"))
    assert lines[-2].startswith("runs/bad: config.json: missing") and lines[-1] == "5 runs"
    assert las("runs", "runs/ln_both/an4/seed1").out.endswith("\n1 run\n")


def test_sorting_and_filtering(folder: Path, las: Las) -> None:
    ordered = ["ln_both/an4/seed1", "ln_both/an4/seed2", "baseline/an4/seed1"]
    without = ["bad", "stopped"]
    assert folders(las("runs", "sort=test", "format=json")) == ordered + without
    assert folders(las("runs", "sort=-test", "format=json")) == ordered[::-1] + without
    for condition, expected in (
        ("test<25", ordered[:2]),
        ("test<=20,seed=2", ordered[1:2]),
        ("[name=ln_*,seed!=2]", ordered[:1]),
        ("state=stopped", ["stopped"]),
        ("name!=ln_both,test>=0", ordered[2:]),
        ("folder=*seed1", [ordered[2], ordered[0]]),
    ):
        assert folders(las("runs", f"filter={condition}", "format=json")) == expected, condition


def test_formats(folder: Path, las: Las) -> None:
    data = json.loads(las("runs", "format=json").out)
    rows = list(csv.DictReader(las("runs", "format=csv").out.splitlines()))
    assert [row["folder"] for row in rows] == [run["folder"] for run in data]
    best = next(row for row in rows if row["folder"].endswith("ln_both/an4/seed1"))
    assert (best["test_metric"], best["test"], best["test_low"], best["minutes"]) == ("wer", "0.1", "0.05", "1.5")
    assert next(run for run in data if run["state"] == "damaged")["problem"].endswith(")")
    table = las("runs", "format=md").out.splitlines()
    assert table[0].startswith("| name | corpus |") and table[1].startswith("| --- |")
    assert {line.count("|") for line in table[: 2 + len(data)]} == {len(runs.COLUMNS) + 1}


MISTAKES = {
    "sort=tset": "'tset' test",
    "filter=sed=1": "'sed' seed",
    "filter=test~1": "filter=test~1 'test<8'",
    "filter=test<low": "test number: 'test<10'",
    "filter=name<a": "name 'name=...'",
    "format=xml": "format=xml table, csv,",
    "sorted=test": "'sorted' sort",
    "runs others": "one folder las runs",
    "rnus": "rnus: folder. runs",
    "watch every=0": "every=0",
    "compare=[a]": "compare=[a] two",
    "compare=[runs,runs/bad]": "5 runs/bad,",
    "compare=[runs/bad,runs/stopped]": "config.json missing:",
}


@pytest.mark.parametrize("given", MISTAKES)
def test_mistakes(given: str, folder: Path, las: Las) -> None:
    answer = las("runs", *given.split()).fails(2, f"las runs: {MISTAKES[given]}")
    assert answer.out == ""
    (folder.parent / "empty").mkdir()
    las("runs", "empty").fails(3, "empty: no runs")


@pytest.fixture
def two(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two finished runs, the second with another name, learning rate and hypotheses."""
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        shutil.copytree(trained / "run", name)
    config = json.loads(Path("two/config.json").read_text())
    config["name"], config["optim"]["lr"] = "<two>", 0.5
    atomic.write_json(Path("two/config.json"), config)
    result = json.loads(Path("two/result.json").read_text()) | {"name": "<two>"}
    atomic.write_json(Path("two/result.json"), result)
    path = Path("two/hypotheses.test.jsonl")
    path.write_text(re.sub(r'"text": "[^"]*"', '"text": "sil"', path.read_text()))
    return ["runs", "compare=[one,two]"]


def test_two_runs_are_compared(two: list[str], las: Las) -> None:
    answer = las(*two).succeeds_quietly()
    lines = answer.out.splitlines()
    assert "-> <two>: " in lines[0]
    changed = [line.split(":")[0].strip() for line in lines[1:3]]
    assert changed == ["name", "optim.lr"] and lines[2].endswith("-> 0.5")
    assert "test:" in lines and "dev:" in lines and "McNemar" in answer.out
    assert lines[-1].endswith(": runs_compared.html")
    page = Path("runs_compared.html").read_text()
    assert "<td>optim.lr</td>" in page and "&lt;two&gt;" in page and "<two>" not in page
    assert page.count("<figure") == 4 and "Wilcoxon" in page and "http" not in page.replace("http-equiv", "")
    rate = json.loads(Path("one/result.json").read_text())["splits"]["test"]["phone_error_rate"]
    assert f"<td>{100 * rate:.2f}</td>" in page


def test_different_test_sets_and_runs_without_an_end(two: list[str], las: Las) -> None:
    path = Path("two/references.test.jsonl")
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:-1]) + "\n")
    reason = f"{len(lines)} and {len(lines) - 1} utterances"
    assert re.search(f"test: no significance.*{reason}", las(*two, "page=x.html").out)
    assert reason in Path("x.html").read_text()
    path.write_text("\n".join(lines).replace("sil", "aa") + "\n")
    assert "with another transcript" in las(*two).out
    path.unlink()
    assert "no references.test.jsonl" in las(*two).out
    for file in (*Path("two").glob("hypotheses.*"), Path("two/result.json")):
        file.unlink()
    assert "no split" in las(*two).out
    Path("two/metrics.jsonl").write_text("")
    answer = las(*two)
    assert answer.code == 0 and "<figure" in Path("runs_compared.html").read_text()
    Path("two/metrics.jsonl").write_text("broken\n")
    las(*two).fails(5, "two/metrics.jsonl:1: damaged")


def test_trainings_are_followed_until_they_end(folder: Path, las: Las, monkeypatch: pytest.MonkeyPatch) -> None:
    assert las("runs", "watch").out.startswith("nothing trains")
    alive = {"stopped"}
    monkeypatch.setattr(run_summary.lock, "holder_lives", lambda run: run.name in alive)
    looks: list[float] = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 2:
            with (folder / "stopped/metrics.jsonl").open("a") as file:
                file.write('{"time": 61.0, "event": "train", "step": 250, "loss": 0.5}\n')
        if len(looks) == 3:
            alive.clear()

    monkeypatch.setattr(time, "sleep", sleep)
    lines = las("runs", "watch", "every=0.5").out.splitlines()
    assert looks == [0.5, 0.5, 0.5]
    assert lines == [
        "runs/stopped  training  20 of 500  1.500      ",
        "runs/stopped  training  250 of 500  0.500    1.0  1:00",
        "runs/stopped  stopped  250 of 500  0.500    1.0  ",
    ]
    alive.add("stopped")
    looks.clear()
    terminal = Console(force_terminal=True, width=120, record=True)
    monkeypatch.setattr(progress, "console", terminal)
    runs.watch(folder, 0.1)
    assert "250 of 500" in terminal.export_text()
