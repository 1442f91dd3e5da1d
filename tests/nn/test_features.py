import math
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from gpu_stand_in import stand_in
from hypothesis import given
from hypothesis import strategies as st
from options import names, part
from torch import Tensor

from las.config.build import build, option
from las.nn.features import CHUNK_SAMPLES, LOG_FLOOR, MFCC, Features, LogMel, time_derivative

FEATURES = names("features")
SIZES = {"fbank40": 40, "fbank80": 80, "fbank123_delta": 123, "mfcc40": 40}
RATE = 16000
every_option = pytest.mark.parametrize("name", FEATURES)


def make(name: str, rate: int = RATE, **options: Any) -> Features:
    features: Features = part("features", name)(rate, **options)
    return features


def noise(*lengths: int) -> tuple[Tensor, Tensor]:
    """Waveforms of these lengths whose loudness and colour vary, zero-padded."""
    generator = torch.Generator().manual_seed(1)
    waveforms = torch.randn(len(lengths), max(lengths), generator=generator).cumsum(1) * 1e-3
    waveforms += 0.05 * torch.randn(waveforms.shape, generator=generator)
    num_samples = torch.tensor(lengths)
    return waveforms.masked_fill(torch.arange(max(lengths)) >= num_samples.unsqueeze(1), 0.0), num_samples


def mel_filters(num_mels: int, low: float, high: float, bins: int, rate: int) -> np.ndarray:
    """Triangles [bins, mels] whose corners are equally spaced in mel = 2595 log10(1 + Hz / 700)."""
    corners = 700 * (10 ** (np.linspace(*(2595 * np.log10(1 + np.array([low, high]) / 700)), num_mels + 2) / 2595) - 1)
    hertz = np.linspace(0, rate / 2, bins)[:, None]
    rising = (hertz - corners[:-2]) / (corners[1:-1] - corners[:-2])
    falling = (corners[2:] - hertz) / (corners[2:] - corners[1:-1])
    return np.maximum(0, np.minimum(rising, falling))


def frames_of(waveform: np.ndarray, rate: int = RATE) -> np.ndarray:
    """Pre-emphasised, Hamming-windowed frames [frames, window] of 25 ms every 10 ms, none of them incomplete."""
    emphasised = np.array([x - 0.97 * waveform[max(t - 1, 0)] for t, x in enumerate(waveform)])
    window, shift = rate * 25 // 1000, rate * 10 // 1000
    hamming = 0.54 - 0.46 * np.cos(2 * np.pi * np.arange(window) / window)
    starts = range(0, len(waveform) - window + 1, shift)
    return np.stack([emphasised[start : start + window] * hamming for start in starts])


@pytest.mark.parametrize("rate", [8000, 16000])
@pytest.mark.parametrize("num_mels", [40, 80])
def test_log_mel_equals_a_numpy_transcription(rate: int, num_mels: int) -> None:
    waveforms, num_samples = noise(3000)
    features = LogMel(rate, num_mels=num_mels, energy=True, normalisation="none").double()
    rows, num_frames = features(waveforms.double(), num_samples)
    frames = frames_of(waveforms[0].double().numpy(), rate)
    fft = 256 if rate == 8000 else 512
    power = np.abs(np.fft.rfft(frames, fft)) ** 2
    log_mel = np.log(power @ mel_filters(num_mels, 20, rate / 2, fft // 2 + 1, rate) + LOG_FLOOR)
    energy = np.log((frames**2).sum(1) + LOG_FLOOR)
    assert num_frames.tolist() == [len(frames)]
    np.testing.assert_allclose(rows[0, :, :num_mels].numpy(), log_mel, atol=2e-4)
    np.testing.assert_allclose(rows[0, :, num_mels].numpy(), energy, atol=1e-6)


def test_mfcc_is_the_orthonormal_cosine_transform_of_log_mel() -> None:
    waveforms, num_samples = noise(2000)
    log_mel, _ = LogMel(RATE, num_mels=23, normalisation="none")(waveforms, num_samples)
    ours, _ = MFCC(RATE, num_coefficients=13, num_mels=23, normalisation="none")(waveforms, num_samples)
    k, n = np.arange(13)[:, None], np.arange(23)[None]
    basis = np.cos(np.pi * k * (2 * n + 1) / 46) * np.sqrt(2 / 23)
    basis[0] /= np.sqrt(2)
    np.testing.assert_allclose(ours[0].numpy(), log_mel[0].numpy() @ basis.T, atol=1e-4)


@pytest.mark.parametrize("name", [name for name in FEATURES if name != "gammatone40"])  # it has no logarithms
def test_digital_silence_has_the_floor_of_the_option(name: str) -> None:
    """1e-6, as in configs of earlier releases, which have no `log_floor`; or the one that is set."""
    section = option("features", name)
    stored = {key: value for key, value in section.items() if key != "log_floor"}
    for config, floor in ((section, 1e-6), (stored, 1e-6), (section | {"log_floor": 1e-10}, 1e-10)):
        features = build(config)(RATE, normalisation="none")
        rows, _ = features(torch.zeros(1, 4000), torch.tensor([4000]))
        levels = rows[0, :, : rows.shape[2] // features.orders]
        if isinstance(features, MFCC):
            levels = levels @ features.get_buffer("dct").T  # the first coefficient has all of equal levels
        torch.testing.assert_close(levels, torch.full_like(levels, math.log(floor)), rtol=0, atol=1e-3)


@every_option
@pytest.mark.parametrize("rate", [8000, 16000])
def test_an_option_has_its_size_and_prints_no_warning(name: str, rate: int) -> None:
    features = make(name, rate)
    rows, num_frames = features(*noise(rate))
    assert rows.shape == (1, 98, features.size) and num_frames.tolist() == [98]
    assert features.size == SIZES.get(name, features.size)


@given(st.integers(0, 4000), st.sampled_from([8000, 11025, 16000]))
def test_number_of_frames_counts_whole_windows(num_samples: int, rate: int) -> None:
    window, shift = round(rate * 0.025), round(rate * 0.01)
    whole = sum(1 for start in range(0, num_samples, shift) if start + window <= num_samples)
    assert LogMel(rate, num_mels=20).num_frames(torch.tensor([num_samples])).tolist() == [whole]


@every_option
@pytest.mark.parametrize("normalisation", ["global", "utterance", "smoothed", "none"])
@pytest.mark.parametrize("poison", [0.0, float("nan"), 100.0])
def test_padding_never_changes_a_feature_row(name: str, normalisation: str, poison: float) -> None:
    features = make(name, normalisation=normalisation).double()
    waveforms, num_samples = noise(3000, 2345, 1000, 401, 400, 399, 0)
    waveforms = waveforms.double()
    features.fit([(waveforms, num_samples)])
    padding = torch.arange(3000) >= num_samples.unsqueeze(1)
    together, num_frames = features(waveforms.masked_fill(padding, poison), num_samples)
    assert num_frames.tolist() == [17, 13, 4, 1, 1, 0, 0]
    for row, (samples, frames) in enumerate(zip(num_samples.tolist(), num_frames.tolist(), strict=True)):
        alone, one = features(waveforms[row : row + 1, :samples], num_samples[row : row + 1])
        assert one.tolist() == [frames]
        torch.testing.assert_close(together[row, :frames], alone[0, :frames], rtol=1e-9, atol=1e-9)
        assert not together[row, frames:].any() and not alone[0, frames:].any()


def test_derivative_by_hand_with_the_true_ends_repeated() -> None:
    rows = torch.tensor([[0.0, 1.0, 4.0, 9.0, 16.0], [0.0, 1.0, 4.0, float("nan"), 100.0]]).unsqueeze(-1)
    slope = time_derivative(rows, torch.tensor([5, 3])).squeeze(-1)
    torch.testing.assert_close(slope[0], torch.tensor([0.9, 2.2, 4.0, 4.2, 3.1]))
    torch.testing.assert_close(slope[1, :3], torch.tensor([0.9, 1.2, 1.1]))


def test_deltas_follow_the_rows_they_are_of() -> None:
    waveforms, num_samples = noise(3000, 2000)
    rows, num_frames = make("fbank123_delta", normalisation="none")(waveforms, num_samples)
    static, first, second = rows.split(41, dim=-1)
    for row, frames in enumerate(num_frames.tolist()):
        one, length = slice(row, row + 1), num_frames[row : row + 1]
        torch.testing.assert_close(time_derivative(static[one, :frames], length), first[one, :frames])
        torch.testing.assert_close(time_derivative(first[one, :frames], length), second[one, :frames])


@every_option
def test_global_statistics_make_the_fitted_data_standard_and_travel_with_the_state(name: str) -> None:
    features = make(name, normalisation="global")
    batches = [noise(3000, 2345), noise(4000, 900, 399)]
    new = make(name, normalisation="global")
    raw = torch.cat([row[:n] for b in batches for row, n in zip(*new(*b), strict=True)])
    features.fit(iter(batches))
    torch.testing.assert_close(features.mean, raw.mean(0), rtol=1e-4, atol=1e-4)
    fitted = torch.cat([row[:n] for b in batches for row, n in zip(*features(*b), strict=True)]).double()
    torch.testing.assert_close(fitted.mean(0), torch.zeros(features.size).double(), rtol=0, atol=1e-4)
    torch.testing.assert_close(fitted.var(0, unbiased=False), torch.ones(features.size).double(), rtol=1e-3, atol=0)
    other = make(name, normalisation="global")
    other.load_state_dict(features.state_dict())
    assert torch.equal(other(*batches[0])[0], features(*batches[0])[0])


def test_utterance_statistics_are_of_the_true_rows() -> None:
    waveforms, num_samples = noise(4000, 2000, 900)
    rows, num_frames = make("fbank40", normalisation="utterance").double()(waveforms.double(), num_samples)
    for row, frames in zip(rows, num_frames.tolist(), strict=True):
        torch.testing.assert_close(row[:frames].mean(0), torch.zeros(40).double(), rtol=0, atol=1e-9)
        torch.testing.assert_close(row[:frames].var(0, unbiased=False), torch.ones(40).double())


@every_option
@pytest.mark.parametrize("normalisation", ["global", "utterance"])
def test_silence_is_finite(name: str, normalisation: str) -> None:
    features = make(name, normalisation=normalisation)
    silence = torch.zeros(1, 2000), torch.tensor([2000])
    features.fit([silence])
    assert features(*silence)[0].isfinite().all()
    assert features(*noise(2000))[0].isfinite().all()


def test_a_gpu_computes_all_at_once() -> None:
    features, calls = make("fbank40"), []
    features.register_forward_pre_hook(lambda *_: calls.clear())
    rows, (waveforms, num_samples) = features.rows, noise(100_000, 90_000, 80_000)
    with mock.patch.object(features, "rows", lambda part: calls.append(len(part)) or rows(part)):
        expected, _ = features(waveforms, num_samples)
        assert calls == [1, 1, 1]
        with stand_in():
            found, _ = features.to("cuda")(waveforms.to("cuda"), num_samples)
            assert calls == [3]
    torch.testing.assert_close(found, expected)


@every_option
def test_how_many_are_computed_at_once_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    waveforms, num_samples = noise(3000, 2345, 1000, 401, 399)
    together = make(name).double()(waveforms.double(), num_samples)
    monkeypatch.setitem(CHUNK_SAMPLES, "cpu", 6500)  # two of them, and the last by itself
    found = make(name).double()(waveforms.double(), num_samples)
    torch.testing.assert_close(found, together, rtol=1e-12, atol=1e-12)
