"""Augmentation: what the masks cover, what a speed does to a tone, and that each draw belongs to its utterance."""

import pytest
import torch

from las import batches
from las.augment import Augment
from las.errors import ConfigError

MASKS = {"time_masks": 2, "max_time_frames": 10, "frequency_masks": 2, "max_frequencies": 5}


def masked(augment: Augment, frames: list[int], keys: list[int], size: int = 20) -> torch.Tensor:
    """Where ones were replaced by zeros."""
    ones = torch.ones(len(frames), max(frames), size)
    return augment.features(ones, torch.tensor(frames), keys) == 0


def test_nothing_happens_by_default() -> None:
    features, waveform = torch.randn(2, 30, 8), torch.randn(1000)
    assert Augment().features(features, torch.tensor([30, 20]), [1, 2]) is features
    assert Augment().waveform(waveform, 16000, 1) is waveform


def test_masks_are_whole_stretches_and_bands_within_their_limits() -> None:
    for key in range(200):
        hidden = masked(Augment(time_masks=1, max_time_frames=10, max_time_share=0.2), [40], [key])[0]
        rows = hidden.all(1)
        assert torch.equal(hidden.any(1), rows) and rows.sum() <= 8
        assert (rows.int().diff() == 1).sum() + int(rows[0]) <= 1  # one stretch
        hidden = masked(Augment(frequency_masks=1, max_frequencies=5), [40], [key])[0]
        columns = hidden.all(0)
        assert torch.equal(hidden.any(0), columns) and columns.sum() <= 5


def test_every_length_and_place_is_drawn() -> None:
    augment = Augment(time_masks=1, max_time_frames=3)
    found = {tuple(masked(augment, [6], [key])[0].all(1).nonzero().flatten().tolist()) for key in range(600)}
    assert found == {()} | {tuple(range(start, start + n)) for n in (1, 2, 3) for start in range(6 - n + 1)}


def test_an_utterance_is_masked_the_same_in_any_batch() -> None:
    augment = Augment(**MASKS)
    together = masked(augment, [50, 30, 40], [11, 22, 33])
    for row, (frames, key) in enumerate(((50, 11), (30, 22), (40, 33))):
        assert torch.equal(together[row, :frames], masked(augment, [frames], [key])[0])
    assert not torch.equal(together[0], masked(augment, [50], [12])[0])


def test_time_masks_stay_within_the_utterance() -> None:
    augment = Augment(time_masks=1, max_time_frames=10)
    for key in range(100):
        assert not masked(augment, [12, 60], [key, key])[0, 12:].any()


def test_speed_changes_length_and_pitch() -> None:
    rate = 8000
    tone = torch.sin(2 * torch.pi * 500 * torch.arange(rate) / rate)
    for speed in (0.9, 1.1):
        played = Augment(speeds=[speed]).waveform(tone, rate, 7)
        assert len(played) == -(-rate * 10 // round(10 * speed))
        loudest = torch.fft.rfft(played).abs().argmax() * rate / len(played)
        assert float(loudest) == pytest.approx(500 * speed, abs=2)


def test_speeds_are_drawn_evenly_and_by_utterance() -> None:
    augment, waveform = Augment(speeds=[0.5, 1.0, 2.0]), torch.randn(400)
    lengths = [len(augment.waveform(waveform, 16000, key)) for key in range(300)]
    assert {length: 75 < lengths.count(length) < 125 for length in (800, 400, 200)} == dict.fromkeys(
        (800, 400, 200), True
    )
    assert lengths[:20] == [len(augment.waveform(waveform, 16000, key)) for key in range(20)]


def test_switching_speeds_on_leaves_masks_as_they_were() -> None:
    slow, plain = Augment(speeds=[0.9, 1.1], **MASKS), Augment(**MASKS)
    assert torch.equal(masked(slow, [50], [5]), masked(plain, [50], [5]))


def test_keys_differ_by_seed_epoch_and_utterance_and_are_fixed() -> None:
    keys = {batches.key(seed, epoch, name) for seed in (1, 2) for epoch in (0, 1) for name in ("a", "b")}
    assert len(keys) == 8 and all(0 <= key < 1 << 63 for key in keys)
    assert batches.key(1, 0, "a") == 1421879724931213127


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"speeds": []}, "speeds"),
        ({"speeds": [0.1]}, "speeds"),
        ({"time_masks": -1}, "time_masks"),
        ({"max_time_share": 1.5}, "max_time_share"),
    ],
)
def test_values_out_of_range_are_named(options: dict, name: str) -> None:
    with pytest.raises(ConfigError, match=f"augment.{name}"):
        Augment(**options)
