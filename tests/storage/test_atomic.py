"""A file appears whole or not at all, and what a disk refuses leaves nothing behind."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny

from las.data.audio import resampling
from las.storage import atomic, lock


def test_a_reader_sees_the_old_or_the_new(tmp_path: Path) -> None:
    path = tmp_path / "made" / "latest"
    for content, expected in (("größer", "größer".encode()), (b"\x00", b"\x00")):
        atomic.write(path, content)
        assert path.read_bytes() == expected
    assert list(path.parent.iterdir()) == [path]


def test_json_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    atomic.write_json(path, {"phone": "ə"}, durable=True)
    assert path.read_text("utf-8") == '{\n "phone": "ə"\n}\n'
    with pytest.raises(TypeError):
        atomic.write_json(path, {"a": 1, "b": object()})
    assert json.loads(path.read_text("utf-8")) == {"phone": "ə"}


def test_parts_become_one_file_or_none(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    atomic.write(path, iter(["grö", "ßer", "\n"]))
    assert path.read_text("utf-8") == "größer\n"
    with pytest.raises(ZeroDivisionError):
        atomic.write(path, (str(1 // number) for number in (1, 0)))
    assert path.read_text("utf-8") == "größer\n" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("call", ["replace", "fsync"])
def test_a_refused_write_leaves_the_old_file_and_nothing_else(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "latest"
    atomic.write(path, "old")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="No space left"):
        atomic.write(path, "new", durable=True)
    monkeypatch.undo()
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


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
    resampling.copy(path if path.exists() else tiny.sound(path, 0.1), 8000, folder)


WRITERS: dict[str, Callable[[Path], object]] = {
    "atomic": lambda folder: atomic.write(folder / "x.json", "ours"),
    "lock": held,
    "resampling": resampled,
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
    with pytest.raises(FileExistsError):
        WRITERS[writer](tmp_path)
    assert len(opened) == 1 and theirs.read_text() == "hers"


@pytest.mark.parametrize("writer", WRITERS)
def test_names_of_temporary_files_cannot_be_foreseen(writer: str, theirs: Path, tmp_path: Path) -> None:
    WRITERS[writer](tmp_path)
    for path in (*tmp_path.rglob("*.json"), *tmp_path.rglob("*.flac"), tmp_path / lock.NAME):
        path.with_name(f".{path.name}.{os.getpid()}").symlink_to(theirs)
        path.unlink(missing_ok=True)
    WRITERS[writer](tmp_path)
    assert theirs.read_text() == "hers"


def test_long_names_and_permissions_are_those_of_other_files(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    for name in ("n" * 255, "ß" * 127, "😀" * 63):
        atomic.write(tmp_path / name, name)
        assert (tmp_path / name).read_text("utf-8") == name
        assert (tmp_path / name).stat().st_mode == (tmp_path / "other").stat().st_mode
