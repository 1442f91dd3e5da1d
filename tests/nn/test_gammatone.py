"""Gammatone features against the recursion of RASR, written down in NumPy sample by sample."""

import math

import numpy as np
import pytest
import torch
from kernel_cases import compiles

from las.nn.gammatone import FILTERS, Gammatone


@pytest.fixture(params=[pytest.param("compiled", marks=compiles), "fourier"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The way in which features are computed."""
    if request.param == "fourier":
        monkeypatch.setattr(FILTERS, "refusal", lambda waveforms: "no compiler")
    else:
        assert FILTERS.refusal(torch.zeros(1, 1)) == ""
    return str(request.param)


def recursive(samples: np.ndarray, rate: int, num_filters: int, low: float, high: float) -> np.ndarray:
    """Features [frames, filters] of samples of 16 bits by filters that feed back, in float64."""
    ends = [math.log10(hertz / 165.4 + 0.88) / 2.1 for hertz in (low, high)]
    hertz = 165.4 * (10 ** (2.1 * np.linspace(*ends, num_filters)) - 0.88)
    theta = 2 * np.pi * hertz / rate
    phi = 2 * np.pi * 24.7 * (1 + 0.00437 * hertz) / rate
    alpha = -np.exp(-phi) * np.cos(theta)
    b1, b2 = 2 * alpha, np.exp(-2 * phi)
    turn = np.exp(-1j * theta)
    a0 = np.abs((1 + b1 * turn + b2 * turn**2) / (1 + alpha * turn))
    outputs = []
    earlier = np.zeros((2, 4, num_filters))
    for now, before in zip(samples, [samples[0], *samples[:-1]], strict=True):
        value = np.full(num_filters, now - before)
        for section in range(4):
            inner = value - b1 * earlier[0, section] - b2 * earlier[1, section]
            value = a0 * inner + alpha * a0 * earlier[0, section]
            earlier[1, section] = earlier[0, section]
            earlier[0, section] = inner
        outputs.append(np.abs(value))
    window, shift = rate * 25 // 1000, rate * 10 // 1000
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / (window - 1))
    starts = range(0, len(samples) - window + 1, shift)
    integrals = np.stack([hann @ np.stack(outputs[start : start + window]) for start in starts])
    n, k = np.arange(num_filters)[:, None] + 0.5, np.arange(num_filters)[None]
    cosines = np.cos(np.pi * n * k / num_filters) * np.sqrt(2 / num_filters) * np.where(k == 0, math.sqrt(0.5), 1.0)
    return (0.00035 * integrals) ** 0.1 @ cosines


@pytest.mark.parametrize(("rate", "num_filters"), [(8000, 40), (16000, 12)])
@pytest.mark.usefixtures("path")
def test_features_are_those_of_the_recursion(rate: int, num_filters: int) -> None:
    """Over more than two blocks of the transform."""
    draw = np.random.default_rng(1)
    samples = np.round(2000 * draw.standard_normal(rate) * np.linspace(0.01, 1, rate))
    features = Gammatone(rate, num_filters=num_filters, preemphasis=1.0, normalisation="none", floor=0.0).double()
    rows, _ = features(torch.from_numpy(samples / 32768).unsqueeze(0), torch.tensor([rate]))
    expected = recursive(samples, rate, num_filters, 100.0, 0.95 * rate / 2)
    np.testing.assert_allclose(rows[0].numpy(), expected, atol=2e-5)


@compiles
@pytest.mark.parametrize("options", [{}, {"frame_shift_ms": 25.0}, {"frame_length_ms": 7.0, "num_filters": 3}])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_compiled_recursion_is_the_fourier_transform(options: dict[str, float], dtype: torch.dtype) -> None:
    """For frames that overlap, touch each other or leave gaps, and lengths that end within a frame."""
    torch.manual_seed(3)
    features = Gammatone(8000, **options).to(dtype)
    waveforms = torch.randn(3, 5077, dtype=dtype)
    assert FILTERS.refusal(waveforms) == ""
    compiled = features.integrals(waveforms)
    reference = features.integrals(waveforms.requires_grad_())  # which the recursion does not take
    assert reference.requires_grad and len(compiled[0]) == int(features.num_frames(torch.tensor([5077])))
    torch.testing.assert_close(compiled, reference, rtol=1e-5, atol=2e-5)
    assert torch.equal(compiled[1:2], features.integrals(waveforms[1:2].detach()))


@pytest.mark.usefixtures("path")
def test_autocast_changes_nothing() -> None:
    waveforms, num_samples = 0.1 * torch.randn(1, 4000), torch.tensor([4000])
    features = Gammatone(8000, num_filters=12)
    plain, _ = features(waveforms, num_samples)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(features(waveforms, num_samples)[0], plain)


@pytest.mark.usefixtures("path")
def test_silence_has_the_floor() -> None:
    features = Gammatone(8000, num_filters=8, floor=1e-4, normalisation="none")
    rows, _ = features(torch.zeros(1, 2000), torch.tensor([2000]))
    levels = rows[0] @ features.get_buffer("dct").T
    torch.testing.assert_close(levels, torch.full_like(levels, 1e-4**0.1), atol=1e-5, rtol=0)


@pytest.mark.usefixtures("path")
def test_what_follows_changes_nothing() -> None:
    """Not a hundred times louder speech either: blocks begin at the same samples whatever the length of the batch."""
    torch.manual_seed(2)
    waveforms = torch.randn(1, 20000).double() * torch.tensor([1.0, 100.0]).repeat_interleave(10000)
    features = Gammatone(8000, num_filters=10, normalisation="none").double()
    alone, frames = features(waveforms[:, :10000], torch.tensor([10000]))
    together, _ = features(waveforms, torch.tensor([20000]))
    torch.testing.assert_close(alone, together[:, : int(frames)], rtol=1e-9, atol=1e-9)
