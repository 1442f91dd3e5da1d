"""A file appears whole or not at all; temporary folders go with their program, or with the next one's start."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny

from las.data.audio import streaming
from las.data.synthesis import rendering
from las.storage import atomic, lock


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "made" / "x.json"
    contents = {b"\x00": b"\x00", "größer": "größer".encode(), iter(["grö", "ßer"]): "größer".encode()}
    for content, expected in contents.items():
        atomic.write(path, content)
        assert path.read_bytes() == expected
    with pytest.raises(ZeroDivisionError):
        atomic.write(path, (str(1 // number) for number in (1, 0)))
    with pytest.raises(TypeError):
        atomic.write_json(path, {"a": 1, "b": object()})
    assert path.read_text("utf-8") == "größer" and list(path.parent.iterdir()) == [path]
    atomic.write_json(path, {"phone": "ə"}, durable=True)
    assert path.read_text("utf-8") == '{\n "phone": "ə"\n}\n'


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A file to which links are planted."""
    path = tmp_path / "elsewhere" / "thesis.txt"
    path.parent.mkdir()
    path.write_text("hers")
    return path


def held(folder: Path) -> None:
    with lock.held(folder):
        pass


def resampled(folder: Path) -> None:
    path = folder / "a.wav"
    streaming.resampled_copy(path if path.exists() else tiny.sound(path, 0.1), 8000, folder)


def synthesised(folder: Path) -> None:
    with rendering._alone(folder):
        pass


WRITERS: dict[str, Callable[[Path], object]] = {
    "atomic": lambda folder: atomic.write(folder / "x.json", "ours"),
    "lock": held,
    "resampling": resampled,
    "synthesis": synthesised,
}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_link_in_the_place_of_a_temporary_file_is_not_followed(
    writer: str, theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    real = os.open

    def planted(path: str | Path, flags: int, *mode: int) -> int:
        """Whoever may write into the folder plants the link at the last moment: the best that they can do."""
        if flags & os.O_CREAT and Path(path).name[0] == ".":
            opened.append(Path(path).name)
            Path(path).symlink_to(theirs)
        return real(path, flags, *mode)

    monkeypatch.setattr(os, "open", planted)
    with pytest.raises(OSError, match=r"\."):
        WRITERS[writer](tmp_path)
    assert len(opened) == 1 and theirs.read_text() == "hers"


def test_long_names_and_permissions_are_those_of_other_files(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    for name in ("n" * 255, "ß" * 127, "😀" * 63):
        atomic.write(tmp_path / name, name)
        assert (tmp_path / name).read_text("utf-8") == name
        assert (tmp_path / name).stat().st_mode == (tmp_path / "other").stat().st_mode


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


def test_what_a_killed_program_left_is_removed_by_the_next(place: Path) -> None:
    process, left = hold(place)
    process.kill()
    process.communicate()
    assert (left / "x.wav").read_text() == "a voice"
    with atomic.temporary_folder("las-test-") as folder:
        assert list(place.iterdir()) == [folder]


def test_what_a_living_program_and_others_have_stays(place: Path) -> None:
    others = [place / name for name in ("las-other-folder", "las-test-file", "las-test-link", "mine")]
    (place / "mine").mkdir()
    others[0].mkdir()
    others[1].touch()
    others[2].symlink_to(place / "mine")
    (place / "mine/thesis.txt").touch()
    process, other = hold(place)
    with atomic.temporary_folder("las-test-") as folder:
        assert sorted(place.iterdir()) == sorted([folder, other, *others])
        assert folder.stat().st_mode & 0o777 == 0o700 and (other / "x.wav").read_text() == "a voice"
    process.communicate("")
    assert sorted(place.iterdir()) == others and (place / "mine/thesis.txt").exists()
