"""Signals are noted between updates and end anything else at once; SLURM is asked once to queue the job again."""

import os
import signal
from pathlib import Path

import pytest

from las.runtime.signals import CLUSTER_SIGNALS, HANDLED_SIGNALS, Signals, Stopped, at_once, requeue

pytestmark = pytest.mark.usefixtures("interruptible")


@pytest.mark.parametrize("number", HANDLED_SIGNALS, ids=lambda value: value.name)
def test_what_nobody_answered_is_answered_outside(number: signal.Signals) -> None:
    expected = KeyboardInterrupt if number == signal.SIGINT else Stopped
    with at_once(), pytest.raises(expected) as raised, Signals():
        os.kill(os.getpid(), number)
        noted = True
    assert noted and type(raised.value) is expected


def test_a_second_ctrl_c_stops_at_once_and_other_signals_wait() -> None:
    with pytest.raises(KeyboardInterrupt), Signals() as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        assert signals.received == signal.SIGINT
        os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("number", CLUSTER_SIGNALS, ids=lambda value: value.name)
def test_elsewhere_the_first_signal_stops_and_the_next_ones_disturb_nothing(number: signal.Signals) -> None:
    before = [signal.getsignal(each) for each in HANDLED_SIGNALS]
    cleaned = False
    with pytest.raises(Stopped, match=f"stopped by {number.name}"), at_once():
        try:
            os.kill(os.getpid(), number)
        finally:
            for again in CLUSTER_SIGNALS:
                os.kill(os.getpid(), again)
            cleaned = True
    assert cleaned and [signal.getsignal(each) for each in HANDLED_SIGNALS] == before


def slurm(folder: Path, monkeypatch: pytest.MonkeyPatch, exit_code: int) -> Path:
    """A job whose scontrol notes what it was asked."""
    asked = folder / "asked"
    command = folder / "scontrol"
    command.write_text(f"#!/bin/sh\necho $@ >> {asked}\necho no such job >&2\nexit {exit_code}\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    return asked


@pytest.mark.parametrize(("exit_code", "says"), [(0, ("job 4711",)), (1, ("job 4711", "no such job"))])
def test_a_slurm_job_is_queued_again_or_its_refusal_quoted(
    exit_code: int, says: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = slurm(tmp_path, monkeypatch, exit_code)
    said = requeue()
    assert all(each in said for each in says) and ("did not" in said) == bool(exit_code)
    assert asked.read_text() == "requeue 4711\n"
    monkeypatch.delenv("SLURM_JOB_ID")
    assert requeue() == ""
