"""Summaries of runs: states, minutes without pauses, last events, and damaged files that are named."""

import itertools
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from las.reproduction import jobs
from las.reproduction.convergence import Curve
from las.storage import lock, run_summary
from las.storage.run_directory import RunDirectory
from las.storage.run_summary import Measure

RESULT = {"name": "a", "corpus": "timit", "seed": 3, "steps": 7, "parameters": 9, "commit": "c", "splits": {}}
CONFIG = {"name": "a", "corpus": {"name": "timit", "tokens": {"_target_": "las.Phones"}}, "seed": 3}


def write(folder: Path, times: Sequence[float] = (), **files: Any) -> Path:
    """A run folder with these JSON files, and an event at each of these times."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in {"config": CONFIG | {"trainer": {"max_steps": 9}}, **files}.items():
        (folder / f"{name}.json").write_text(content if isinstance(content, str) else json.dumps(content))
    events = [{"time": time, "event": "train", "step": step, "loss": 1.0} for step, time in enumerate(times, start=1)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return folder


def test_states(tmp_path: Path) -> None:
    for state, entries in (("finished", {}), ("broken", {"broken": "NaN"})):
        assert run_summary.read(write(tmp_path / state, result=RESULT | entries)).state == state
    stopped = write(tmp_path / "stopped", [1.0])
    assert run_summary.read(stopped).state == "stopped"
    with lock.held(stopped):
        assert run_summary.read(stopped).state == "training"


def test_the_last_validation_counts_before_there_is_a_result(tmp_path: Path) -> None:
    write(tmp_path, [1.0, 2.0])
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"time": 3.0, "event": "validation", "step": 2, "dev_loss": 1.0, "dev_error": 0.5}\n')
        for step in range(3, 500):  # more than is read from the end at first
            file.write(json.dumps({"time": step, "event": "train", "step": step, "loss": 0.5, "x": "y" * 60}) + "\n")
        file.write('{"time": 501.0, "event": "tr')  # being written now
    run = run_summary.read(tmp_path)
    assert run.dev == Measure("phone_error_rate", 0.5) and (run.step, run.loss) == (499, 0.5)
    assert run.minutes == 498 / 60


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("result.json", "{", "Expecting property name"),
        ("result.json", "[1]", "not a JSON"),
        ("config.json", b"\xff\xfe\x00", ""),
        ("metrics.jsonl", "no json\n", "byte 0"),
        ("metrics.jsonl", '{"time": 1, "event": "train", \n', ""),
        ("environment.json", "", ""),
        ("result.json", '{"splits": 3, "steps": 1, "commit": null}', "splits is 3"),
        ("result.json", '{"splits": {}, "steps": [], "name": 4}', "steps is list"),
        ("result.json", '{"splits": {"dev": 7}, "steps": 1}', "splits.dev"),
        ("result.json", '{"splits": {}, "steps": 1, "commit": null, "seed": null}', None),
    ],
)
def test_damaged_files_are_named(name: str, content: str | bytes, says: str | None, tmp_path: Path) -> None:
    write(tmp_path, environment={})
    (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    run = run_summary.read(tmp_path)
    if says is None:
        assert (run.problem, run.state) == ("", "stopped" if run.step is None else "finished")
    else:
        assert run.state == "damaged" and run.problem.startswith(f"{name}: damaged") and says in run.problem


@given(st.lists(st.integers(-9000, 900), min_size=1, max_size=40))
def test_minutes_are_those_of_all_events_and_never_negative_where_the_clock_was_set(gaps: list[int]) -> None:
    """Also of gaps that are all positive, where the summary and the events agree to the second."""
    for signed in (gaps, [abs(gap) % 900 for gap in gaps]):
        times = [max(0.0, 10_000.0 + time) for time in itertools.accumulate(signed)]
        events = [{"time": time, "event": "validation", "step": 1, "dev_error": 1.0, "dev_loss": 1.0} for time in times]
        seconds = jobs.seconds(events)
        assert seconds == sum(gap for gap in (b - a for a, b in itertools.pairwise(times)) if 0 < gap <= 600)
        curve = Curve.of(events)
        assert curve is not None and list(curve.seconds) == sorted(curve.seconds) and curve.seconds[-1] == seconds
        with tempfile.TemporaryDirectory() as folder:
            run = run_summary.read(write(Path(folder), times, result=RESULT))
        assert run.minutes is None or run.minutes >= 0
    assert run.minutes is None if len(times) < 2 else run.minutes == pytest.approx(seconds / 60)


def test_times_of_a_process_go_on_when_its_clock_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"run_dir": str(tmp_path), "name": "a", "corpus": {"name": "timit"}, "trainer": {}}
    run = RunDirectory(config)
    run.record(event="train", step=1, loss=1.0)
    monkeypatch.setattr(time, "time", lambda: 1.0)
    run.record(event="train", step=2, loss=1.0)
    first, second = (event["time"] for event in run.metrics())
    assert 0 <= second - first < 60
