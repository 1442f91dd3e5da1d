"""Audio files in shards read as they do outside, and damage of a shard is named."""

from pathlib import Path

import numpy as np
import pytest
import tiny
from refusals import refused

from las.data import manifest, packing
from las.data.audio import files, shards
from las.data.audio.worker import state
from las.data.manifest import Utterance


def packed(folder: Path, *audio: Path) -> list[str]:
    """Names of audio files in a shard of their own."""
    listed = [Utterance(f"u{n}", str(path), 0, 0.0, 0.1, "a", "") for n, path in enumerate(audio)]
    result = packing.pack("train", listed, folder / "shards", 1 << 30)
    return [str(result.manifest.parent / each.audio) for each in manifest.read(result.manifest)]


@pytest.mark.parametrize("name", ["123_1pcbe_shn", "123_2ulaw"])
def test_sphere_plain_and_compressed(name: str, shared_data: Path, tmp_path: Path) -> None:
    outside = shared_data / f"sphere_samples/shorten/{name}.sph"
    (inside,) = packed(tmp_path, outside)
    assert np.array_equal(files.read(inside)[1], files.read(outside)[1])


def test_a_shard_that_is_cut_short_or_changed_is_named(tmp_path: Path) -> None:
    first, second = packed(tmp_path, *(tiny.sound(tmp_path / f"{name}.wav", 0.2) for name in "ab"))
    shard, inside = Path(shards.file_of(second)), shards.member(second)
    assert state(second) == [shard.stat().st_size, shard.stat().st_mtime_ns] and inside is not None
    content = shard.read_bytes()
    shard.write_bytes(content[: inside.offset + 100])
    refused("train-000000.tar|cut short|b.wav ends", files.info, second)
    assert files.info(first).num_samples == 3200
    shard.write_bytes(content[:1024] + content)
    refused("b.wav|shard was changed", files.load, second)
    packed(tmp_path, tiny.sound(tmp_path / "a.wav", 0.3))
    refused("a.wav|shard was changed", files.info, first)
    shard.unlink()
    refused("train-000000.tar|does not exist", files.info, second)


def test_names_that_only_look_like_members_are_paths(tmp_path: Path) -> None:
    odd = tiny.sound(tmp_path / "a.tar#12.wav", 0.2)
    assert shards.member(odd) is None and files.info(odd).num_samples == 3200
