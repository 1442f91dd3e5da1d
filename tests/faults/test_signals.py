"""Signals where no update is computed: while a corpus is prepared, before step 1, in decoding and transcribing.

They end the command at once, with the documented code and without a traceback, and the same command does all of it.
"""

import itertools
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from console import Las
from interrupted_trainings import require_same
from tiers import rest_slow
from tiny import overrides, steps

from las.cli import main, train
from las.data import manifest
from las.data.audio import worker_pool
from las.data.synthesis import rendering
from las.decoding.search import GreedySearch
from las.training import data_preparation

pytestmark = pytest.mark.usefixtures("interruptible")

CODES = [(signal.SIGTERM, 75), (signal.SIGUSR1, 75), (signal.SIGINT, 130)]
ONE_SIGNAL = pytest.mark.parametrize(("number", "code"), rest_slow(CODES), ids=str)


def stopped(las: Las, owner: Any, name: str, at: int, how: tuple[signal.Signals, int], *command: str) -> None:
    """A command that gets a signal when a function is called for the so-manieth time."""
    original, count, (number, code) = getattr(owner, name), iter(range(1, 1000)), how

    def called(*args: Any, **options: Any) -> Any:
        if next(count) == at:
            os.kill(os.getpid(), number)
        return original(*args, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(owner, name, called)
        answer = las(*command)
    assert answer.code == code, answer
    assert answer.err.lstrip().startswith(f"las {command[0]}: stopped") and main.VERBS[command[0]].again in answer.err
    assert number == signal.SIGINT or number.name in answer.err


def content(folder: Path) -> dict[str, list[bytes]]:
    """The lines of every file below a folder, in no order: audio is read by threads."""
    return {str(path.relative_to(folder)): sorted(path.read_bytes().splitlines()) for path in folder.rglob("*.json*")}


@ONE_SIGNAL
@pytest.mark.parametrize(
    ("owner", "name", "at"),
    [(worker_pool, "run_in_worker", 3), (manifest, "write", 2)],
    ids=["audio", "lists"],
)
def test_while_a_corpus_is_prepared(
    owner: Any, name: str, at: int, number: signal.Signals, code: int, corpus: Path, las: Las
) -> None:
    quiet, mine = ([*overrides(corpus), f"data_dir={corpus / each}"] for each in ("quiet", "mine"))
    assert las("prepare", *quiet).code == 0
    stopped(las, owner, name, at, (number, code), "prepare", *mine)
    for path in (corpus / "mine").rglob("*.jsonl"):
        assert all(json.loads(line) for line in path.read_text().splitlines()), "half a line"
    assert las("prepare", *mine).code == 0
    assert content(corpus / "mine") == content(corpus / "quiet")


@ONE_SIGNAL
def test_while_a_corpus_is_synthesised(number: signal.Signals, code: int, tmp_path: Path, las: Las) -> None:
    sizes = [f"corpus.{split}_utterances={count}" for split, count in (("train", 4), ("dev", 1), ("test", 1))]
    sizes += [f"corpus.{split}_speakers=1" for split in ("train", "dev", "test")]
    command = ["prepare", "corpus=synthetic", *sizes]
    assert las(*command, f"data_dir={tmp_path / 'quiet'}").code == 0
    mine = [*command, f"data_dir={tmp_path / 'mine'}"]
    stopped(las, rendering, "make", 3, (number, code), *mine)
    (record,) = (tmp_path / "mine").rglob("corpus.json")
    assert "utterances" not in json.loads(record.read_text()), "believed to be whole"
    assert las(*mine).code == 0
    records = [next((tmp_path / each).rglob("corpus.json")).read_bytes() for each in ("quiet", "mine")]
    assert records[0] == records[1]


def test_a_job_of_slurm_is_queued_again_before_the_first_step(
    corpus: Path, las: Las, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, scontrol = corpus / "asked", corpus / "scontrol"
    scontrol.write_text(f"#!/bin/sh\necho $@ >> {asked}\n")
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{corpus}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setattr(data_preparation, "filter_training_utterances", lambda *_: os.kill(os.getpid(), signal.SIGUSR1))
    las("train", *overrides(corpus)).fails(75, "SLURM queued job 7")
    assert asked.read_text() == "requeue 7\n"


@ONE_SIGNAL
def test_a_long_validation_is_broken_off_and_made_up(
    number: signal.Signals, code: int, trained: Path, tmp_path: Path, las: Las
) -> None:
    """The step is saved, and the run ends with the bits of one that nobody disturbed."""
    search, calls, late = GreedySearch.__call__, itertools.count(1), 60.0

    def slow(self: GreedySearch, *given: Any) -> Any:
        if next(calls) == 2:  # in the second validation, of the last step
            os.kill(os.getpid(), number)
            began = time.monotonic()
            while time.monotonic() - began < late:
                time.sleep(0.01)
        return search(self, *given)

    mine = ["train", *overrides(trained), f"run_dir={tmp_path / 'run'}"]
    began = time.monotonic()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(GreedySearch, "__call__", slow)
        answer = las(*mine)
    assert answer.code == code and "step 4" in answer.err and time.monotonic() - began < late
    assert [line["step"] for line in steps(tmp_path / "run") if line["event"] == "validation"] == [2]
    assert las(*mine).code == 0
    require_same(tmp_path / "run", trained / "run")


@ONE_SIGNAL
def test_while_a_finished_training_is_decoded(
    number: signal.Signals, code: int, trained: Path, trained_copy: Path, las: Las
) -> None:
    result = (trained_copy / "result.json").read_text()
    (trained_copy / "result.json").unlink()
    for path in trained_copy.glob("hypotheses.*"):
        path.unlink()
    mine = ["train", *overrides(trained), f"run_dir={trained_copy}"]
    stopped(las, train, "decode_split", 2, (number, code), *mine)
    assert [path.name for path in trained_copy.glob("hypotheses.*")] == ["hypotheses.dev.jsonl"]
    assert not (trained_copy / "result.json").exists() and not (trained_copy / "lock.json").exists()
    assert las(*mine).code == 0
    assert (trained_copy / "result.json").read_text() == result


@ONE_SIGNAL
@pytest.mark.parametrize(("given", "count"), [("split=test", 2), ("audio={0}/TIMIT/TEST", 4)])
def test_while_speech_is_decoded(
    given: str, count: int, number: signal.Signals, code: int, trained: Path, tmp_path: Path, las: Las
) -> None:
    """What an earlier command has written is there until the new one is whole."""
    output = tmp_path / "decoded.jsonl"
    mine = ["decode", f"checkpoint={trained / 'run'}", given.format(trained), f"data_dir={trained / 'data'}"]
    mine += [f"output={output}", "search=greedy"]
    output.write_text("of before\n")
    stopped(las, GreedySearch, "__call__", 1, (number, code), *mine)
    assert output.read_text() == "of before\n" and os.listdir(tmp_path) == ["decoded.jsonl"]
    assert las(*mine).code == 0
    assert len(output.read_text().splitlines()) == count


def test_while_recordings_are_transcribed(trained: Path, tmp_path: Path, las: Las) -> None:
    mine = ["transcribe", f"checkpoint={trained / 'run'}", f"input={trained / 'TIMIT/TEST'}", "format=jsonl"]
    mine += ["search=greedy", f"output={tmp_path / 'out'}", "batch_size=1"]
    stopped(las, GreedySearch, "__call__", 3, CODES[0], *mine)
    before = content(tmp_path / "out")
    assert las(*mine).code == 0
    after = content(tmp_path / "out")
    assert len(before) < len(after) == 4 and before.items() <= after.items()
