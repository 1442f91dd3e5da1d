"""Signals are noted between updates; SLURM is asked once to queue the job again."""

import os
import signal
from pathlib import Path

import pytest

from las import interruption
from las.interruption import Signals


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 75), (signal.SIGUSR1, 75), (signal.SIGINT, 130)], ids=lambda value: str(value)
)
def test_a_signal_is_noted_and_the_handlers_come_back(number: signal.Signals, code: int) -> None:
    before = [signal.getsignal(each) for each in interruption.WATCHED]
    with Signals() as signals:
        assert signals.received is None
        os.kill(os.getpid(), number)
        assert signals.received == number and signals.exit_code == code
    assert [signal.getsignal(each) for each in interruption.WATCHED] == before


def test_a_second_ctrl_c_stops_at_once_and_other_signals_wait() -> None:
    with Signals() as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        assert signals.received == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def slurm(folder: Path, monkeypatch: pytest.MonkeyPatch, exit_code: int) -> Path:
    """A job whose scontrol notes what it was asked."""
    asked = folder / "asked"
    command = folder / "scontrol"
    command.write_text(f"#!/bin/sh\necho $@ >> {asked}\necho no such job >&2\nexit {exit_code}\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    return asked


def test_a_slurm_job_is_queued_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = slurm(tmp_path, monkeypatch, 0)
    assert interruption.requeue() == "SLURM queued job 4711 again"
    assert asked.read_text() == "requeue 4711\n"


def test_a_slurm_that_refuses_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm(tmp_path, monkeypatch, 1)
    assert interruption.requeue() == (
        "SLURM did not queue job 4711 again (no such job): start it with the same command"
    )


def test_outside_slurm_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert interruption.requeue() == ""
