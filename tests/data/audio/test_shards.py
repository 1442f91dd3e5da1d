"""Audio files in shards read as they do outside, and damage of a shard is named."""

from pathlib import Path

import numpy as np
import pytest
import soundfile
import tiny
from places import SHARED_DATA

from las.data import manifest, packing
from las.data.audio import files, shards
from las.data.audio.worker import state
from las.data.manifest import Utterance
from las.runtime.errors import DataError

FORMATS = ("wav", "flac", "ogg", "mp3")


def packed(folder: Path, *audio: Path) -> list[str]:
    """Names of audio files in a shard of their own."""
    listed = [Utterance(f"u{n}", str(path), 0, 0.0, 0.1, "a", "") for n, path in enumerate(audio)]
    result = packing.pack("train", listed, folder / "shards", 1 << 30)
    return [str(result.manifest.parent / each.audio) for each in manifest.read(result.manifest)]


@pytest.fixture
def recordings(tmp_path: Path) -> list[Path]:
    """One file of each format; that of mp3 and ogg is lossy, which matters to nobody here."""
    samples = 0.3 * np.sin(np.arange(16000) / 7.0)
    for suffix in FORMATS:
        soundfile.write(tmp_path / f"tone.{suffix}", samples, 16000)
    return [tmp_path / f"tone.{suffix}" for suffix in FORMATS]


def test_every_format_reads_the_same_inside_and_outside(recordings: list[Path], tmp_path: Path) -> None:
    for outside, inside in zip(recordings, packed(tmp_path, *recordings), strict=True):
        assert inside.endswith(f"/{outside.name}") and files.info(inside) == files.info(outside)
        assert np.array_equal(files.read(inside)[1], files.read(outside)[1])
        assert np.array_equal(files.load(inside, 0, 0.25, 0.5), files.load(outside, 0, 0.25, 0.5))
        both = (np.concatenate(list(files.blocks(path, 0.3))) for path in (inside, outside))
        assert np.array_equal(*both)


def test_sphere_plain_and_compressed(tmp_path: Path) -> None:
    folder = SHARED_DATA / "sphere_samples"
    if not folder.is_dir():
        pytest.skip("no SPHERE samples beside the checkout")
    samples = [path for path in sorted(folder.rglob("*.sph")) if path.stat().st_size < 1 << 20]
    readable = [path for path in samples if reads(path)][:6]
    assert readable
    for outside, inside in zip(readable, packed(tmp_path, *readable), strict=True):
        assert np.array_equal(files.read(inside)[1], files.read(outside)[1])


def reads(path: Path) -> bool:
    try:
        files.read(path)
    except DataError:
        return False
    return True


def test_a_shard_that_is_cut_short_or_changed_is_named(tmp_path: Path) -> None:
    sounds = [tiny.sound(tmp_path / f"{name}.wav", 0.2, seed) for seed, name in enumerate("ab")]
    first, second = packed(tmp_path, *sounds)
    shard = Path(shards.file_of(second))
    assert state(second) == [shard.stat().st_size, shard.stat().st_mtime_ns]
    content = shard.read_bytes()
    inside = shards.member(second)
    assert inside is not None
    shard.write_bytes(content[: inside.offset + 100])
    with pytest.raises(
        DataError, match=r"train-000000\.tar: the shard is cut short: b\.wav ends at byte .* Copy it again"
    ):
        files.info(second)
    assert files.info(first).num_samples == 3200
    shard.write_bytes(content[:1024] + content)
    with pytest.raises(DataError, match=r"b\.wav is not at byte [\d,]+: the shard was changed after its manifest"):
        files.load(second)
    shard.unlink()
    with pytest.raises(DataError, match=r"train-000000\.tar: does not exist, expected an audio file"):
        files.info(second)


def test_names_that_only_look_like_members_are_paths(tmp_path: Path) -> None:
    odd = tiny.sound(tmp_path / "a.tar#12.wav", 0.2)
    assert shards.member(odd) is None and files.info(odd).num_samples == 3200
