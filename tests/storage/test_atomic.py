"""A file appears whole or not at all, and what a disk refuses leaves nothing behind."""

import errno
import json
import os
from pathlib import Path

import pytest

from las.storage import atomic


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
