"""Audio block by block: the same samples as all at once, of any rate, whatever the blocks; resampled copies."""

import io
import os
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused
from tiny import sound

from las.data.audio import files, streaming
from las.runtime import devices
from las.runtime.errors import ConfigError


def whole(path: Path, rate: int, channel: streaming.Channel = "mix", block_s: float = 30.0) -> torch.Tensor:
    return torch.cat(list(streaming.open_blocks(path, rate, channel, block_s)[1]))


@given(
    st.sampled_from([(8000, 16000), (44100, 16000), (48000, 16000), (16000, 8000), (22050, 16000), (11025, 8000)]),
    st.lists(st.integers(0, 3000), min_size=1, max_size=6),
)
@settings(max_examples=60)
def test_resampled_blocks_are_the_blocks_of_what_is_resampled(rates: tuple[int, int], lengths: list[int]) -> None:
    blocks = [torch.randn(length, generator=torch.Generator().manual_seed(length)) for length in lengths]
    found = torch.cat([torch.zeros(0), *streaming.resampled(blocks, *rates)])
    joined = torch.cat(blocks)
    expected = devices.torchaudio().functional.resample(joined, *rates) if len(joined) else joined
    assert found.shape == expected.shape
    torch.testing.assert_close(found, expected, atol=2e-6, rtol=0)


def test_an_odd_rate_needs_no_more_memory_than_others() -> None:
    """44,101 : 16,000 in whole numbers would need 16,000 filters of 100,000 samples."""
    times = torch.arange(44101) / 44101
    found = torch.cat(list(streaming.resampled(torch.sin(2 * torch.pi * 440 * times).split(10000), 44101, 16000)))
    assert abs(len(found) - 16000) <= 1
    expected = torch.sin(2 * torch.pi * 440 * torch.arange(len(found)) / 16000)
    torch.testing.assert_close(found[200:-200], expected[200:-200], atol=1e-2, rtol=0)


@pytest.mark.parametrize("suffix", ["wav", "flac", "ogg"])
def test_blocks_of_a_file_are_the_file(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x.{suffix}"
    samples = np.random.default_rng(1).uniform(-0.5, 0.5, (5000, 2))
    soundfile.write(path, samples, 16000)
    expected = torch.from_numpy(files.read(path)[1])
    for block_s in (0.01, 0.1, 1.0):
        torch.testing.assert_close(whole(path, 16000, 1, block_s), expected[:, 1], atol=1e-6, rtol=0)
        torch.testing.assert_close(whole(path, 16000, "mix", block_s), expected.mean(1), atol=1e-6, rtol=0)


def test_channels_are_numbers_or_all_of_them(tmp_path: Path) -> None:
    path = sound(tmp_path / "x.wav", 0.1, channels=2)
    refused("x.wav|channel 2|has 2", streaming.open_blocks, path, 16000, 2)
    for wrong in (-1, "left", 0.5, True, None):
        refused(f"channel={wrong}", streaming.require_channel, wrong, kind=ConfigError)


def test_a_stream_is_kept_as_a_file_and_gone_afterwards(tmp_path: Path) -> None:
    content = sound(tmp_path / "x.wav", 0.1).read_bytes()
    with streaming.spooled(io.BytesIO(content)) as path:
        assert files.info(path).num_samples == 1600
    assert not path.exists()


@pytest.mark.parametrize(
    ("rate", "suffix"), [(44100, "wav"), (8000, "flac"), (48000, "opus"), (22050, "mp3"), (32000, "ogg")]
)
def test_a_copy_is_its_file_resampled(rate: int, suffix: str, tmp_path: Path) -> None:
    path, options = tmp_path / f"a.{suffix}", {"format": "OGG", "subtype": "OPUS"} if suffix == "opus" else {}
    soundfile.write(path, np.random.default_rng(1).uniform(-0.5, 0.5, (rate // 2, 2)), rate, **options)
    info, samples = files.read(streaming.resampled_copy(path, 16000, tmp_path / "copies"))
    assert (info.sample_rate, info.channels) == (16000, 2)
    for channel in (0, 1):
        expected = whole(path, 16000, channel).numpy()
        np.testing.assert_allclose(samples[:, channel], expected, atol=1e-4, rtol=0)


def test_a_copy_is_written_once_and_again_for_another_file(tmp_path: Path) -> None:
    path = sound(tmp_path / "a.wav", 0.5, rate=8000)
    copy = streaming.resampled_copy(path, 16000, tmp_path / "copies")
    written = copy.stat().st_mtime_ns
    assert streaming.resampled_copy(path, 16000, tmp_path / "copies") == copy and copy.stat().st_mtime_ns == written
    assert streaming.resampled_copy(path, 11025, tmp_path / "copies") != copy
    os.utime(path, ns=(1, 1))
    assert streaming.resampled_copy(path, 16000, tmp_path / "copies") != copy
    assert not list(tmp_path.rglob("*.flac.*"))
