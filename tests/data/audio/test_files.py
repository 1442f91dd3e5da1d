"""Audio comes out as it went in, and everything that is not whole, finite audio is named with its reason."""

import os
import struct
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from las.data.audio import files
from las.runtime.errors import DataError

RATE = 16000


def noise(count: int, channels: int = 1) -> np.ndarray:
    return np.random.default_rng(count).integers(-20000, 20000, (count, channels)).astype(np.int16)


def saved(path: Path, samples: np.ndarray, subtype: str | None = None, sample_rate: int = RATE) -> Path:
    soundfile.write(path, samples, sample_rate, subtype)
    return path


@pytest.mark.parametrize("name", ["x.wav", "x.flac", "x.WAV", "x.sph", "sphere_called.wav"])
def test_samples_are_exact_in_every_lossless_format(tmp_path, name: str) -> None:
    samples = noise(1000, 2)
    path = tmp_path / name
    soundfile.write(path, samples, RATE, "PCM_16", format="NIST" if "sph" in name else None)
    assert files.info(path) == files.read(path)[0] == files.AudioInfo(RATE, 1000, 2)
    assert files.info(path).duration_s == 1000 / RATE
    for channel in (0, 1):
        expected = samples[:, channel] / np.float32(32768)
        assert np.array_equal(files.load(path, channel), expected)
        stretch = files.load(path, channel, start_s=100 / RATE, duration_s=50 / RATE)
        assert np.array_equal(stretch, expected[100:150])


def test_ogg_is_read(tmp_path) -> None:
    tone = np.sin(np.arange(8000) * 0.1).astype(np.float32) * 0.5
    waveform = files.load(saved(tmp_path / "x.ogg", tone, "VORBIS"))
    assert waveform.shape == (8000,)
    np.testing.assert_allclose(waveform, tone, atol=0.05, rtol=0)


@given(start=st.integers(0, 15999), count=st.integers(1, 16000))
def test_rounded_times_never_miss_a_stretch(tmp_path_factory, start: int, count: int) -> None:
    path = tmp_path_factory.getbasetemp() / "ramp.wav"
    if not path.exists():
        saved(path, np.arange(32000, dtype=np.int16))
    waveform = files.load(path, start_s=start / RATE, duration_s=count / RATE)
    assert waveform.shape == (count,)
    assert round(float(waveform[0]) * 32768) == start


def test_both_times_rounded_up_still_fit(tmp_path) -> None:
    path = saved(tmp_path / "x.wav", noise(11))
    assert files.load(path, start_s=5.5 / RATE + 1e-9, duration_s=5.5 / RATE).shape == (5,)


def test_another_rate_than_asked_is_named(tmp_path) -> None:
    path = saved(tmp_path / "x.wav", noise(800), "PCM_16", 8000)
    assert np.array_equal(files.load(path, sample_rate=8000), files.load(path))
    with pytest.raises(DataError, match="sampled at 8000 Hz, the corpus is at 16000 Hz"):
        files.load(path, sample_rate=RATE)


def test_what_is_no_audio_file_says_what_it_is(tmp_path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty.wav").touch()
    (tmp_path / "text.wav").write_text("hello there, this is a text and no audio")
    (tmp_path / "magic.wav").write_bytes(b"RIFF\0\0\0\0WAVE")
    os.mkfifo(tmp_path / "fifo.wav")
    for name, says in (
        ("absent.wav", "does not exist"),
        ("folder", "is a folder"),
        ("fifo.wav", "is not a regular file"),
        ("empty.wav", "is empty"),
        ("text.wav", "not audio that las can read"),
        ("magic.wav", "not audio that las can read"),
    ):
        for ask in (files.info, files.read, files.load):
            with pytest.raises(DataError, match=says) as raised:
                ask(tmp_path / name)
            assert str(tmp_path / name) in str(raised.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_file_without_permission_is_named(tmp_path) -> None:
    path = saved(tmp_path / "x.wav", noise(10))
    path.chmod(0)
    with pytest.raises(DataError, match="Permission denied"):
        files.info(path)


def test_a_header_without_samples_is_no_audio(tmp_path) -> None:
    saved(tmp_path / "x.wav", noise(0))
    soundfile.write(tmp_path / "x.sph", noise(0), RATE, "PCM_16", format="NIST")
    for name in ("x.wav", "x.sph"):
        with pytest.raises(DataError, match="header but no samples"):
            files.info(tmp_path / name)


@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_24", "FLOAT", "ULAW"])
@pytest.mark.parametrize("kept", [0, 1, 499, 999])
def test_a_wav_cut_short_says_how_much_is_there(tmp_path, subtype: str, kept: int) -> None:
    path = saved(tmp_path / "x.wav", noise(1000, 2), subtype)
    content = path.read_bytes()
    sample_bytes = {"PCM_16": 2, "PCM_24": 3, "FLOAT": 4, "ULAW": 1}[subtype] * 2
    start = content.index(b"data") + 8
    path.write_bytes(content[: start + kept * sample_bytes])
    with pytest.raises(DataError, match=rf"x\.wav.*promises 1000 samples, {kept} are there"):
        files.info(path)


def test_big_endian_and_large_wavs_are_checked_too(tmp_path) -> None:
    for name, options in (("x.wav", {"endian": "BIG"}), ("y.wav", {"format": "RF64"})):
        path = tmp_path / name
        soundfile.write(path, noise(1000), RATE, "PCM_16", **options)
        assert files.info(path).num_samples == 1000
        path.write_bytes(path.read_bytes()[:-200])
        with pytest.raises(DataError, match="promises 1000 samples, 900 are there"):
            files.info(path)


def test_chunks_before_and_after_the_samples_are_not_samples(tmp_path) -> None:
    path = saved(tmp_path / "x.wav", noise(100))
    content = path.read_bytes()
    at = content.index(b"data")
    odd = b"note" + struct.pack("<I", 5) + b"hello\0"
    path.write_bytes(content[:at] + odd + content[at:] + odd)
    assert files.load(path).shape == (100,)


def test_a_wav_from_a_pipe_leaves_its_size_open(tmp_path) -> None:
    path = saved(tmp_path / "x.wav", noise(100))
    content = bytearray(path.read_bytes())
    at = content.index(b"data")
    content[at + 4 : at + 8] = b"\xff" * 4
    path.write_bytes(content)
    assert files.load(path).shape == (100,)


def with_rate(path: Path, sample_rate: int) -> Path:
    """A file of a second whose header says another rate, in place: wav, flac or SPHERE."""
    soundfile.write(path, noise(RATE), RATE, "PCM_16", format="NIST" if path.suffix == ".sph" else None)
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
    """At 1 Hz a second of samples would be heard as four hours."""
    for sample_rate in (1, 999, 768_001):
        path = with_rate(tmp_path / f"x.{suffix}", sample_rate)
        for ask in (files.info, files.read, files.load, lambda path: next(files.blocks(path))):
            with pytest.raises(DataError, match=rf"says {sample_rate:,} Hz, las reads 1,000 to 768,000 Hz") as raised:
                ask(path)
            assert str(raised.value).startswith(f"{path}: ") and raised.value.kind == "sample rate"
    for sample_rate in (1_000, 768_000):
        assert files.info(with_rate(tmp_path / f"x.{suffix}", sample_rate)).sample_rate == sample_rate


def promising(path: Path, num_samples: int) -> Path:
    """A flac of a second whose header says that it has so many samples."""
    saved(path, noise(RATE))
    content = bytearray(path.read_bytes())
    content[18:26] = (int.from_bytes(content[18:26], "big") >> 36 << 36 | num_samples).to_bytes(8, "big")
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("num_samples", [40_000_000, 1 << 35, (1 << 36) - 1])
def test_a_flac_that_promises_more_than_its_bytes_hold_is_refused(tmp_path, num_samples: int) -> None:
    path = promising(tmp_path / "x.flac", num_samples)
    for ask in (files.info, files.read, files.load):
        with pytest.raises(
            DataError, match=rf"promises {num_samples} samples, its bytes hold at most \d+\. Copy"
        ) as raised:
            ask(path)
        assert raised.value.kind == "cut short"


def test_flac_of_silence_is_the_densest_audio_and_read(tmp_path) -> None:
    """The bound of what bytes can hold is above what an encoder reaches."""
    path = saved(tmp_path / "x.flac", np.zeros(600 * RATE, np.int16))
    samples_per_byte = files.info(path).num_samples / path.stat().st_size
    assert samples_per_byte > 250 and len(files.load(path)) == 600 * RATE


@pytest.mark.parametrize("hurt", ["cut", "flipped"])
def test_a_damaged_flac_is_found_by_decoding(tmp_path, hurt: str) -> None:
    path = saved(tmp_path / "x.flac", noise(RATE))
    content = bytearray(path.read_bytes())
    if hurt == "cut":
        del content[len(content) // 2 :]
    else:
        content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    for ask in (files.read, files.load):
        with pytest.raises(DataError, match=r"x\.flac: the file is (damaged|cut short)"):
            ask(path)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_samples_that_are_not_finite_are_counted(tmp_path, value: float) -> None:
    samples = np.zeros(1000, np.float32)
    samples[[3, 700]] = value
    path = saved(tmp_path / "x.wav", samples, "FLOAT")
    for ask in (files.read, files.load):
        with pytest.raises(DataError, match=r"x\.wav: 2 samples are not finite"):
            ask(path)


def test_channels_and_stretches_outside_the_file_are_refused(tmp_path) -> None:
    path = saved(tmp_path / "x.wav", noise(RATE, 2))
    for channel in (-1, 2):
        with pytest.raises(DataError, match=rf"no channel {channel}: the file has 2"):
            files.load(path, channel)
    for start_s, duration_s in ((0.0, 1.1), (0.9, 0.2), (1.0, None), (2.0, None), (-0.5, 0.2), (0.0, 0.0), (0.5, -0.1)):
        with pytest.raises(DataError, match=r"is not a stretch of a file of 1\.0 s"):
            files.load(path, start_s=start_s, duration_s=duration_s)


def test_the_sphere_file_among_real_riff_files(shared_data) -> None:
    folder = shared_data / "timit_sample" / "TIMIT" / "TRAIN" / "DR1" / "FVMH0"
    assert files.info(folder / "SI836.WAV") == files.AudioInfo(RATE, 68813, 1)
    assert files.load(folder / "SI836.WAV").shape == (68813,)
    expected, _ = soundfile.read(folder / "SA1.WAV", dtype="float32")
    assert np.array_equal(files.load(folder / "SA1.WAV"), expected)
