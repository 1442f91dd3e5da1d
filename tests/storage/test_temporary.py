"""Temporary folders: gone with their program, and what a killed one left is gone with the next start."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from las.storage import atomic

HOLD = """
import sys, tempfile
from las.storage import atomic
tempfile.tempdir = sys.argv[1]
with atomic.temporary_folder("las-test-") as folder:
    (folder / "x.wav").write_text("a voice")
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def hold(place: Path) -> tuple["subprocess.Popen[str]", Path]:
    """Another program with a folder, and that folder."""
    command = [sys.executable, "-c", HOLD, str(place)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_a_folder_is_private_and_gone_afterwards(place: Path) -> None:
    with atomic.temporary_folder("las-test-") as folder:
        assert folder.parent == place and folder.stat().st_mode & 0o777 == 0o700
        (folder / "x.wav").write_text("a voice")
    assert list(place.iterdir()) == []


def test_what_a_killed_program_left_is_removed_by_the_next(place: Path) -> None:
    process, left = hold(place)
    process.kill()
    process.communicate()
    assert (left / "x.wav").read_text() == "a voice"
    with atomic.temporary_folder("las-test-") as folder:
        assert list(place.iterdir()) == [folder]


def test_what_a_living_program_has_stays(place: Path) -> None:
    process, other = hold(place)
    with atomic.temporary_folder("las-test-") as folder:
        assert sorted(place.iterdir()) == sorted([folder, other])
        assert (other / "x.wav").read_text() == "a voice"
    process.communicate("")
    assert list(place.iterdir()) == []


def test_other_files_stay(place: Path) -> None:
    (place / "mine").mkdir()
    (place / "mine" / "thesis.txt").touch()
    (place / "las-test-link").symlink_to(place / "mine")
    (place / "las-test-file").touch()
    (place / "las-other-folder").mkdir()
    with atomic.temporary_folder("las-test-"):
        pass
    assert sorted(path.name for path in place.rglob("*")) == [
        "las-other-folder",
        "las-test-file",
        "las-test-link",
        "mine",
        "thesis.txt",
    ]
