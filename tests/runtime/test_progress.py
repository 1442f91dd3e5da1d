"""What is printed: a live line on a terminal, plain lines elsewhere, the same lines in the log."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from las.runtime import progress


def test_lines_go_to_the_screen_and_the_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "[bold]brackets[/bold] " + "long " * 40 + "1.5 %"
    progress.say(text, tmp_path / "log.txt")
    progress.say("ə", tmp_path / "log.txt")
    progress.say("only on the screen")
    assert (tmp_path / "log.txt").read_text("utf-8") == f"{text}\nə\n"
    assert capsys.readouterr().out == f"{text}\nə\nonly on the screen\n"


def test_away_from_a_terminal_only_what_is_said_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with progress.TrainingProgress(10, tmp_path / "log.txt") as training:
        for step in (1, 2, 3):
            training.update(1, step, 2.5, num_utterances=4)
        training.say("said")
    assert capsys.readouterr().out == (tmp_path / "log.txt").read_text() == "said\n"
    assert training.utterances == 12


def test_a_terminal_shows_the_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(progress, "console", Console(file=screen, force_terminal=True, width=160))
    with progress.TrainingProgress(10, tmp_path / "log.txt") as training:
        training.first_step = 4
        training.dev = "dev PER 23.1 %"
        training.update(3, 5, 1.23456, num_utterances=32)
        training.live.refresh()
    assert "epoch 3 | step 5 | loss 1.235 | dev PER 23.1 %" in screen.getvalue()
    assert "50%" in screen.getvalue()


def test_time_left_counts_the_steps_of_this_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    training = progress.TrainingProgress(1000, tmp_path / "log.txt")
    training.first_step = 400
    training.update(1, 500, 1.0, num_utterances=600)
    clock[0] += 20.0
    line = "epoch 1 | step 500 | loss 1.000 | dev - | 30 utt/s | at most 1:40 left"
    assert training.line(1, 500, 1.0) == line  # 100 steps took 20 s, 500 are left


def test_counted_work_that_takes_long_says_how_far_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert list(progress.counted("abc", 3, "files read")) == ["a", "b", "c"]
    assert capsys.readouterr().out == ""  # quick work says nothing
    clock = iter(range(0, 1000, 10))
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(clock)))
    assert list(progress.counted(range(6), 6, "read", every_s=30.0)) == list(range(6))
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["read: 3 of 6, about 0:30 left", "read: 6 of 6, about 0:00 left"]


def test_counted_work_on_a_terminal_is_a_bar_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(progress, "console", Console(file=screen, force_terminal=True, width=80))
    assert list(progress.counted("abc", 3, "files read")) == ["a", "b", "c"]
    assert "files read" in screen.getvalue() and screen.getvalue().endswith("\x1b[2K")
