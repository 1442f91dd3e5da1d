"""A run folder has one process at a time, and outlives those that were killed in it."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from las.runtime.errors import StorageError
from las.storage import lock

HOLD = """
import sys, time
from pathlib import Path
from las.storage import lock
with lock.held(Path(sys.argv[1])):
    print('in', flush=True)
    time.sleep(60)
"""
COUNT = """
import sys, time
from pathlib import Path
from las.storage import lock
from las.runtime.errors import StorageError
folder, inside = Path(sys.argv[1]), Path(sys.argv[1]) / "inside"
entered = 0
while entered < 15:
    try:
        with lock.held(folder):
            inside.touch(exist_ok=False)
            time.sleep(0.002)
            inside.unlink()
            entered += 1
    except StorageError:
        time.sleep(0.001)
"""


def holder(folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "in\n"
    return process


def test_the_second_process_is_told_who_the_first_is(tmp_path: Path) -> None:
    with holder(tmp_path) as first:
        with pytest.raises(StorageError, match=rf"process {first.pid} on .*kill {first.pid}"), lock.held(tmp_path):
            raise AssertionError("two processes in one folder")
        assert (tmp_path / lock.NAME).exists()
        first.kill()


def test_a_killed_holder_holds_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with holder(tmp_path) as first:
        first.kill()
        time.sleep(0.05)  # not waited for: the dead process is still in the table of processes
        with lock.held(tmp_path):
            assert json.loads((tmp_path / lock.NAME).read_text())["pid"] == os.getpid()
    assert f"process {first.pid}" in capsys.readouterr().out
    assert os.listdir(tmp_path) == []


def test_a_lock_of_nobody_holds_nothing(tmp_path: Path) -> None:
    """One of a process that has the number of a dead one, and one that says nothing."""
    path = tmp_path / lock.NAME
    with lock.held(tmp_path):
        content = json.loads(path.read_text())
    for text in (json.dumps(content | {"born": "1"}), "{"):
        path.write_text(text)
        with lock.held(tmp_path):
            assert json.loads(path.read_text())["pid"] == os.getpid()


def test_a_holder_on_another_machine_is_believed(tmp_path: Path) -> None:
    path = tmp_path / lock.NAME
    path.write_text(json.dumps({"pid": 1, "host": "elsewhere", "born": "1", "since": time.time() - 3700}))
    with pytest.raises(StorageError, match=r"process 1 on.*1:01:40 .*remove .*lock\.json"), lock.held(tmp_path):
        pass
    assert path.exists()


def test_what_dead_processes_were_writing_is_removed(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    dead = 2**22 + 1  # more than Linux counts to
    for name in (f".config.json.{dead}", f".config.json.{os.getpid()}", f"checkpoints/.best.{dead}", ".kept", "log.5"):
        (tmp_path / name).touch()
    with lock.held(tmp_path):
        pass
    left = {".kept", f".config.json.{os.getpid()}", "checkpoints", "log.5"}
    assert set(os.listdir(tmp_path)) == left and not os.listdir(tmp_path / "checkpoints")


def test_processes_that_crowd_are_never_inside_together(tmp_path: Path) -> None:
    (tmp_path / lock.NAME).write_text(
        json.dumps({"pid": 2**22 + 1, "host": os.uname().nodename, "born": "1", "since": 0})
    )
    crowd = [subprocess.Popen([sys.executable, "-c", COUNT, str(tmp_path)], stderr=subprocess.PIPE) for _ in range(3)]
    for process in crowd:
        assert process.wait(timeout=60) == 0, process.stderr.read() if process.stderr else ""
        if process.stderr:
            process.stderr.close()
    assert os.listdir(tmp_path) == []
