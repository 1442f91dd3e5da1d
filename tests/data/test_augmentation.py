"""Augmentation: what masks cover, what speeds and warps do, and that each draw belongs to its utterance."""

import functools
import itertools

import numpy as np
import pytest
import torch
from refusals import refused

from las.config.build import build, compose
from las.data import loader as data_loader
from las.data.augmentation import augmentation
from las.data.augmentation.augmentation import Augmentation
from las.runtime import devices
from las.runtime.errors import ConfigError

MASKS = {"time_masks": 2, "max_time_frames": 10, "frequency_masks": 2, "max_frequencies": 5}


def masked(augment: Augmentation, frames: list[int], keys: list[int], size: int = 20) -> torch.Tensor:
    """Where ones were replaced by zeros."""
    ones = torch.ones(len(frames), max(frames), size)
    return augment.features(ones, torch.tensor(frames), keys) == 0


def one_by_one(augment: Augmentation, num_frames: int, size: int, key: int) -> torch.Tensor:
    """Where an utterance is masked, each number drawn by itself: what a seed has given since the first version."""
    hidden, draw = torch.zeros(num_frames, size, dtype=torch.bool), torch.Generator().manual_seed(key ^ 2)
    longest = min(augment.max_time_frames, int(augment.max_time_share * num_frames))
    for _ in range(augment.time_masks):
        length = int(torch.randint(longest + 1, (), generator=draw))
        start = int(torch.randint(num_frames - length + 1, (), generator=draw))
        hidden[start : start + length] = True
    for _ in range(augment.frequency_masks):
        width = int(torch.randint(min(augment.max_frequencies, size) + 1, (), generator=draw))
        start = int(torch.randint(size - width + 1, (), generator=draw))
        hidden[:, start : start + width] = True
    return hidden


OPTIONS = ("small", "specaugment_lb", "specaugment_ld", "specaugment_sm", "specaugment_ss")


@functools.cache
def option(name: str) -> Augmentation:
    return build(compose("train", [f"augment={name}"])["augment"], where="augment")


@pytest.mark.parametrize("name", OPTIONS)
def test_masks_of_a_batch_are_those_drawn_one_by_one(name: str) -> None:
    frames, keys = [50, 1, 333, 120, 700], [data_loader.augmentation_seed(3, 1, f"u{row}") for row in range(5)]
    hidden = masked(option(name), frames, keys, 40)
    for row, (num_frames, key) in enumerate(zip(frames, keys, strict=True)):
        assert torch.equal(hidden[row, :num_frames], one_by_one(option(name), num_frames, 40, key))


@pytest.mark.parametrize(
    ("name", "policy"),  # W, F, mF, T, p, mT
    [
        ("lb", (80, 27, 1, 100, 1.0, 1)),
        ("ld", (80, 27, 2, 100, 1.0, 2)),
        ("sm", (40, 15, 2, 70, 0.2, 2)),
        ("ss", (40, 27, 2, 70, 0.2, 2)),
    ],
)
def test_options_hold_the_policies_of_the_paper(name: str, policy: tuple[float, ...]) -> None:
    made = option(f"specaugment_{name}")
    warp_and_bands = made.max_warp_frames, made.max_frequencies, made.frequency_masks
    assert (*warp_and_bands, made.max_time_frames, made.max_time_share, made.time_masks) == policy
    assert made.speeds == (1.0,)


def test_derivatives_are_masked_in_the_bands_of_their_features() -> None:
    augment, ones = Augmentation(frequency_masks=2, max_frequencies=5), torch.ones(1, 9, 30)
    for key in range(50):
        hidden = augment.features(ones, torch.tensor([9]), [key], orders=3) == 0
        assert torch.equal(hidden[..., :10], masked(augment, [9], [key], 10))
        assert torch.equal(hidden[..., :10], hidden[..., 10:20]) and torch.equal(hidden[..., :10], hidden[..., 20:])


def test_nothing_happens_by_default_and_without_keys() -> None:
    features, frames, waveform = torch.randn(2, 30, 8), torch.tensor([30, 20]), torch.randn(1000)
    assert Augmentation().features(features, frames, [1, 2]) is features
    assert Augmentation().waveform(waveform, 16000, 1) is waveform
    assert Augmentation(**MASKS, max_warp_frames=5).features(features, frames, []) is features


def test_an_utterance_is_warped_the_same_in_any_batch_and_short_ones_stay() -> None:
    augment, features = Augmentation(max_warp_frames=10), torch.randn(3, 60, 12)
    lengths, keys = [60, 22, 31], [5, 6, 7]
    together = augment.features(features, torch.tensor(lengths), keys)
    for row, (frames, key) in enumerate(zip(lengths, keys, strict=True)):
        alone = augment.features(features[row : row + 1, :frames], torch.tensor([frames]), [key])
        torch.testing.assert_close(together[row, :frames], alone[0], rtol=0, atol=1e-6)
        assert torch.equal(together[row, frames:], features[row, frames:])
    assert torch.equal(together[1], features[1])  # 2 W + 2 frames
    assert not torch.equal(together[0], features[0]) and not torch.equal(together[2], features[2])


def test_warps_reach_both_sides_and_never_the_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    monkeypatch.setattr("las.data.augmentation.augmentation.warp", lambda *given: drawn.append(given[2:4]) or given[0])
    keys = list(range(4000))
    Augmentation(max_warp_frames=3).features(torch.zeros(4000, 12, 2), torch.full((4000,), 12), keys)
    ((centres, shifts),) = drawn
    assert set(shifts.tolist()) == set(range(-3, 4)) and set(centres.tolist()) == {4, 5, 6, 7}
    assert 500 < (shifts == 3).sum() < 650


def test_speeds_and_warps_leave_the_masks_as_they_were() -> None:
    ones = torch.ones(1, 50, 20)
    more = Augmentation(**MASKS, max_warp_frames=8, speeds=[0.9, 1.1]).features(ones, torch.tensor([50]), [5]) == 0
    assert torch.equal(more, masked(Augmentation(**MASKS), [50], [5]))


def test_a_speed_at_an_odd_rate_is_a_ratio_of_small_numbers() -> None:
    """0.85 of 22,050 Hz is no whole number of hertz: resampling 9,371 : 11,025 would take minutes."""
    waveform = torch.randn(2205)
    resample = devices.torchaudio().functional.resample
    odd = Augmentation(speeds=[0.85]).waveform(waveform, 22050, 7)
    assert torch.equal(odd, resample(waveform, 17, 20)) and len(odd) == -(-2205 * 20 // 17)
    for speed in (0.85, 0.9, 0.95, 1.05, 1.1, 1.15):
        for rate in (8000, 16000):
            expected = resample(waveform, round(speed * rate), rate)
            assert torch.equal(Augmentation(speeds=[speed]).waveform(waveform, rate, 7), expected)


def test_speeds_are_drawn_evenly_and_by_utterance() -> None:
    augment, waveform = Augmentation(speeds=[0.5, 1.0, 2.0]), torch.randn(400)
    lengths = [len(augment.waveform(waveform, 16000, key)) for key in range(300)]
    assert set(lengths) == {800, 400, 200} and all(75 < lengths.count(length) < 125 for length in (800, 400, 200))
    assert lengths[:20] == [len(augment.waveform(waveform, 16000, key)) for key in range(20)]


def test_keys_differ_by_seed_epoch_and_utterance_and_are_fixed() -> None:
    keys = {data_loader.augmentation_seed(*each) for each in itertools.product((1, 2), (0, 1), ("a", "b"))}
    assert len(keys) == 8 and all(0 <= key < 1 << 63 for key in keys)
    assert data_loader.augmentation_seed(1, 0, "a") == 1421879724931213127


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"speeds": []}, "speeds"),
        ({"speeds": [0.1]}, "speeds"),
        ({"time_masks": -1}, "time_masks"),
        ({"max_time_share": 1.5}, "max_time_share"),
        ({"max_warp_frames": -1}, "max_warp_frames"),
    ],
)
def test_values_out_of_range_are_named(options: dict, name: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name}"):
        Augmentation(**options)


def plain_displacement(frames: int, bands: int, centre: int, shift: int) -> np.ndarray:
    """The thin-plate spline through seven points, in frames and bands, place by place."""
    middle = (bands - 1) / 2
    points = [(centre + shift, middle)]
    points += [(time, height) for time in (0, frames - 1) for height in (0, middle, bands - 1)]

    def basis(a: tuple[float, float], b: tuple[float, float]) -> float:
        distance = np.hypot(a[0] - b[0], a[1] - b[1])
        return float(distance**2 * np.log(distance)) if distance else 0.0

    equations, values = np.zeros((10, 10)), np.zeros(10)
    values[0] = shift
    for row, point in enumerate(points):
        equations[row, :7] = [basis(point, other) for other in points]
        equations[row, 7:] = equations[7:, row] = (1, *point)
    solved = np.linalg.solve(equations, values)
    return np.array(
        [
            [np.dot(solved, [*(basis((t, f), point) for point in points), 1, t, f]) for f in range(bands)]
            for t in range(frames)
        ]
    )


def plain_warp(features: np.ndarray, centre: int, shift: int) -> np.ndarray:
    """Each place is read from where the spline says, between two frames."""
    frames, bands = features.shape
    moved, warped = plain_displacement(frames, bands, centre, shift), np.zeros_like(features)
    for t in range(frames):
        for f in range(bands):
            source = min(max(t - moved[t, f], 0.0), frames - 1.0)
            before = int(source)
            after, share = min(before + 1, frames - 1), source - before
            warped[t, f] = (1 - share) * features[before, f] + share * features[after, f]
    return warped


@pytest.mark.parametrize("orders", [1, 3])
def test_a_batch_is_warped_as_each_utterance_by_the_textbook(orders: int) -> None:
    torch.manual_seed(1)
    lengths, centres, shifts = torch.tensor([30, 17, 24]), torch.tensor([11, 9, 13]), torch.tensor([6, -5, 0])
    features = torch.randn(3, 33, 9 * orders)
    warped = augmentation.warp(features, lengths, centres, shifts, orders)
    for row, (length, centre, shift) in enumerate(
        zip(*(each.tolist() for each in (lengths, centres, shifts)), strict=True)
    ):
        for block in range(orders):
            columns = slice(9 * block, 9 * block + 9)
            expected = plain_warp(features[row, :length, columns].double().numpy(), centre, shift)
            np.testing.assert_allclose(warped[row, :length, columns].numpy(), expected, atol=1e-5)
        assert torch.equal(warped[row, length:], features[row, length:])


def test_a_single_band_has_no_middle() -> None:
    numbers = (torch.tensor([n]) for n in (30, 15, 2))
    refused("2 bands|not 1", augmentation.warp, torch.randn(1, 30, 3), *numbers, 3, kind=ConfigError)
