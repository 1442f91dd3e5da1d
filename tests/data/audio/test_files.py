"""Audio comes out as it went in, and everything that is not whole, finite audio is named with its reason."""

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from las.data.audio import files

RATE = 16000
READERS: tuple[Callable[[Any], object], ...] = (files.info, files.read, files.load, lambda path: [*files.blocks(path)])


def noise(count: int, channels: int = 1) -> np.ndarray:
    return np.random.default_rng(count).integers(-20000, 20000, (count, channels)).astype(np.int16)


def saved(path: Path, samples: np.ndarray, subtype: str | None = None, sample_rate: int = RATE, **options: str) -> Path:
    soundfile.write(path, samples, sample_rate, subtype, **options)
    return path


def changed(path: Path, change: Callable[[bytearray], object]) -> Path:
    content = bytearray(path.read_bytes())
    change(content)
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("name", ["x.wav", "x.flac", "x.WAV", "x.sph", "sphere_called.wav"])
def test_samples_are_exact_in_every_lossless_format(tmp_path, name: str) -> None:
    samples = noise(1000, 2)
    path = saved(tmp_path / name, samples, "PCM_16", format="NIST" if "sph" in name else None)
    assert files.info(path) == files.read(path)[0] == files.AudioInfo(RATE, 1000, 2)
    assert files.info(path).duration_s == 1000 / RATE
    for channel in (0, 1):
        expected = samples[:, channel] / np.float32(32768)
        assert np.array_equal(files.load(path, channel), expected)
        stretch = files.load(path, channel, start_s=100 / RATE, duration_s=50 / RATE)
        assert np.array_equal(stretch, expected[100:150])


@given(start=st.integers(0, 15999), count=st.integers(1, 16000))
def test_rounded_times_never_miss_a_stretch(tmp_path_factory, start: int, count: int) -> None:
    path = tmp_path_factory.getbasetemp() / "ramp.wav"
    if not path.exists():
        saved(path, np.arange(32000, dtype=np.int16))
    waveform = files.load(path, start_s=start / RATE, duration_s=count / RATE)
    assert waveform.shape == (count,) and round(float(waveform[0]) * 32768) == start


def test_both_times_rounded_up_still_fit(tmp_path) -> None:
    path = saved(tmp_path / "x.wav", noise(11))
    assert files.load(path, start_s=5.5 / RATE + 1e-9, duration_s=5.5 / RATE).shape == (5,)


NO_AUDIO: dict[str, tuple[Callable[[Path], object], str]] = {
    "absent.wav": (lambda path: None, "does not exist"),
    "folder": (Path.mkdir, "is a folder"),
    "fifo.wav": (os.mkfifo, "not a regular file"),
    "empty.wav": (Path.touch, "is empty"),
    "text.wav": (lambda path: path.write_text("hello there, this is a text and no audio"), "not audio"),
    "magic.wav": (lambda path: path.write_bytes(b"RIFF\0\0\0\0WAVE"), "not audio"),
    "none.wav": (lambda path: saved(path, noise(0)), "no samples"),
    "none.sph": (lambda path: saved(path, noise(0), "PCM_16", format="NIST"), "no samples"),
}


@pytest.mark.parametrize("name", NO_AUDIO)
def test_what_is_no_audio_file_says_what_it_is(tmp_path, name: str) -> None:
    make, says = NO_AUDIO[name]
    make(tmp_path / name)
    for read in READERS:
        refused(f"{tmp_path / name}|{says}", read, tmp_path / name)


def with_rate(path: Path, sample_rate: int) -> Path:
    """A file of a second whose header says another rate, in place: wav, flac or SPHERE."""
    saved(path, noise(RATE), "PCM_16", format="NIST" if path.suffix == ".sph" else None)
    content = bytearray(path.read_bytes())
    if path.suffix == ".wav":
        content[24:28] = struct.pack("<I", sample_rate)
    elif path.suffix == ".flac":
        content[18:21] = (sample_rate << 4 | content[20] & 15).to_bytes(3, "big")
    else:
        content = content.replace(b"sample_rate -i 16000", f"sample_rate -i {sample_rate}".ljust(20).encode())
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("suffix", ["wav", "flac", "sph"])
def test_a_rate_that_no_recording_has_is_refused(tmp_path, suffix: str) -> None:
    """At 1 Hz a second of samples would take four hours."""
    for sample_rate in (1, 999, 768_001):
        path = with_rate(tmp_path / f"x.{suffix}", sample_rate)
        for read in READERS:
            refused(f"{path}: |{sample_rate:,} Hz|1,000 to 768,000", read, path)
    for sample_rate in (1_000, 768_000):
        assert files.info(with_rate(tmp_path / f"x.{suffix}", sample_rate)).sample_rate == sample_rate


@pytest.mark.parametrize("num_samples", [40_000_000, 1 << 35, (1 << 36) - 1])
def test_a_flac_that_promises_more_than_its_bytes_hold_is_refused(tmp_path, num_samples: int) -> None:
    def promise(content: bytearray) -> None:
        content[18:26] = (int.from_bytes(content[18:26], "big") >> 36 << 36 | num_samples).to_bytes(8, "big")

    path = changed(saved(tmp_path / "x.flac", noise(RATE)), promise)
    for read in READERS:
        refused(f"{num_samples} samples|at most", read, path)


def test_flac_of_silence_is_the_densest_audio_and_read(tmp_path) -> None:
    """The bound of what bytes can hold is above what an encoder reaches."""
    path = saved(tmp_path / "x.flac", np.zeros(600 * RATE, np.int16))
    samples_per_byte = files.info(path).num_samples / path.stat().st_size
    assert samples_per_byte > 250 and len(files.load(path)) == 600 * RATE


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_samples_that_are_not_finite_are_counted(tmp_path, value: float) -> None:
    samples = np.zeros(1000, np.float32)
    samples[[3, 700]] = value
    path = saved(tmp_path / "x.wav", samples, "FLOAT")
    for read in READERS[1:]:
        refused("x.wav|2 samples|not finite", read, path)


def test_channels_and_stretches_outside_the_file_are_refused(tmp_path) -> None:
    path = saved(tmp_path / "x.wav", noise(RATE, 2))
    for channel in (-1, 2):
        refused(f"channel {channel}|has 2", files.load, path, channel)
    for start_s, duration_s in ((0.0, 1.1), (0.9, 0.2), (1.0, None), (2.0, None), (-0.5, 0.2), (0.0, 0.0), (0.5, -0.1)):
        refused("x.wav|1.0 s", files.load, path, 0, start_s, duration_s)
