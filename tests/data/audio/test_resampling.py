"""Resampled copies: rate, channels, length and sound of the original, written once, in every format that is read."""

import os
from pathlib import Path

import numpy as np
import pytest
import soundfile

from las.data.audio import files, resampling


def tone(rate: int, seconds: float = 0.5) -> np.ndarray:
    times = np.arange(round(rate * seconds)) / rate
    return np.stack([0.5 * np.sin(2 * np.pi * pitch * times) for pitch in (300, 700)], axis=1)


@pytest.mark.parametrize(
    ("rate", "suffix"), [(44100, "wav"), (8000, "flac"), (48000, "opus"), (22050, "mp3"), (32000, "ogg")]
)
def test_a_copy_sounds_like_its_file(rate: int, suffix: str, tmp_path: Path) -> None:
    options = {"format": "OGG", "subtype": "OPUS"} if suffix == "opus" else {}
    soundfile.write(tmp_path / f"a.{suffix}", tone(rate), rate, **options)
    info, samples = files.read(resampling.copy(tmp_path / f"a.{suffix}", 16000, tmp_path / "copies"))
    assert (info.sample_rate, info.channels) == (16000, 2)
    before = files.info(tmp_path / f"a.{suffix}")
    assert info.duration_s == pytest.approx(before.duration_s, abs=2 / 16000)
    expected = tone(16000)
    start = int(np.argmax([np.dot(samples[lag : lag + 4000, 0], expected[2000:6000, 0]) for lag in range(1900, 3600)]))
    stretch = samples[1900 + start : 5900 + start]
    assert np.abs(stretch - expected[2000:6000]).max() < (0.01 if suffix in ("wav", "flac") else 0.1)


def test_a_copy_is_written_once_and_again_for_another_file(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    soundfile.write(path, tone(8000), 8000)
    copy = resampling.copy(path, 16000, tmp_path / "copies")
    written = copy.stat().st_mtime_ns
    assert resampling.copy(path, 16000, tmp_path / "copies") == copy and copy.stat().st_mtime_ns == written
    assert resampling.copy(path, 11025, tmp_path / "copies") != copy
    os.utime(path, ns=(1, 1))
    assert resampling.copy(path, 16000, tmp_path / "copies") != copy
    assert not list(tmp_path.rglob("*.flac.*"))
