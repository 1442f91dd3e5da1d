"""Headers are read once, and again for files that changed."""

import json
from pathlib import Path

import pytest
import tiny

from las.data.audio import files
from las.data.audio_levels import state
from las.data.sources import headers


@pytest.fixture
def recordings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(headers, "_FEW", 1)
    return [str(tiny.sound(tmp_path / f"{number}.wav", 0.1 + 0.1 * number, number)) for number in range(4)]


def test_what_has_not_changed_is_not_opened_again(
    recordings: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remembered, opened = tmp_path / "headers.json", []
    info = files.info
    monkeypatch.setattr(files, "info", lambda path: (opened.append(path), info(path))[1])
    first = headers.read(recordings, remembered)
    assert sorted(opened) == recordings and [each.num_samples for each in first.values() if each] == [
        *(1600, 3200, 4800, 6400)
    ]
    opened.clear()
    assert headers.read(recordings, remembered) == first and not opened
    tiny.sound(Path(recordings[2]), 0.7)
    again = headers.read(recordings, remembered)
    assert opened == [recordings[2]] and again[recordings[2]] == files.AudioInfo(16000, 11200, 1)


def test_damage_is_tried_again_and_a_damaged_memory_is_none(recordings: list[str], tmp_path: Path) -> None:
    remembered = tmp_path / "headers.json"
    Path(recordings[0]).write_bytes(b"RIFF")
    assert headers.read(recordings, remembered)[recordings[0]] is None
    tiny.sound(Path(recordings[0]), 0.1)
    assert headers.read(recordings, remembered)[recordings[0]] is not None
    for content in (
        "",
        "[[1]]",
        '{"format": 2, "headers": [[1]]}',
        '{"format": 2}',
        '{"a": 1}',
        "[[",
        '[["a.wav", 1, 2, "3", 4, 5]]',
    ):
        remembered.write_text(content)
        assert all(headers.read(recordings, remembered).values())


def test_what_an_earlier_version_remembered_is_read_again(recordings: list[str], tmp_path: Path) -> None:
    """It ended joined recordings with the first one."""
    remembered = tmp_path / "headers.json"
    lines = [[path, *state(path), 16000, 7, 1] for path in recordings]
    for content in (lines, {"format": 1, "headers": lines}):
        remembered.write_text(json.dumps(content))
        assert all(info and info.num_samples > 7 for info in headers.read(recordings, remembered).values())
