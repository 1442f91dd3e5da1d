"""Processes that read audio are killed, stopped, crash or cannot start: the same training, or the file is named."""

import ctypes
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import soundfile
from faults import Tally, Training, sizes

from las.data.audio import files, worker_pool
from las.data.manifest import Utterance
from las.data.quality import AudioScanCache
from las.runtime.errors import DataError, LasError

RATE = 16000


def strike(strikes: dict[int, str]) -> None:
    """The readers of this process suffer at requests with these numbers, counted over all of them."""
    ask, count = worker_pool.AudioWorker.ask, iter(range(1_000_000))

    def asked(self: worker_pool.AudioWorker, what: str, function: Callable[..., object], *arguments: object) -> object:
        how = strikes.get(next(count))
        if how == "SIGSEGV":
            return ask(self, what, ctypes.string_at, 0)
        if how is not None:
            os.kill(self.process.pid, signal.Signals[how])
        return ask(self, what, function, *arguments)

    worker_pool.AudioWorker.ask = asked


HOW = ("SIGKILL", "SIGSTOP", "SIGSEGV")


@pytest.mark.parametrize("count", sizes(3, 51, first=1))
def test_a_reader_that_is_lost_is_replaced(count: int, quiet: Training, tmp_path: Path, tally: Tally) -> None:
    """In trainings with one worker: while the corpus is checked, in epochs, in validations and at the end."""
    draw = random.Random(12)
    for index in range(count):
        how, number = HOW[index % 3], draw.randrange(24)
        with tally.training(quiet, tmp_path, (how, number)) as training:
            said = training.ends(0, partial(strike, {number: how}))
            says = "sign of life" if how == "SIGSTOP" else f"killed by {how}"
            assert said.count(says) == 1 and said.count("process that read") == 1, said
            training.require_same(quiet)
    tally.close("F12 a process that reads audio killed, stopped, crashed: replaced, the file read again")


def noise(path: Path, seconds: float = 0.5) -> Utterance:
    soundfile.write(path, np.random.default_rng(0).uniform(-0.5, 0.5, round(seconds * RATE)), RATE)
    return Utterance(path.stem, str(path), 0, 0.0, seconds, "a", "s")


def test_a_file_that_kills_three_readers_is_at_fault(tmp_path: Path, monkeypatch, capsys) -> None:
    utterances = [noise(tmp_path / f"{name}.wav") for name in "abc"]
    ask = worker_pool.AudioWorker.ask

    def asked(self: worker_pool.AudioWorker, what: str, function: Callable[..., object], *arguments: object) -> object:
        return ask(self, what, *((ctypes.string_at, 0) if what.endswith("b.wav") else (function, *arguments)))

    monkeypatch.setattr(worker_pool.AudioWorker, "ask", asked)
    found = AudioScanCache().read(utterances, 2, "files")
    bad = found[utterances[1].audio]
    assert isinstance(bad, DataError) and bad.kind == "kills its reader"
    assert "b.wav: " in str(bad) and "failed 3 times" in str(bad)
    assert capsys.readouterr().out.count("killed by SIGSEGV\n") == 3
    assert found[utterances[0].audio].sounds.keys() == found[utterances[2].audio].sounds.keys()


def test_what_is_raised_there_is_raised_here_and_neither_that_nor_a_signal_ends_a_reader(tmp_path: Path) -> None:
    utterance = noise(tmp_path / "x.wav")
    first = worker_pool.run_in_worker("x", os.getpid)
    with pytest.raises(DataError, match="16000 Hz") as caught:
        worker_pool.run_in_worker("x", files.load, utterance.audio, 0, 0.0, 0.1, 8000)
    assert caught.value.kind == "sample rate"
    assert np.array_equal(worker_pool.run_in_worker("x", files.load, utterance.audio), files.load(utterance.audio))
    assert os.getpgid(first) != os.getpgid(0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):  # what asks its parent to stop
        os.kill(first, number)
    assert worker_pool.run_in_worker("x", os.getpid) == first != os.getpid()


def test_readers_that_end_while_they_wait_are_no_file_s_fault(monkeypatch, capsys) -> None:
    waiting = [worker_pool.AudioWorker() for _ in range(worker_pool.TRIES + 1)]
    monkeypatch.setattr(worker_pool, "_idle", waiting)
    for each in waiting[1:]:
        each.process.kill()
        each.process.wait()
    assert worker_pool.run_in_worker("x", os.getpid) == waiting[0].process.pid
    assert capsys.readouterr().out == ""
    waiting[0].close()


@pytest.mark.slow
def test_a_slow_file_is_waited_for_and_named(monkeypatch, capsys) -> None:
    monkeypatch.setattr(worker_pool, "SILENT_BEATS", 2)
    monkeypatch.setattr(worker_pool, "SLOW_S", 1.0)
    worker_pool.run_in_worker("slow.wav", time.sleep, 3.0)
    out = capsys.readouterr().out
    assert "slow.wav: still being read" in out and "no sign" not in out


def test_a_reader_that_does_not_start_says_so(monkeypatch) -> None:
    monkeypatch.setattr(worker_pool, "_idle", [])
    for program, says in (("/bin/false", r"ended with 1.*las doctor"), ("/nowhere/python", "No such file")):
        monkeypatch.setattr(worker_pool.sys, "executable", program)
        with pytest.raises(LasError, match=f"does not start: .*{says}"):
            worker_pool.run_in_worker("x", os.getpid)


@pytest.mark.slow
def test_a_reader_ends_quietly_with_its_parent() -> None:
    """Idle, and in the middle of a file."""
    for seconds in (0.0, 2.0):
        script = (
            "import os, signal, threading, time; from las.data.audio import worker_pool as reader\n"
            "reader.run_in_worker('x', os.getpid)\n"
            f"threading.Thread(target=reader.run_in_worker, args=('x', time.sleep, {seconds})).start()\n"
            "time.sleep(0.7); os.kill(os.getpid(), signal.SIGKILL)"
        )
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as parent:
            _, said = parent.communicate(timeout=60)  # the reader holds its end of stderr until it has ended
        assert parent.returncode == -signal.SIGKILL and said == b""
