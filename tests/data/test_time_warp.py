"""Time warping: against the spline of the textbook point by point, and what the paper says of it."""

import numpy as np
import pytest
import torch
from refusals import refused

from las.data.augmentation import augmentation
from las.runtime.errors import ConfigError


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


@pytest.mark.parametrize("shift", [-40, 7, 40])
def test_the_point_moves_and_the_six_anchors_stay(shift: int) -> None:
    frames, bands, centre = 200, 81, 100
    moved = augmentation.displacement(
        torch.tensor([frames]), bands, torch.tensor([centre]), torch.tensor([shift]), frames
    )
    assert moved[0, centre + shift, 40] == pytest.approx(shift, abs=1e-3)
    for time in (0, frames - 1):
        for height in (0, 40, bands - 1):
            assert moved[0, time, height] == pytest.approx(0.0, abs=1e-3)
    assert (moved[0, centre + shift, 0].abs() < abs(shift)).item()  # away from the middle band it is pulled less


def test_a_single_band_has_no_middle() -> None:
    numbers = (torch.tensor([n]) for n in (30, 15, 2))
    refused("2 bands|not 1", augmentation.warp, torch.randn(1, 30, 3), *numbers, 3, kind=ConfigError)
